"""Cases of Suika: an event on a busy cluster, by Algorithm 2 and by the integer program.

The process has planned the events before: what it knows of plans by then, it knows on the floor, too.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.suika_events import event_snapshot
from models.allocation.suika.descriptor import SUIKA, SUIKA_ILP
from models.allocation.suika.parameters import SuikaMethod, SuikaParameters
from models.plan import PlanRequest

_NODES = (2, 8, 32, 128)
_LOADS = (0.7, 0.9, 1.1)
_GPUS_PER_NODE = 8
_EVENT = 3
_METHODS = ((SUIKA, SuikaMethod.HEURISTIC), (SUIKA_ILP, SuikaMethod.ILP))


def suika_cases() -> Iterator[Case]:
    """All cases of Suika."""
    for policy, method in _METHODS:
        for load in _LOADS:
            for num_nodes in _NODES:
                yield Case(
                    name=f"{policy.name}/racks/{num_nodes}x{load:g}",
                    problem=policy.name,
                    series=f"{policy.name} load {load:g}",
                    scale=_GPUS_PER_NODE * num_nodes,
                    size={"gpus": _GPUS_PER_NODE * num_nodes, "load": load},
                    source=f"generated (benchmarks/workloads/suika_events.py): event {_EVENT} of the jobs of Table 1",
                    make=partial(_request, SuikaParameters(method=method), num_nodes, load),
                )


def _request(parameters: SuikaParameters, num_nodes: int, load: float, seed: int) -> PlanRequest:
    return PlanRequest(snapshot=event_snapshot(num_nodes, load, _EVENT, seed), parameters=parameters)
