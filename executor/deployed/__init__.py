"""A cluster of our own deployments, on which a controller decides over time."""
