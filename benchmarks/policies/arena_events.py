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

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, median, show, write
from benchmarks.workloads.arena_events import OBJECTIVES, PHILLY_ROUNDS, generated_event, philly_event
from benchmarks.workloads.published.arena import data_are_there
from models.allocation.arena.parameters import ArenaMethod, ArenaParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.options import SolveOptions

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
        rows = [row for number in PHILLY_ROUNDS for row in _event_rows(number, runs, options)]
        show(f"Busy moments of the Philly trace; {protocol}", rows)
        print(write("arena_events", protocol, rows))
    num_instances = instances // len(_LOADS)
    if num_instances:
        protocol = f"{num_instances} instances per row, seeds from 0, integer program solved to 1e-6, gaps in percent"
        rows = [_gap_row(*named, load, num_instances) for named in OBJECTIVES.items() for load in _LOADS]
        show(f"Gap of Algorithm 1 to the optimum; {protocol}", rows)
        print(write("arena_gaps", protocol, rows))


def _event_rows(round_number: int, num_runs: int, options: SolveOptions) -> Iterator[Row]:
    snapshot = philly_event(round_number)
    for name, parameters in OBJECTIVES.items():
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
