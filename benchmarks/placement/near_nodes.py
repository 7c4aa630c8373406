"""What jobs of several nodes gain by waiting for closer ones: `python -m benchmarks near-nodes`.

The jobs and the cluster of `slurm-connector` under a virtual clock: what the connection decides, by gang (without
Arnold, who orders ranks), looking every so often; a job begins half a second after that, as Slurm takes its turn. That
it runs no longer than its time limit is all that is known of it. `nearness` is what gang may put a promise off for
closer nodes, `near wait` for how long the connection lets a job wait for them. On average over the seeds.
"""

import inspect
from collections.abc import Sequence
from typing import Annotated

import typer

from benchmarks.placement.slurm_cluster import LARGER
from benchmarks.placement.slurm_connector import (
    LEAF,
    LIMIT_S,
    NUM_GPUS,
    PACE_S,
    POD,
    Ran,
    SizedJob,
    drawn_jobs,
    figures,
)
from benchmarks.rows import Row, show, write
from executor.connected.nearness import NearNodesFirst
from models.allocation.gang.parameters import GangParameters
from models.plan import Change, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Snapshot
from topology.cluster import Cluster, Node, Tier
from topology.gpu_catalogue import find_product, gpu_type_of

_TURN_S = 0.5
_WAYS = ((0.0, 0.0), (0.0, 2.0), (30.0, 0.0), (30.0, 2.0), (30.0, 4.0))
_CLUSTER = Cluster(
    gpu_types=(gpu_type_of(find_product("h100"), "bf16"),),
    nodes=tuple(
        Node(id=name, gpu_type="h100", num_gpus=NUM_GPUS, path=("spine", POD[LEAF[name]], LEAF[name]))
        for name in LARGER.nodes
    ),
    tiers=(Tier(name="spine"), Tier(name="pod"), Tier(name="leaf")),
)


def main(
    seeds: Annotated[int, typer.Option(min=1, max=200, help="As many rounds of other jobs.")] = 20,
    jobs: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 60,
    shortest: Annotated[float, typer.Option(min=1, max=60, help="Seconds of the shortest job.")] = 5.0,
    interval: Annotated[list[float] | None, typer.Option(min=0.1, help="Seconds between looks.")] = None,
    name: Annotated[str, typer.Option(help="Name of the result.")] = "near_nodes",
) -> None:
    """Let jobs wait for closer nodes, on a virtual clock: spread, waiting, makespan."""
    rows: list[Row] = []
    for interval_s in interval or (1.0, 0.5):
        for nearness_s, near_wait_s in _WAYS:
            found = [
                figures(replayed(drawn_jobs(seed, jobs, shortest), interval_s, nearness_s, near_wait_s))
                for seed in range(seeds)
            ]
            told = {"interval": interval_s, "nearness": nearness_s, "near wait": near_wait_s}
            rows.append({**told, **{key: round(sum(one[key] for one in found) / seeds, 3) for key in found[0]}})
    show(f"{jobs} jobs, {seeds} seeds", rows)
    write(name, inspect.cleandoc(__doc__ or ""), rows)


def replayed(jobs: Sequence[SizedJob], interval_s: float, nearness_s: float, near_wait_s: float) -> list[Ran]:
    """What becomes of the jobs, one of which comes every `PACE_S`."""
    now_s = 0.0
    planner = NearNodesFirst(plan, near_wait_s, lambda: now_s)
    parameters = GangParameters(nearness_s=nearness_s)
    waiting, running, ran = list(range(len(jobs))), dict[int, Ran](), list[Ran]()
    places: dict[int, tuple[NodeGpus, ...]] = {}
    while waiting or running:
        ran += [running.pop(k) for k in list(running) if running[k].ended_s <= now_s]
        come = [k for k in waiting if k * PACE_S <= now_s]
        held = [_running(k, one, places[k], now_s) for k, one in running.items()]
        snapshot = Snapshot(cluster=_CLUSTER, jobs=(*held, *(_waiting(k, jobs[k]) for k in come)))
        outcome = planner(PlanRequest(snapshot=snapshot, parameters=parameters)) if come else None
        for item in () if outcome is None or outcome.plan is None else outcome.plan.allocations:
            if item.change is Change.STARTED:
                k, began_s = int(item.job_id), now_s + _TURN_S
                waiting.remove(k)
                places[k] = item.gpus
                running[k] = Ran(
                    job=jobs[k],
                    submitted_s=k * PACE_S,
                    began_s=began_s,
                    ended_s=began_s + jobs[k].seconds,
                    nodes=tuple(part.node for part in item.gpus),
                )
        now_s += interval_s
    return sorted(ran, key=lambda one: one.began_s)


def _waiting(k: int, job: SizedJob) -> Job:
    return Job(id=str(k), min_gpus=job.gpus, remaining_s=LIMIT_S)


def _running(k: int, one: Ran, places: tuple[NodeGpus, ...], now_s: float) -> Job:
    left_s = LIMIT_S - max(0.0, now_s - one.began_s)
    return Job(id=str(k), min_gpus=one.job.gpus, current=places, remaining_s=left_s)
