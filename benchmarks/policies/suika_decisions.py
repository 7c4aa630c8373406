"""Suika's decisions on busy clusters: how long they take, and how far they are from the integer program.

    python -m benchmarks suika-decisions --nodes 8 --nodes 128 --events 100 --seeds 2

Clusters, jobs and events are those of `workloads.suika_events`. Every event is planned as a request is: validated,
decided by Algorithm 2, bounded by the integer program, checked; CPU seconds of this process, one thread.
- decision: Algorithm 2, its plan and the check. Target on 1,024 GPUs: P50 0.1 s, P90 0.4 s, P99 2 s; the paper's C++ on
  its own machine takes 0.54 s, 4.01 s, 21.58 s (section 5.5, Fig. 16b).
- whole: with the bound, for which all jobs are asked what they could have, and the integer program is solved to gap 0
  within 10 s.
- cold: decisions of a process that forgets all plans before every event, on the first events of seed 0.
- restarted: the same, of a process that finds on disk what was answered in those events (`models.remembered`). Target
  on 1,024 GPUs: 1 s.
The first event, which fills the cluster, is not counted, but stands apart: `first_s`, cold and restarted.

Gaps. gap: (bound - objective) / objective, the number that answers carry; the objective counts every job that runs with
its GPUs. gain gap: (bound - objective) / (bound - objective without scale-outs), of the events with something to gain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from benchmarks.workloads.suika_events import EventStream, rack_cluster
from models.allocation.suika.agent import forget
from models.allocation.suika.formulation import formulate_suika
from models.allocation.suika.parameters import SuikaParameters
from models.clock import PhaseClock
from models.plan import Plan
from models.validation import request_issues
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.child_environment import CACHE_VARIABLE
from stowplan.errors import raise_for_errors
from stowplan.variables import variable

_ROUNDING = 1e-6
_QUANTILES = (50, 90, 99)
# The solver that the service asks.
_OPTIONS = SolveOptions(solver="auto", time_limit_s=10.0, relative_gap=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """One decision. `gain_gap` None: there was nothing to gain; `proven`: the integer program was solved."""

    decision_s: float
    whole_s: float
    running: int
    waiting: int
    rounds: int
    num_columns: int
    gap: float
    gain_gap: float | None
    proven: bool


_NODES = [8, 128]
_LOADS = [0.7, 0.9, 1.1]


def main(
    nodes: Annotated[list[int], typer.Option(help="Of the cluster; may be repeated.")] = _NODES,
    loads: Annotated[list[float], typer.Option(help="May be repeated.")] = _LOADS,
    events: Annotated[int, typer.Option(help="Per seed and load.")] = 100,
    seeds: Annotated[int, typer.Option(help="Of the events, from 0 on.")] = 2,
    cold_events: Annotated[int, typer.Option(help="Per load.")] = 30,
) -> None:
    """Measure Suika's decisions on busy clusters and their gaps to the integer program."""
    rows: list[Row] = []
    for num_nodes in nodes:
        for load in loads:
            # Empty: what is remembered is in the process alone.
            with variable(CACHE_VARIABLE, ""):
                warm = [list(_events(num_nodes, load, seed, events, is_cold=False)) for seed in range(seeds)]
                cold = list(_events(num_nodes, load, 0, cold_events, is_cold=True))
            with TemporaryDirectory() as folder, variable(CACHE_VARIABLE, folder):
                list(_events(num_nodes, load, 0, cold_events, is_cold=False))
                restarted = list(_events(num_nodes, load, 0, cold_events, is_cold=True))
            rows.append(_row(num_nodes, load, [event for of_seed in warm for event in of_seed[1:]], cold, restarted))
            print(rows[-1], flush=True)
    protocol = (
        f"{events} events for each of seeds 0 to {seeds - 1}; jobs of Table 1, "
        "S : M : L : XL = 12 : 4 : 4 : 1 (no XL below 512 GPUs); CPU seconds of one process, one thread; "
        f"cold: {cold_events} events of seed 0"
    )
    show(protocol, rows)
    print(write("suika_decisions", protocol, rows))


def _events(num_nodes: int, load: float, seed: int, count: int, *, is_cold: bool) -> Iterator[_Event]:
    """The event that fills the cluster, and `count` more."""
    forget()
    stream = EventStream(cluster=rack_cluster(num_nodes), load=load, seed=seed)
    for snapshot in islice(stream.snapshots(), count + 1):
        if is_cold:
            forget()
        event, plan = _planned(snapshot)
        stream.carry_out(plan)
        yield event


def _planned(snapshot: Snapshot) -> tuple[_Event, Plan]:
    """Plan as `models.planning` does, with the formulation in hand."""
    parameters = SuikaParameters()
    clock = PhaseClock()
    with clock.phase("validate"):
        raise_for_errors(request_issues(snapshot, parameters), "snapshot")
    formulation = formulate_suika(snapshot, parameters, clock)
    with clock.phase("solve"):
        result = formulation.solve(_OPTIONS, SolveMonitor())
    if result.incumbent is None or result.objective is None or result.bound is None:
        raise RuntimeError(f"no plan: {result.message}")
    plan = formulation.extract(result.incumbent, clock)
    with clock.phase("verify"):
        found = formulation.violations(plan, result.objective)
    if found:
        raise RuntimeError(f"the plan is not legal: {found[0]}")
    times = clock.times()
    gain = result.bound - formulation.program.constant
    event = _Event(
        decision_s=times.cpu_s - times.phase_cpu_s["build"] - times.phase_cpu_s["solve"],
        whole_s=times.cpu_s,
        running=len(plan.allocations),
        waiting=len(plan.unplaced),
        rounds=formulation.decision.scale_outs.num_rounds,
        num_columns=formulation.problem.num_columns,
        gap=(result.bound - result.objective) / result.objective if result.objective else 0.0,
        gain_gap=(result.bound - result.objective) / gain if gain > _ROUNDING else None,
        proven="(optimal)" in result.message,
    )
    return event, plan


def _row(
    num_nodes: int, load: float, warm: Sequence[_Event], cold: Sequence[_Event], restarted: Sequence[_Event]
) -> Row:
    gain_gaps = [event.gain_gap for event in warm if event.gain_gap is not None]
    return {
        "gpus": 8 * num_nodes,
        "load": load,
        "events": len(warm),
        "running": _quantiles([event.running for event in warm], (50,))[0],
        "waiting": _quantiles([event.waiting for event in warm], (50,))[0],
        "scale_outs": _quantiles([event.rounds for event in warm]),
        "columns": _quantiles([event.num_columns for event in warm]),
        "decision_s": _quantiles([event.decision_s for event in warm]),
        "whole_s": _quantiles([event.whole_s for event in warm]),
        "cold_s": _quantiles([event.decision_s for event in cold[1:]]),
        "restarted_s": _quantiles([event.decision_s for event in restarted[1:]]),
        "first_s": [float(f"{events[0].decision_s:.4g}") for events in (cold, restarted)],
        "proven": sum(event.proven for event in warm),
        "gap": [*_quantiles([event.gap for event in warm]), max(event.gap for event in warm)],
        "gain_events": len(gain_gaps),
        "gain_gap_0": sum(gap <= _ROUNDING for gap in gain_gaps),
        "gain_gap": [*_quantiles(gain_gaps), max(gain_gaps, default=0.0)],
    }


def _quantiles(values: Sequence[float], quantiles: Sequence[int] = _QUANTILES) -> list[float]:
    """Quantiles to four digits."""
    return [float(f"{value:.4g}") for value in np.percentile(values or [0.0], quantiles)]
