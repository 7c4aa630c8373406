"""The life of a plan, from the request to its final state."""
