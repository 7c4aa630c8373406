"""Which sample comes from which source: a function of its number alone, so that a training may go on anywhere.

Of n samples source i gets w_i n, up to a sample per source before it. With two sources the first has sample n where
floor((n + 1) w) > floor(n w) (a Beatty sequence), and the second all others; of more sources the others share what the
first leaves in the same way.
"""

from collections.abc import Sequence
from fractions import Fraction

# Weights are taken to that precision, so that their products with numbers of samples stay short.
_LARGEST_DENOMINATOR = 10**9


def shares_of(weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Share of each source in what those before it leave; that of the last one is 1."""
    exact = [Fraction(weight).limit_denominator(_LARGEST_DENOMINATOR) for weight in weights]
    # A weight so small that it became 0 still has its place.
    exact = [weight or Fraction(1, _LARGEST_DENOMINATOR) for weight in exact]
    return tuple(weight / sum(exact[k:]) for k, weight in enumerate(exact))


def place_of(number: int, shares: Sequence[Fraction]) -> tuple[int, int]:
    """Source of a sample, and its number among those of that source."""
    for k, share in enumerate(shares):
        taken = int(number * share)
        if int((number + 1) * share) > taken:
            return k, taken
        number -= taken
    raise AssertionError("the share of the last source is not 1")
