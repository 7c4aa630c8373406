"""What `horizon` is replayed beside, part by part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from benchmarks.horizon.case import SIA_BY_TIME, Asked, Case, Variant, at_events, of_sia, policy
from benchmarks.horizon.leaves import leaf_cases
from benchmarks.horizon.reserved import reserved_cases
from benchmarks.replays import arena_replays, suika_replays
from benchmarks.replays.suika_replays import RESTART_S
from benchmarks.workloads.published.arena import ROUND_S
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import Profiling
from workloads.trace import Trace

_HELIOS = tuple(f"helios/workload-{k}" for k in range(1, 6))
SIA_TRACES = (*_HELIOS, *(f"philly/workload-{k}" for k in range(1, 5)), "newtrace/workload-1", "newtrace/workload-2")
_LOADS = (0.5, 0.75, 1.0, 1.5, 2.0)
_BY_TIME = {"objective": "completion_time"}
_SIA_AT_EVENTS = replace(SIA_BY_TIME, name="sia, completion time, at events", round_s=None)
_NO_BACKFILL = Variant(name="gang, no backfill", policy=policy("gang", {"backfill": "none"}))
_SIA, _GANG = (Variant(name=name, policy=name) for name in ("sia", "gang"))
# Rounds of the released simulator; the trace is of days.
_ARENA = {"interval_s": ROUND_S}

Cases = Callable[[Asked], Iterator[Case]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """first: the variant that others are compared with."""

    title: str
    first: str
    cases: Cases


def _sia(asked: Asked) -> Iterator[Case]:
    variants = (
        Variant(name="sia, told as released", policy="sia", told=Profiling.RELEASED, shared=False),
        _SIA,
        SIA_BY_TIME,
        _SIA_AT_EVENTS,
        Variant(name="horizon, every 60 s", policy=asked.horizon()),
        at_events(asked),
    )
    for trace, variant, seed in product(SIA_TRACES, variants, range(asked.seeds)):
        yield Case(trace=trace, variant=variant, seed=seed, make=partial(of_sia, trace, variant, seed))


def _load(asked: Asked) -> Iterator[Case]:
    trace = _HELIOS[0]
    variants = (SIA_BY_TIME, _SIA_AT_EVENTS, _SIA, Variant(name="gavel", policy="gavel"), _GANG, at_events(asked))
    for load in _LOADS:
        for variant in variants:
            make = partial(loaded, trace, variant, load=load)
            yield Case(trace=trace, variant=variant, load=load, make=make)


def _ablation(asked: Asked) -> Iterator[Case]:
    """Plans of jobs that come with their measurements are none of its choices here, nor are placement classes, since
    all nodes are alike; those are in the part `leaves`."""
    whole = at_events(asked)
    variants = (
        whole,
        replace(whole, name="every 60 s", round_s=60.0),
        replace(whole, name="one interval", policy=asked.horizon(num_intervals=1, horizon_s=None)),
        replace(whole, name="two intervals", policy=asked.horizon(num_intervals=2)),
        replace(whole, name="to the end of all jobs", policy=asked.horizon(horizon_s=None, backlog_efficiency=None)),
        replace(whole, name="changes for nothing", policy=asked.horizon(restart_price=0)),
        replace(whole, name="goodputs ±10 %", noise=0.1),
        replace(whole, name="goodputs ±20 %", noise=0.2),
        replace(whole, name="work x or ÷ 2", misjudged=2.0),
    )
    for trace in _HELIOS:
        for variant in variants:
            for seed in range(asked.seeds if variant.is_random else 1):
                make = partial(loaded, trace, variant, seed)
                yield Case(trace=trace, variant=variant, seed=seed, make=make)


def _objectives(asked: Asked) -> Iterator[Case]:
    """What else may be asked for; jobs come in these traces as often as is said."""
    whole = at_events(asked)
    variants = (
        whole,
        *(
            replace(whole, name=f"{name} {value:g}", policy=asked.horizon(**{name: value}))
            for name, value in (("tail", 0.3), ("fairness", 1.0), ("throughput", 1.0), ("arrivals_per_h", 20.0))
        ),
    )
    for trace in _HELIOS:
        for variant in variants:
            yield Case(trace=trace, variant=variant, make=partial(loaded, trace, variant))


def _arena(asked: Asked) -> Iterator[Case]:
    variants = (
        Variant(name="arena-ilp, completion time", policy=policy("arena-ilp", _BY_TIME)),
        Variant(name="sia, completion time", policy=policy("sia", _BY_TIME)),
        _GANG,
        Variant(name="horizon", policy=asked.horizon(_ARENA)),
    )
    for trace in ("pai", "helios", "philly"):
        for variant in variants:
            make = partial(arena_replays.setup_of, trace, variant.policy, arena_replays.Rules())
            yield Case(trace=trace, variant=variant, make=make)


def _suika(num_gpus: int) -> Cases:
    def cases(asked: Asked) -> Iterator[Case]:
        variants = (
            Variant(name="suika", policy="suika"),
            _SIA,
            _NO_BACKFILL,
            Variant(name="horizon", policy=asked.horizon(), tells_models=True),
            Variant(name="horizon, no choice of plans", policy=asked.horizon()),
        )
        for seed in range(asked.seeds):
            for variant in variants:
                make = partial(_of_suika, num_gpus, seed, asked.hours, variant)
                yield Case(trace=f"suika-{num_gpus}-{seed}", variant=variant, seed=seed, make=make)

    return cases


def hurried(trace: Trace, load: float) -> Trace:
    """The trace with arrivals so many times as often."""
    return replace(trace, jobs=tuple(replace(job, submit_s=job.submit_s / load) for job in trace.jobs))


def loaded(trace: str, variant: Variant, seed: int = 0, *, load: float = 1.0) -> ReplaySetup:
    """A trace of Sia under a variant, with arrivals so many times as often."""
    setup = of_sia(trace, variant)
    return replace(setup, trace=hurried(setup.trace, load), seed=seed)


def _of_suika(num_gpus: int, seed: int, hours: float | None, variant: Variant) -> ReplaySetup:
    workload = suika_replays.workload_of(num_gpus, seed, 1.0, hours)
    setup = suika_replays.setup_of(workload, num_gpus, variant.policy, 0.0, RESTART_S, seed)
    return replace(setup, truth=replace(setup.truth, tells_models=variant.tells_models))


PARTS: Mapping[str, Part] = {
    "sia": Part(title="Traces of Sia, 64 GPUs", first="sia, told as released", cases=_sia),
    "load": Part(title="Helios 1 of Sia, arrivals so many times as often", first="sia, completion time", cases=_load),
    "ablation": Part(title="`horizon` without its parts, on traces of Sia", first="horizon", cases=_ablation),
    "leaves": Part(
        title="`horizon` without placement classes, traces of Sia on 64 T4 below leaves",
        first="horizon",
        cases=leaf_cases,
    ),
    "objectives": Part(title="Other objectives of `horizon`, on traces of Sia", first="horizon", cases=_objectives),
    "arena": Part(title="Traces of Arena, 1,280 GPUs", first="arena-ilp, completion time", cases=_arena),
    "suika": Part(title="Workload of Suika, 64 H100", first="suika", cases=_suika(64)),
    "suika-1024": Part(title="Workload of Suika, 1,024 H100", first="suika", cases=_suika(1024)),
    "reserved": Part(
        title="Arrivals of ITP around a large job that is known ahead", first="gang", cases=reserved_cases
    ),
}
