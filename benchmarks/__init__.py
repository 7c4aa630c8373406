"""Measurements: latency, replays, figures. Run from a checkout."""
