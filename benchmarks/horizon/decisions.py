"""Decisions of `horizon` by size: what they take beside the targets of issue 19, and how that grows.

    python -m benchmarks horizon-decisions
    python -m benchmarks horizon-decisions --horizon '{"restart_price":2}' --no-replay --seeds 5
    python -m benchmarks horizon-decisions --no-replay --no-flat --result horizon_decisions_tiered

replay     decisions of a replay of Helios 1 on 64 GPUs, by the rules of `sia-replays`: median and 95th percentile
generated  busy clusters of `workloads.generators`, seven of ten jobs run: the same over seeds of the least of the runs
           of each
tiered     the same clusters with leaves of 8 nodes and pods of 64, which have a quarter of the bandwidth between them
           and half of it within: with placement classes
following  eight decisions on such clusters without tiers, before each of which a hundredth of the jobs end and the
           others run where the plan has them: from the prices of the one before, and from none (`anew`), in turns

CPU seconds of whole decisions, from validation to the check, in one process; `growth` is that of the solve over that of
half the size. Gaps are the widest of the seeds.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated

import numpy as np
import typer

from benchmarks.horizon.case import Variant, of_sia, policy
from benchmarks.paths import PUBLISHED
from benchmarks.rows import Row, show, write
from benchmarks.suite.cases.horizon import horizon_request
from benchmarks.workloads.generators import SiaSize
from executor.simulation.replay import Replay
from models.allocation.horizon.descriptor import HORIZON
from models.allocation.horizon.parameters import HorizonParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.options import SolveOptions
from topology.cluster import Tier

_TRACE = "helios/workload-1"
# GPUs, jobs, target in seconds.
_SIZES: tuple[tuple[int, int, float | None], ...] = (
    (64, 20, 0.02),
    (512, 140, None),
    (1_024, 280, None),
    (2_048, 560, 0.5),
    (10_240, 3_000, 5.0),
)
_TIERED: tuple[tuple[int, int, float | None], ...] = ((2_048, 560, 0.5), (10_240, 3_000, 5.0))
_NODES_OF_LEAF, _NODES_OF_POD = 8, 64
_TWICE = 2.0
_DECISIONS = 8
_OPTIONS = SolveOptions(solver=HORIZON.solver, relative_gap=HORIZON.relative_gap)


def main(
    horizon: Annotated[str, typer.Option(help="Parameters of horizon, as JSON.")] = "{}",
    seeds: Annotated[int, typer.Option(min=1, help="Of generated clusters, from 0 on.")] = 3,
    runs: Annotated[int, typer.Option(min=1, help="Of each.")] = 3,
    replay: Annotated[bool, typer.Option(help="Replay a trace on 64 GPUs, too.")] = True,
    flat: Annotated[bool, typer.Option(help="Clusters without tiers, too.")] = True,
    result: Annotated[str, typer.Option(help="Name of the file of results.")] = "horizon_decisions",
) -> None:
    """Measure decisions of horizon by size: CPU by phase beside the targets, and how it grows."""
    given = json.loads(horizon)
    rows: list[Row] = []
    if replay and PUBLISHED.is_dir():
        rows.append(_replayed(given))
        print(rows[-1], flush=True)
    parameters = HorizonParameters(**given)
    generated = _generated(parameters, seeds, runs) if flat else iter(())
    for row in chain(generated, _tiered(parameters, seeds, runs), _following(parameters, seeds)):
        rows.append(row)
        print(row, flush=True)
    protocol = f"parameters {horizon}; {seeds} seeds, {runs} runs of each; CPU seconds of one process"
    show(protocol, rows)
    print(write(result, protocol, rows))


def _replayed(given: dict[str, object]) -> Row:
    """Decisions of one replay."""
    outcomes: list[PlanOutcome] = []

    def planned(request: PlanRequest) -> PlanOutcome:
        outcomes.append(plan(request))
        return outcomes[-1]

    variant = Variant(name="horizon", policy=policy(HORIZON.name, given), round_s=None)
    Replay(of_sia(_TRACE, variant), planner=planned).run()
    jobs = [len(item.plan.allocations) + len(item.plan.unplaced) for item in outcomes if item.plan is not None]
    return _row("replay", 64, int(np.median(jobs)), outcomes, 0.02, None)


def _generated(parameters: HorizonParameters, seeds: int, runs: int) -> Iterator[Row]:
    """Sizes from small to large."""
    before: tuple[int, float] | None = None
    for num_gpus, num_jobs, target_s in _SIZES:
        best = _best((_request(num_gpus, num_jobs, seed, parameters) for seed in range(seeds)), runs)
        solve_s = float(np.median([outcome.times.phase_cpu_s["solve"] for outcome in best]))
        is_twice = before is not None and num_jobs == _TWICE * before[0]
        yield _row(
            "generated", num_gpus, num_jobs, best, target_s, solve_s / before[1] if before and is_twice else None
        )
        before = num_jobs, solve_s


def _tiered(parameters: HorizonParameters, seeds: int, runs: int) -> Iterator[Row]:
    """Sizes with tiers."""
    for num_gpus, num_jobs, target_s in _TIERED:
        requests = (below_leaves(_request(num_gpus, num_jobs, seed, parameters)) for seed in range(seeds))
        yield _row("tiered", num_gpus, num_jobs, _best(requests, runs), target_s, None)


def _following(parameters: HorizonParameters, seeds: int) -> Iterator[Row]:
    """Decisions that follow one another, from prices and anew."""
    for num_gpus, num_jobs, target_s in _TIERED:
        found: Mapping[str, list[PlanOutcome]] = {"following": [], "anew": []}
        for seed in range(seeds):
            request, rng = _request(num_gpus, num_jobs, seed, parameters), np.random.default_rng(seed)
            last = plan(request)
            for number in range(_DECISIONS):
                request = _a_while_later(request, last, rng)
                both = {"following": parameters.started_from(last.prices), "anew": parameters}
                for name in list(both)[:: 1 if number % 2 else -1]:
                    found[name].append(plan(replace(request, parameters=both[name])))
                last = found["following"][-1]
        for name, outcomes in found.items():
            yield _row(name, num_gpus, num_jobs, outcomes, target_s, None)


def _a_while_later(request: PlanRequest, last: PlanOutcome, rng: np.random.Generator) -> PlanRequest:
    """A hundredth of the jobs have ended; the others run where they were planned."""
    given = {} if last.plan is None else {item.job_id: item.gpus for item in last.plan.allocations}
    jobs = request.snapshot.jobs
    ended = set(rng.choice(len(jobs), max(1, len(jobs) // 100), replace=False).tolist())
    left = tuple(replace(job, current=given.get(job.id)) for k, job in enumerate(jobs) if k not in ended)
    return replace(request, snapshot=replace(request.snapshot, jobs=left))


def _request(num_gpus: int, num_jobs: int, seed: int, parameters: HorizonParameters) -> PlanRequest:
    size = SiaSize(num_gpus=num_gpus, num_jobs=num_jobs, num_types=3, running=0.7)
    return replace(horizon_request(size, seed), parameters=parameters, options=_OPTIONS)


def below_leaves(request: PlanRequest) -> PlanRequest:
    """The request with the nodes of its cluster below leaves and pods, in their order."""
    cluster = request.snapshot.cluster
    nodes = tuple(
        replace(node, path=(f"pod{k // _NODES_OF_POD}", f"leaf{k // _NODES_OF_LEAF}"))
        for k, node in enumerate(cluster.nodes)
    )
    tiers = (Tier(name="pod", bandwidth_fraction=0.5), Tier(name="leaf", bandwidth_fraction=1.0))
    tiered = replace(cluster, nodes=nodes, tiers=tiers, core_bandwidth_fraction=0.25)
    return replace(request, snapshot=replace(request.snapshot, cluster=tiered))


def _best(requests: Iterable[PlanRequest], runs: int) -> Sequence[PlanOutcome]:
    """Of each request the outcome of the run that took least."""
    return [min((plan(request) for _ in range(runs)), key=lambda outcome: outcome.times.cpu_s) for request in requests]


def _row(
    source: str,
    num_gpus: int,
    num_jobs: int,
    outcomes: Sequence[PlanOutcome],
    target_s: float | None,
    growth: float | None,
) -> Row:
    cpu_s = [outcome.times.cpu_s for outcome in outcomes]
    phases = outcomes[0].times.phase_cpu_s
    median_s = float(np.median(cpu_s))
    return {
        "source": source,
        "gpus": num_gpus,
        "jobs": num_jobs,
        "decisions": len(outcomes),
        "cpu_s": round(median_s, 4),
        "p95_s": round(float(np.percentile(cpu_s, 95)), 4),
        "target_s": target_s,
        "met": None if target_s is None else median_s <= target_s,
        **{
            f"{name}_s": round(float(np.median([item.times.phase_cpu_s.get(name, 0.0) for item in outcomes])), 4)
            for name in phases
        },
        "growth": None if growth is None else round(growth, 2),
        "gap": float(f"{max(outcome.relative_gap or 0.0 for outcome in outcomes):.2g}"),
        "unproven": sum(outcome.limit is not None for outcome in outcomes),
    }
