"""Arena's heuristic next to the integer program on the same events: `python -m benchmarks arena-events`.

Philly: moments of the published trace on the 1,280-GPU cluster of Arena's simulation, with the jobs that would still be
active had each run as requested since its submission. Those that were submitted more than an hour before are planned
first, by `arena` on the empty cluster, and run; the event is the rest and what still waits, a restart costs 300 s. Both
policies get the same snapshot. CPU and wall time are medians of the runs, of the whole road from snapshot to checked
plan.

Generated: clusters of four GPU types with jobs of random power-law speed-ups, seeds 0, 1, ...; half of the jobs come
first and run where `arena` put them. The gap is that of the heuristic to the bound of the integer program, solved to
1e-6, in percent of the bound; for deadlines it is, but for a rest, the share of the points that are missed.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, median, show, write
from benchmarks.workloads.published.arena import ROUND_S, active_jobs, data_are_there, simulated_cluster
from models.allocation.arena.parameters import ArenaMethod, ArenaObjective, ArenaParameters
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Snapshot
from solver.options import SolveOptions
from topology.cluster import Cluster

# A burst of submissions, the round of the published comparison, and the most active jobs.
_ROUNDS = (670, 1673, 1926)
_FIRST_EVENT_S = 3600.0
_OBJECTIVES: Mapping[str, ArenaParameters] = {
    "throughput, normalised": ArenaParameters(),
    "throughput, samples/s": ArenaParameters(normalise=False),
    "deadlines": ArenaParameters(objective=ArenaObjective.DEADLINES),
    "finish-time fairness": ArenaParameters(objective=ArenaObjective.FINISH_TIME_FAIRNESS),
}
# Nodes and speed of each type in a generated cluster, whose nodes are those of the published one.
_GENERATED = {"a100": (8, 1.0), "v100": (2, 0.5), "a40": (16, 0.45), "a10": (16, 0.35)}
_LOADS = (0.5, 1.0, 2.0)


def main(
    runs: Annotated[int, typer.Option(help="Per event and policy; 0 leaves the trace out.")] = 5,
    instances: Annotated[int, typer.Option(help="Generated, per objective; 0 leaves them out.")] = 75,
    solver: Annotated[str, typer.Option(help="Of the integer program.")] = "auto",
) -> None:
    """Compare Arena's heuristic with the integer program on the same events."""
    options = SolveOptions(solver=solver)
    if runs and data_are_there():
        protocol = f"solver {options.solver}, gap 1e-4, 1 thread, medians of {runs} runs"
        rows = [row for number in _ROUNDS for row in _event_rows(number, runs, options)]
        show(f"Busy moments of the Philly trace; {protocol}", rows)
        print(write("arena_events", protocol, rows))
    num_instances = instances // len(_LOADS)
    if num_instances:
        protocol = f"{num_instances} instances per row, seeds from 0, integer program solved to 1e-6, gaps in percent"
        rows = [_gap_row(*named, load, num_instances) for named in _OBJECTIVES.items() for load in _LOADS]
        show(f"Gap of Algorithm 1 to the optimum; {protocol}", rows)
        print(write("arena_gaps", protocol, rows))


def _event_rows(round_number: int, num_runs: int, options: SolveOptions) -> Iterator[Row]:
    snapshot = _second_event(simulated_cluster(), active_jobs("philly", round_number * ROUND_S), _is_early)
    for name, parameters in _OBJECTIVES.items():
        for method in ArenaMethod:
            request = PlanRequest(snapshot=snapshot, parameters=replace(parameters, method=method), options=options)
            outcomes = [plan(request) for _ in range(num_runs)]
            yield _event_row(round_number, name, request, outcomes)


def _event_row(round_number: int, name: str, request: PlanRequest, outcomes: Sequence[PlanOutcome]) -> Row:
    outcome = outcomes[0]
    allocations = () if outcome.plan is None else outcome.plan.allocations
    return {
        "round": round_number,
        "objective of": name,
        "policy": request.policy,
        "jobs": len(request.snapshot.jobs),
        "running before": sum(job.current is not None for job in request.snapshot.jobs),
        "running after": len(allocations),
        "changed": sum(item.change not in ("kept", "started") for item in allocations),
        "objective": outcome.objective,
        "bound": outcome.bound,
        "gap %": None if outcome.relative_gap is None else 100 * outcome.relative_gap,
        "cpu_s": median([outcome.times.cpu_s for outcome in outcomes]),
        "wall_s": median([sum(outcome.times.wall_s.values()) for outcome in outcomes]),
        "solve cpu_s": median([outcome.times.phase_cpu_s["solve"] for outcome in outcomes]),
        "columns": outcome.statistics.num_columns,
    }


