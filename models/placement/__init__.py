"""Which nodes and GPUs a job sits on, in which rank order."""
