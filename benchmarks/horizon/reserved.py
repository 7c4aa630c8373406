"""Arrivals of ITP around a large job that is known two hours ahead, whose nodes are reserved.

Trainings of Suika's Table 1 are submitted as the jobs of a cluster of ITP were, on 128 H100 for eight hours. After
three hours comes a job of 64 GPUs for two hours, which is known from the first hour on. Half of the nodes are kept for
it by a soft reservation: who can be preempted may use them until it is there. Retention: the share of their GPU time
that is used from when it is known until it comes.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.horizon.case import Asked, Case, Variant
from benchmarks.paths import PUBLISHED
from benchmarks.replays import suika_replays
from benchmarks.replays.suika_replays import RESTART_S
from executor.control.events import CalendarChange
from executor.simulation.figures import ReplayResult
from executor.simulation.setup import ReplaySetup
from stowplan.errors import InputError
from topology.calendar import CalendarEntry, EntryKind
from workloads.generators.suika import SUIKA_64, suika_workload
from workloads.readers import read_trace
from workloads.trace import Trace, TraceJob, sorted_trace

_TRACES = ("cluster04", "cluster01")
_NUM_GPUS = 128
_HOUR_S = 3600.0
_HOURS = 8.0
_TOLD_S, _COMES_S, _LASTS_S = 1 * _HOUR_S, 3 * _HOUR_S, 2 * _HOUR_S
# Longer than the job on what it asks for, which some policies do not give it at once.
_KEPT_S = 2 * _LASTS_S
_LOAD = 0.9
LARGE = "pre-training"
# Tensor, pipeline and data degrees of Table 1 make 64 GPUs.
_LARGE_MODEL, _LARGE_GPUS, _LARGE_BATCH = "gpt2-76b", 64, 1024


def reserved_cases(asked: Asked) -> Iterator[Case]:
    """All policies on the same arrivals."""
    variants = (
        Variant(name="gang", policy="gang"),
        Variant(name="sia", policy="sia"),
        Variant(name="horizon", policy=asked.horizon()),
    )
    for name in _TRACES:
        for seed in range(asked.seeds):
            for variant in variants:
                make = partial(_reserved, name, seed, _HOURS if asked.hours is None else asked.hours, variant.policy)
                yield Case(trace=f"itp/{name}", variant=variant, seed=seed, make=make)


def retention(result: ReplayResult, setup: ReplaySetup) -> float | None:
    """See above; None where nothing is reserved."""
    if not setup.calendars:
        return None
    kept = {node for change in setup.calendars for entry in change.entries for node in entry.nodes or ()}
    first_s = min(job.submit_s for job in setup.trace.jobs)
    begin_s, end_s = first_s + _TOLD_S, first_s + _COMES_S
    used_s = sum(
        len(part.gpus) * max(0.0, min(span.end_s, end_s) - max(span.start_s, begin_s))
        for job in result.jobs
        if job.id != LARGE
        for span in job.spans
        for part in span.gpus
        if part.node in kept
    )
    sizes = {node.id: node.num_gpus for node in setup.cluster.nodes}
    return used_s / (sum(sizes[node] for node in kept) * (end_s - begin_s))


def _workload(name: str, seed: int, hours: float) -> Trace:
    path = PUBLISHED / "traces" / "itp" / f"{name}.csv"
    if not path.exists():
        raise InputError(f"there is no trace of ITP at {path}")
    setting = replace(SUIKA_64, num_gpus=_NUM_GPUS, window_s=hours * _HOUR_S, load=_LOAD)
    short = read_trace(path).where(lambda job: (job.duration_s or 0.0) <= setting.window_s)
    made = suika_workload(short, setting, seed)
    first_s = min(job.submit_s for job in made.jobs)
    large = TraceJob(
        id=LARGE,
        submit_s=first_s + _COMES_S,
        num_gpus=_LARGE_GPUS,
        duration_s=_LASTS_S,
        application=_LARGE_MODEL,
        global_batch=_LARGE_BATCH,
    )
    return sorted_trace(made.name, [*made.jobs, large])


def _reserved(name: str, seed: int, hours: float, policy: str) -> ReplaySetup:
    setup = suika_replays.setup_of(_workload(name, seed, hours), _NUM_GPUS, policy, 0.0, RESTART_S, seed)
    first_s = min(job.submit_s for job in setup.trace.jobs)
    num_nodes = _LARGE_GPUS // setup.cluster.nodes[0].num_gpus
    nodes = tuple(node.id for node in setup.cluster.nodes[:num_nodes])
    from_s = first_s + _COMES_S
    entry = CalendarEntry(
        name=LARGE, kind=EntryKind.RESERVATION, from_s=from_s, until_s=from_s + _KEPT_S, nodes=nodes, hard=False
    )
    known = CalendarChange(at_s=first_s + _TOLD_S, entries=(entry,))
    return replace(setup, calendars=(known,), reserved_for={LARGE: LARGE})
