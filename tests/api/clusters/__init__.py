"""Clusters by name."""
