"""The optimum of Eqs. 4-10 by reasoning on the largest spread."""
