"""What parameters of several policies must keep. Light: knows no jobs."""

import math
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


def raise_for_prices(prices: Mapping[str, float]) -> None:
    """Check that every row has a price that it can have.

    Raises
    ------
    InputError
        When one has not.
    """
    for row, price in prices.items():
        if not math.isfinite(price) or price < 0:
            raise InputError(f"the price of {row} is {price}; must be finite and at least 0")
