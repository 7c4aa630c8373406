"""Planners of 3D plans beside the best plan there is."""
