"""Calibrations of systems by name: fitted to what sites have measured, and those that come along."""
