"""Comparisons of solvers on one instance."""
