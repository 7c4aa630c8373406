"""Goodput, throughput and their calibration. Pure NumPy and SciPy, no solver."""
