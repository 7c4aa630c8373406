"""Cases of ElasticFlow: more deadlines than can be met, by its algorithms and by the integer program."""

from collections.abc import Iterator
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.deadlines import deadlines_snapshot
from models.allocation.elasticflow.descriptor import ELASTICFLOW, ELASTICFLOW_ILP
from models.allocation.elasticflow.parameters import ElasticFlowMethod, ElasticFlowParameters
from models.plan import PlanRequest

_GPUS = ((ELASTICFLOW, (96, 960, 9_600)), (ELASTICFLOW_ILP, (96, 480)))


def elasticflow_cases() -> Iterator[Case]:
    """All cases of ElasticFlow."""
    for policy, sizes in _GPUS:
        for num_gpus in sizes:
            yield Case(
                name=f"{policy.name}/{num_gpus}",
                problem=policy.name,
                series=policy.name,
                scale=num_gpus,
                size={"gpus": num_gpus},
                source="generated (benchmarks/workloads/deadlines.py): a job for every 4 GPUs, 75 % of them due",
                make=partial(_request, ElasticFlowMethod(policy.variant["method"]), num_gpus),
            )


def _request(method: ElasticFlowMethod, num_gpus: int, seed: int) -> PlanRequest:
    return PlanRequest(snapshot=deadlines_snapshot(num_gpus, seed), parameters=ElasticFlowParameters(method=method))
