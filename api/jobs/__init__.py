"""Measurements of running jobs, and what plans learn from them."""
