"""Cases of Arena: moments of the Philly trace, made-up events; by Algorithm 1 and by the integer program."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.arena_events import OBJECTIVES, PHILLY_ROUNDS, generated_event, philly_event
from benchmarks.workloads.published.arena import data_are_there
from models.allocation.arena.descriptor import ARENA, ARENA_ILP
from models.allocation.arena.parameters import ArenaMethod, ArenaParameters
from models.plan import PlanRequest

_LOADS = (0.5, 1.0, 2.0)
_GPUS, _PHILLY_GPUS = 128, 1_280
# 10,240 GPUs, and about as many jobs to a GPU as there are in the trace when it is busy.
_COPIES, _LARGE_LOAD = 80, 1.2
_METHODS = ((ARENA, ArenaMethod.HEURISTIC), (ARENA_ILP, ArenaMethod.ILP))


def arena_cases() -> Iterator[Case]:
    """All cases of Arena; those of the trace only where the data lie beside the checkout."""
    for policy, method in _METHODS:
        for title, objective in OBJECTIVES.items():
            parameters, short = replace(objective, method=method), title.replace(",", "").replace(" ", "-")
            for load in _LOADS:
                yield Case(
                    name=f"{policy.name}/generated/{_SHORT.get(short, short)}-load{load:g}",
                    problem=policy.name,
                    series="",
                    scale=_GPUS,
                    size={"gpus": _GPUS, "load": load},
                    source="generated (benchmarks/workloads/arena_events.py): half of the jobs run",
                    make=partial(_generated, parameters, load),
                )
            yield Case(
                name=f"{policy.name}/large/{_SHORT.get(short, short)}-load{_LARGE_LOAD:g}",
                problem=policy.name,
                series="",
                scale=_GPUS * _COPIES,
                size={"gpus": _GPUS * _COPIES, "load": _LARGE_LOAD},
                source="generated (benchmarks/workloads/arena_events.py), some 2,000 jobs: half of them run",
                make=partial(_generated, parameters, _LARGE_LOAD, copies=_COPIES),
            )
            for number in PHILLY_ROUNDS if data_are_there() else ():
                yield Case(
                    name=f"{policy.name}/philly/{_SHORT.get(short, short)}-round{number}",
                    problem=policy.name,
                    series="",
                    scale=_PHILLY_GPUS,
                    size={"gpus": _PHILLY_GPUS},
                    source="busy moment of the Philly trace on the cluster of the published simulation",
                    make=partial(_philly, parameters, number),
                    seeded=False,
                )


_SHORT = {"throughput-normalised": "throughput", "throughput-samples/s": "samples", "finish-time-fairness": "fairness"}


def _generated(parameters: ArenaParameters, load: float, seed: int, copies: int = 1) -> PlanRequest:
    return PlanRequest(snapshot=generated_event(load, seed, copies), parameters=parameters)


def _philly(parameters: ArenaParameters, number: int, _: int) -> PlanRequest:
    return PlanRequest(snapshot=philly_event(number), parameters=parameters)
