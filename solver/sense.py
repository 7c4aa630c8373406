"""Direction of optimisation."""

from enum import StrEnum


class Sense(StrEnum):
    """Direction of optimisation."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"

    @property
    def sign(self) -> int:
        """+1 when smaller is better, -1 when larger is."""
        return 1 if self is Sense.MINIMIZE else -1
