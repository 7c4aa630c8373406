"""Published step times of real training against the performance model."""
