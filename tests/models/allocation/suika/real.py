"""Small clusters of H100 with models of the catalogue."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.workloads.suika_events import rack_cluster
from models.allocation.suika.formulation import SuikaFormulation, formulate_suika
from models.allocation.suika.parameters import SuikaParameters
from models.catalogue import find_model
from models.clock import PhaseClock
from models.plan import Plan
from models.transformer import Transformer
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult

DEFAULTS = SuikaParameters()
OPTIONS = SolveOptions(relative_gap=0.0, time_limit_s=20.0)


def model(name: str = "gpt2-350m", batch: int = 64) -> Transformer:
    found = find_model(name, global_batch=batch)
    assert isinstance(found, Transformer)
    return found


def job(name: str, pp: int = 1, dp: int = 1, tp: int = 1, **changes: object) -> Job:
    """A job that waits, with its degrees."""
    made = Job(id=name, min_gpus=pp * dp * tp, parallelism=Parallelism(pp=pp, dp=dp, tp=tp), transformer=model())
    return replace(made, **changes)  # type: ignore[arg-type]


def cluster_of(*jobs: Job, num_nodes: int = 2) -> Snapshot:
    return Snapshot(cluster=rack_cluster(num_nodes), jobs=jobs)


def gpus(node: str, *indices: int) -> NodeGpus:
    return NodeGpus(node=node, gpus=indices)


def planned(snapshot: Snapshot, parameters: SuikaParameters = DEFAULTS) -> tuple[SuikaFormulation, SolveResult, Plan]:
    """Formulate, solve, extract; the check finds nothing."""
    formulation = formulate_suika(snapshot, parameters, PhaseClock())
    result = formulation.solve(OPTIONS, SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return formulation, result, plan


def posted_back(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The next snapshot, when the plan has been carried out."""
    carried_out = {allocation.job_id: allocation for allocation in plan.allocations}
    jobs: Sequence[Job] = [
        replace(
            item,
            current=carried_out[item.id].gpus,
            parallel_plan=carried_out[item.id].parallel_plan,
            expansions=carried_out[item.id].expansions,
        )
        if item.id in carried_out
        else item
        for item in snapshot.jobs
    ]
    return Snapshot(cluster=snapshot.cluster, jobs=tuple(jobs))
