"""Iteration time and memory of 3D plans (Suika appendix A), and their calibration. Pure NumPy and SciPy."""
