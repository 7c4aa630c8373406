"""Cases of Gavel: jobs that share three GPU types in time, by descending priority and by the integer program."""

from collections.abc import Iterator
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.gavel_rounds import rounds_snapshot
from models.allocation.gavel.descriptor import GAVEL, GAVEL_ILP
from models.allocation.gavel.parameters import GavelMethod, GavelObjective, GavelParameters
from models.plan import PlanRequest

_GPUS = (96, 2_016, 10_008)
_METHODS = ((GAVEL, GavelMethod.HEURISTIC), (GAVEL_ILP, GavelMethod.ILP))
_KINDS = {"fair": GavelObjective.MAX_MIN_FAIRNESS, "makespan": GavelObjective.MAKESPAN}


def gavel_cases() -> Iterator[Case]:
    """All cases of Gavel."""
    for policy, method in _METHODS:
        for num_gpus in _GPUS:
            for kind, objective in _KINDS.items():
                yield Case(
                    name=f"{policy.name}/{kind}/{num_gpus}",
                    problem=policy.name,
                    series=f"{policy.name} {kind}",
                    scale=num_gpus,
                    size={"gpus": num_gpus},
                    source="generated (benchmarks/workloads/gavel_rounds.py): 1.5 times the GPUs are asked for",
                    make=partial(_request, GavelParameters(method=method, objective=objective), num_gpus),
                )


def _request(parameters: GavelParameters, num_gpus: int, seed: int) -> PlanRequest:
    return PlanRequest(snapshot=rounds_snapshot(num_gpus, seed), parameters=parameters)
