"""How the tokens of a training find their experts: what a user chooses beside the model."""

from collections.abc import Iterator
from dataclasses import dataclass

from models.transformer import MAX_CAPACITY_FACTOR
from stowplan.errors import Issue

MAX_LOSS_FACTOR = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Every term is of one sequence alone, so that none depends on which sequences a replica or micro-batch has.

    `balance_loss`: factor of the loss of balance of every layer with experts, E sum_i f_i P_i, with f_i the share of
    the choices of a sequence that fell on expert i of E and P_i the mean of its probability (Fedus et al. 2021, Switch
    Transformer, eq. 4; of single sequences: DeepSeek-V3, section 2.1.2): 1 where all experts have as many.
    `router_loss`: of the mean square of the logarithm of the sum of exponentials of the router's logits (Zoph et al.
    2022, ST-MoE, eq. 5). Both are added to the loss that is learned from, and are not in the one that is told.
    `capacity`: an expert works on so many times its mean share of the choices of a sequence at most, rounded up; what
    falls beyond that is dropped, second choices before first ones, then later tokens before earlier ones. None: nothing
    is dropped.
    """

    balance_loss: float = 0.01
    router_loss: float = 0.0
    capacity: float | None = None


def routing_faults(routing: Routing, pointer: str) -> Iterator[Issue]:
    """What is wrong with it, below `pointer`."""
    for name in ("balance_loss", "router_loss"):
        if not 0 <= (value := getattr(routing, name)) <= MAX_LOSS_FACTOR:
            detail = f"is {value}; from 0, for none, to {MAX_LOSS_FACTOR:g}"
            yield Issue(code="out_of_range", pointer=f"{pointer}/{name}", detail=detail)
    if routing.capacity is not None and not 0 < routing.capacity <= MAX_CAPACITY_FACTOR:
        detail = f"is {routing.capacity}; above 0, to {MAX_CAPACITY_FACTOR:g}, or null: nothing is dropped"
        yield Issue(code="out_of_range", pointer=f"{pointer}/capacity", detail=detail)
