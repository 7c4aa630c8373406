"""Throughput and goodput of data-parallel jobs (Pollux, Sia), and their calibration. Pure NumPy and SciPy."""
