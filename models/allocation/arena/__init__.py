"""Arena: GPU type and count of every job, as an optimisation problem and by the paper's event-driven heuristic."""
