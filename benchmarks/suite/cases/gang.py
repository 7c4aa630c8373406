"""Cases of gang: a queue in front of a busy cluster, backfilled by the heuristic and by the integer program."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.gang_queue import NUM_QUEUES, queue_snapshot
from models.allocation.gang.descriptor import GANG, GANG_ILP
from models.allocation.gang.parameters import GangMethod, GangParameters, QueueOrder
from models.plan import PlanRequest

# GPUs and waiting jobs.
_SIZES = ((64, 40), (2_048, 500), (10_240, 3_000), (100_000, 10_000))
_METHODS = ((GANG, GangMethod.HEURISTIC), (GANG_ILP, GangMethod.ILP))


def gang_cases() -> Iterator[Case]:
    """All cases of gang."""
    for policy, method in _METHODS:
        for num_gpus, num_waiting in _SIZES:
            for kind, parameters in _parameters(num_gpus).items():
                yield Case(
                    name=f"{policy.name}/{kind}/{num_gpus}x{num_waiting}",
                    problem=policy.name,
                    series=f"{policy.name} {kind}",
                    scale=num_gpus,
                    size={"gpus": num_gpus, "waiting jobs": num_waiting},
                    source="generated (benchmarks/workloads/gang_queue.py): 90 % of the nodes are busy",
                    make=partial(_request, replace(parameters, method=method), num_gpus, num_waiting),
                )


def _parameters(num_gpus: int) -> Mapping[str, GangParameters]:
    """By age alone; by priority with ageing and a quota of a sixth of the GPUs for each of eight queues; and by
    priority with preemption."""
    quotas = {f"q{k}": num_gpus // 6 for k in range(NUM_QUEUES)}
    return {
        "fifo": GangParameters(),
        "quotas": GangParameters(order=QueueOrder.PRIORITY, promotion_after_s=3600.0, quotas=quotas),
        "preemption": GangParameters(order=QueueOrder.PRIORITY, preemption=True),
    }


def _request(parameters: GangParameters, num_gpus: int, num_waiting: int, seed: int) -> PlanRequest:
    return PlanRequest(snapshot=queue_snapshot(num_gpus, num_waiting, seed), parameters=parameters)
