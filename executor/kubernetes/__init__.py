"""A plan said to Kubernetes as patches of objects that are there: pure, nothing is sent."""
