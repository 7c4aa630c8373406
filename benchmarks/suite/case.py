"""What is measured: a named input, made anew from a seed in the process that measures it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from models.plan import PlanRequest


class Problem(StrEnum):
    """The policy that plans the case."""

    SIA = "sia"
    ARNOLD = "arnold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input of the suite.

    name: `problem/group/details`. series: cases that belong on one line when latency is drawn over `scale` (GPUs for
    Sia, nodes of the cluster for Arnold); empty for a case that stands for itself. size: the numbers behind it.
    source: where the input comes from. make: the request for a seed, without solver and limits. seeded: whether the
    seed changes anything.
    """

    name: str
    problem: Problem
    series: str
    scale: int
    size: Mapping[str, float]
    source: str
    make: Callable[[int], PlanRequest]
    seeded: bool = True
