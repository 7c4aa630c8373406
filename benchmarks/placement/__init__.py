"""Placement that can be seen: a small training on hosts in network namespaces."""