def _is_early(job: Job) -> bool:
    return job.age_s > _FIRST_EVENT_S


def _second_event(cluster: Cluster, jobs: Sequence[Job], first: Callable[[Job], bool]) -> Snapshot:
    """The snapshot in which the jobs that came first run where `arena` put them on the empty cluster."""
    early = tuple(replace(job, age_s=max(0.0, job.age_s - _FIRST_EVENT_S)) for job in jobs if first(job))
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=cluster, jobs=early), parameters=ArenaParameters()))
    where: dict[str, tuple[NodeGpus, ...]] = {}
    if outcome.plan is not None:
        where = {item.job_id: item.gpus for item in outcome.plan.allocations}
    return Snapshot(cluster=cluster, jobs=tuple(replace(job, current=where.get(job.id)) for job in jobs))


def _gap_row(name: str, parameters: ArenaParameters, load: float, num_instances: int) -> Row:
    gaps = np.array([100 * _gap(parameters, load, seed) for seed in range(num_instances)])
    return {
        "objective of": name,
        "load": load,
        "instances": num_instances,
        "optimal": int((gaps <= 1e-4).sum()),
        "mean": float(gaps.mean()),
        **{f"p{q}": float(np.percentile(gaps, q)) for q in (50, 90, 99)},
        "largest": float(gaps.max()),
    }


def _gap(parameters: ArenaParameters, load: float, seed: int) -> float:
    """Distance of the heuristic to the bound, as a share of the bound."""
    request = PlanRequest(
        snapshot=generated_event(load, seed), parameters=parameters, options=SolveOptions(relative_gap=1e-6)
    )
    outcome = plan(request)
    if outcome.objective is None or outcome.bound is None:
        raise RuntimeError(f"seed {seed} has no plan or no bound: {outcome.certificate}")
    return abs(outcome.objective - outcome.bound) / abs(outcome.bound)


def generated_event(load: float, seed: int) -> Snapshot:
    """Jobs that together request `load` times the GPUs of a cluster of 128 GPUs; the first half runs."""
    rng = random.Random(seed)  # noqa: S311 - reproducible instances, no secret
    published = simulated_cluster()
    nodes = [
        node
        for name, (num_nodes, _) in _GENERATED.items()
        for node in [node for node in published.nodes if node.gpu_type == name][:num_nodes]
    ]
    cluster = replace(published, nodes=tuple(nodes))
    jobs: list[Job] = []
    requested = 0
    while requested < load * cluster.num_gpus:
        num_gpus = rng.choices((1, 2, 4, 8, 16), weights=(5, 15, 37, 33, 10))[0]
        requested += num_gpus
        jobs.append(_generated_job(rng, len(jobs), num_gpus))
    half = {job.id for job in jobs[: len(jobs) // 2]}
    return _second_event(cluster, jobs, lambda job: job.id in half)


def _generated_job(rng: random.Random, number: int, num_gpus: int) -> Job:
    speed, exponent, smallest = rng.uniform(1, 50), rng.uniform(0.5, 1.0), rng.choice((1, 1, 2, 4))
    entries = tuple(
        TableEntry(gpu_type=name, num_gpus=n, value=speed * factor * rng.uniform(0.8, 1.2) * n**exponent)
        for name, (_, factor) in _GENERATED.items()
        for n in (1, 2, 4, 8, 16, 32)
        if n >= smallest
    )
    return Job(
        id=f"j{number:03}",
        min_gpus=max(1, num_gpus // 2),
        max_gpus=2 * num_gpus,
        performance=ThroughputTable(entries=entries, batch_size=256),
        age_s=rng.uniform(0.0, 7200.0),
        restart_cost_s=rng.uniform(60.0, 300.0),
        priority=rng.randint(1, 3),
        remaining_iterations=rng.uniform(50, 5000),
        deadline_s=rng.uniform(1e3, 1e5),
    )
