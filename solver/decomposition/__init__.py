"""Exact decomposition of choice problems: blocks that choose, a few rows that couple them."""
