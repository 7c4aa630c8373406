"""How likely a job may still run when the calendar closes its nodes. Light: parameters of policies ask it."""

from stowplan.errors import InputError

EPSILON = 0.05
"""Where nobody says."""


def raise_for_epsilon(epsilon: float) -> None:
    """Refuse what is no probability below 1."""
    if not 0.0 <= epsilon < 1.0:
        raise InputError(f"epsilon is {epsilon}; it is a probability, at least 0 and below 1")
