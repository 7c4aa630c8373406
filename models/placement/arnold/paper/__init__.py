"""Eqs. 4-10 as printed, in Pyomo."""
