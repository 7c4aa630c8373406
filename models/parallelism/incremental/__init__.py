"""Incremental 3D planning of running jobs (Suika section 3.2, Algorithm 1): more GPUs, or fewer."""
