"""Sia: goodput-optimal allocation of GPU type and count to jobs (SOSP'23)."""
