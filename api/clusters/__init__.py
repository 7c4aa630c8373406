"""Clusters by name: written once, named by many snapshots."""
