"""Which job gets how many GPUs of which type."""
