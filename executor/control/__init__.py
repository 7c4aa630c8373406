"""Decisions over time: events become snapshots, plans become actions. Knows nothing of whether time is simulated."""
