"""Replays of traces: what policies would have made of them."""
