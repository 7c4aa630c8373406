"""What is replayed, and which jobs of it can be. Light: imports nothing that plans."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from executor.control.events import CalendarChange
from executor.control.options import ControlOptions
from executor.simulation.tabled import TabledThroughputs
from executor.simulation.traced import TracedDurations
from executor.simulation.truth import Truth, TruthParameters
from models.policies import policy_of
from models.policy import Parameters
from stowplan.errors import InputError
from stowplan.records import to_document, to_json
from topology.cluster import Cluster
from workloads.generators.failures import FailureParameters
from workloads.profiles import ApplicationProfile, covers
from workloads.throughputs import Throughput
from workloads.trace import Trace, TraceJob

_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """What is replayed: a trace on a cluster under the policy that `control` names.

    throughputs, profiles, modelled: how fast applications train, by a table, as measured, or (they are models of the
    catalogue) by the performance model of 3D plans; else jobs run as long as they did in the trace. horizon_s: nothing
    happens after it (None: until all jobs have ended). failures: of nodes, which need a horizon. calendars: what the
    calendar is known to be, and from when on. reserved_for: id of a job -> its reservation. seed: of failures and
    noise.
    """

    cluster: Cluster
    trace: Trace
    control: ControlOptions
    truth: TruthParameters = field(default_factory=TruthParameters)
    throughputs: tuple[Throughput, ...] | None = None
    profiles: tuple[ApplicationProfile, ...] | None = None
    modelled: bool = False
    failures: FailureParameters | None = None
    horizon_s: float | None = None
    calendars: tuple[CalendarChange, ...] = ()
    reserved_for: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.horizon_s is not None and not 0 < self.horizon_s < math.inf:
            raise InputError(f"the horizon is {self.horizon_s} s; must be a number above 0")
        if sum((self.throughputs is not None, self.profiles is not None, self.modelled)) > 1:
            raise InputError("throughputs, profiles and modelled each say how fast jobs are; give one of them")
        if self.failures is not None and self.horizon_s is None:
            raise InputError("failures of nodes are drawn until a horizon; give one")

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return policy_of(self.control.parameters).name

    def key(self) -> str:
        """Tells setups apart: where a replay goes on, it must be the same."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()


def truth_of(setup: ReplaySetup) -> Truth:
    """What is true of the jobs; policies of sizes alone are told no more of them than that."""
    policy = policy_of(setup.control.parameters)
    elastic = not policy.plans_by_size
    by, seed = setup.truth, setup.seed
    if setup.profiles is not None:
        # Fits and interpolations load SciPy, which no other replay needs.
        from executor.simulation.profiled import ProfiledApplications

        return ProfiledApplications(
            setup.trace,
            setup.profiles,
            setup.cluster,
            by,
            seed,
            elastic=elastic and not policy.keeps_sizes,
            by_type=elastic,
        )
    if setup.modelled:
        # Plans take the performance model, which no other replay needs.
        from executor.simulation.modelled import ModelledTrainings

        return ModelledTrainings(setup.trace, setup.cluster, by, seed, policy)
    if setup.throughputs is not None:
        return TabledThroughputs(
            setup.trace, setup.throughputs, setup.cluster, by, seed, elastic=elastic, resizes=not policy.keeps_sizes
        )
    return TracedDurations(setup.trace, by, seed)


def covering(setup: ReplaySetup) -> Callable[[TraceJob], bool]:
    """Which jobs can be replayed, for whoever replays none: loads nothing to compute with where it can do without."""
    if setup.profiles is not None:
        return covers(setup.profiles, {kind.name for kind in setup.cluster.gpu_types})
    return truth_of(setup).covers


def covered_trace(setup: ReplaySetup, is_covered: Callable[[TraceJob], bool]) -> Trace:
    """The jobs that can be replayed.

    Raises
    ------
    InputError
        When there are jobs, and none of them can.
    """
    trace = setup.trace.where(is_covered)
    if setup.trace.jobs and not trace.jobs:
        raise InputError(_nothing_known(setup))
    return trace


def unusual_parameters(parameters: Parameters) -> dict[str, str]:
    """Parameters that differ from the defaults of their policy, which `variant` chooses."""
    policy = policy_of(parameters)
    usual = to_document(policy.parameters(**policy.variant))
    return {name: str(value) for name, value in to_document(parameters).items() if value != usual[name]}


def _nothing_known(setup: ReplaySetup) -> str:
    """Why no job of the trace can be replayed."""
    what = f"none of the {len(setup.trace.jobs):,} jobs of {setup.trace.name!r}"
    if setup.profiles is not None:
        names = ", ".join(profile.application for profile in setup.profiles)
        return f"{what} has GPUs and an application that was measured on this cluster; these were: {names}"
    if setup.modelled:
        return (
            f"{what} has GPUs, a batch, iterations or a duration, and as application a model of the catalogue that can "
            "be trained on as many GPUs of this cluster"
        )
    if setup.throughputs is None:
        return f"{what} has GPUs and a duration; jobs that have iterations need a table of throughputs"
    here = ", ".join(kind.name for kind in setup.cluster.gpu_types)
    known = sorted({f"{row.application} at {row.global_batch} on {row.gpu_type}" for row in setup.throughputs})
    more = f" and {len(known) - _MAX_SHOWN} more" if len(known) > _MAX_SHOWN else ""
    return f"the table of throughputs knows {what} on {here}; it has {', '.join(known[:_MAX_SHOWN])}{more}"
