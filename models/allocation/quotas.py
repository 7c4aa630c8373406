"""Quotas of queues, as parameters of policies have them. Light: knows no jobs."""

from collections.abc import Mapping

from stowplan.errors import InputError


def raise_for_quotas(quotas: Mapping[str, int]) -> None:
    """Check that no queue is given less than nothing.

    Raises
    ------
    InputError
        When one is.
    """
    for queue, most in quotas.items():
        if most < 0:
            raise InputError(f"the quota of queue {queue!r} is {most}; must be at least 0")
