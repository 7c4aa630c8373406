"""Horizon: GPU type and count for every job, now and later, for the least mean completion time."""
