"""Latency of the planning road, measured: cases, one process per run, results as JSON, tables and figures."""
