"""Suika: incremental rescheduling of running 3D-parallel jobs (EuroSys'26)."""
