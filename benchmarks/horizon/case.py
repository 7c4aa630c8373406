"""A replay among those that are compared, and what is under test."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.replays import sia_replays
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import Profiling, TruthParameters
from workloads.trace import Trace, sorted_trace

_MOVED_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy as on the command line, `name:{parameters}`, and what it is told; see `TruthParameters`. round_s: plan
    every so many seconds (None: after every event), where the rules are those of Sia."""

    name: str
    policy: str
    round_s: float | None = 60.0
    told: Profiling = Profiling.ONE_GPU
    shared: bool = True
    noise: float = 0.0
    misjudged: float = 1.0
    tells_models: bool = False

    @property
    def is_random(self) -> bool:
        """Whether its replays differ by seed."""
        return self.noise > 0 or self.misjudged > 1

    @property
    def truth(self) -> TruthParameters:
        """What is told of applications that were measured."""
        return TruthParameters(
            profiling=self.told, shared_models=self.shared, noise=self.noise, misjudged=self.misjudged
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One replay, which `make` sets up; trace, load, name of the variant and seed tell it from others of its part."""

    trace: str
    variant: Variant
    make: Callable[[], ReplaySetup]
    load: float = 1.0
    seed: int = 0

    @property
    def key(self) -> tuple[str, float, str, int]:
        """See above."""
        return self.trace, self.load, self.variant.name, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """parameters: of `horizon`, over those that a part gives it. seeds: workloads that are made, traces with moved
    arrivals, and replays of what is random. hours: of workloads that are made (None: as many as in the papers)."""

    parameters: Mapping[str, object] = field(default_factory=dict)
    seeds: int = 1
    hours: float | None = None

    def horizon(self, given: Mapping[str, object] | None = None, /, **changed: object) -> str:
        """The policy under test: `given` by a part, then as asked, then `changed`."""
        return policy("horizon", {**(given or {}), **self.parameters, **changed})


def policy(name: str, parameters: Mapping[str, object]) -> str:
    """As on the command line."""
    return f"{name}:{json.dumps(parameters, separators=(',', ':'))}" if parameters else name


SIA_BY_TIME = Variant(
    name="sia, completion time", policy=policy("sia", {"objective": "completion_time", "restart_price": 3})
)


def at_events(asked: Asked) -> Variant:
    """`horizon` by Sia's rules, but for its rounds: it plans after every event."""
    return Variant(name="horizon", policy=asked.horizon(), round_s=None)


def of_sia(trace: str, variant: Variant, seed: int = 0) -> ReplaySetup:
    """A trace of Sia under a variant, with moved arrivals for seeds above 0. Variants that are told as the released
    policy get its guess of restart costs, others the true ones."""
    true_restarts = variant.told is not Profiling.RELEASED
    setup = sia_replays.setup_of(trace, variant.policy, variant.truth, variant.round_s, true_restarts=true_restarts)
    return replace(setup, trace=moved(setup.trace, seed)) if seed else setup


def moved(trace: Trace, seed: int) -> Trace:
    """The trace with each arrival up to ten minutes sooner or later."""
    by_s = np.random.default_rng(seed).uniform(-_MOVED_S, _MOVED_S, len(trace.jobs)).tolist()
    jobs = [replace(job, submit_s=max(0.0, job.submit_s + by)) for job, by in zip(trace.jobs, by_s, strict=True)]
    return sorted_trace(trace.name, jobs, origin_s=trace.origin_s, left_out=trace.left_out)
