"""Policies beside their papers and beside their own integer programs."""
