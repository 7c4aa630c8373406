"""Replays of a trace under policies, as clients ask for them."""

from collections.abc import Mapping
from typing import Annotated, Any, Union

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, create_model

from api.schemas.application import MAX_APPLICATIONS, ApplicationDoc
from api.schemas.base import MAX_GPUS, MAX_ITEMS, Count, Document, Name, NumGpus, OneOf
from api.schemas.calendar import CalendarSource
from api.schemas.parameters import PARAMETERS
from api.schemas.policies.base import ParametersDoc
from api.schemas.request import MAX_TIME_LIMIT_S, which_snapshot
from api.schemas.snapshot import ClusterDoc, SnapshotReference
from executor.simulation.truth import Estimates, Profiling

MAX_SEEDS = 1000
# Three thousand years: far above any trace, far below what cannot be computed with.
MAX_S = 1e11
Seconds = Annotated[float, Field(ge=0, le=MAX_S)]
SomeSeconds = Annotated[float, Field(gt=0, le=MAX_S)]
Origin = Annotated[float, Field(ge=-MAX_S, le=MAX_S)]

ClusterSource = Annotated[
    Annotated[ClusterDoc, Tag("inline")] | Annotated[SnapshotReference, Tag("stored")],
    Discriminator(which_snapshot),
]


class TraceJobDoc(Document):
    """One job of a trace. It runs for `duration_s`; with `throughputs` until its `iterations` are done; with
    `applications` until its last epoch ends; with `modelled` until its `iterations` are done, or as many as take it
    `duration_s` on the GPUs that it asked for."""

    id: Name
    submit_s: Seconds
    """From time zero of the trace."""
    num_gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)]
    """What it asked for."""
    duration_s: Seconds | None = None
    """How long it ran on these GPUs."""
    gpu_type: Name | None = None
    """What it asked for, where `throughputs` say how fast it is there."""
    application: Name | None = None
    """The model or program, as `throughputs` or `applications` have it; with `modelled` a model of the catalogue."""
    global_batch: Count | None = None
    iterations: Annotated[float, Field(gt=0, le=1e15)] | None = None
    """Optimiser steps that it needs in all."""
    deadline_s: SomeSeconds | None = None
    """From its submission."""
    priority: Count | None = None
    """1 is launched first."""
    queue: Name | None = None
    """Whose quota it counts against."""
    time_limit_s: SomeSeconds | None = None
    """What its user gave it at most."""
    calendar_entry: Name | None = None
    """The reservation of `calendar` that the job belongs to."""


class TraceDoc(Document):
    """Jobs by submission."""

    name: Name
    origin_s: Origin | None = None
    """Time zero in seconds since 1970 (UTC); needed where there is a calendar."""
    jobs: Annotated[tuple[TraceJobDoc, ...], Field(min_length=1, max_length=MAX_ITEMS)]


class ThroughputDoc(Document):
    """Samples per second of an application at a global batch on so many GPUs of a type, spread over so many nodes."""

    application: Name
    global_batch: Count
    gpu_type: Name
    num_gpus: NumGpus
    num_nodes: NumGpus
    samples_per_s: Annotated[float, Field(ge=1e-9, le=1e15)]


class FailuresDoc(Document):
    """Failures of nodes, drawn with the seed of the replay."""

    mtbf_s: SomeSeconds
    """Mean time from when a node is up until it fails."""
    repair_s: SomeSeconds = 3600.0
    """Time until it is back, or its mean."""
    exponential_repair: bool = False


class ReplayPolicyDoc(Document):
    """A policy and its parameters, as for a plan; its kinds narrow it."""

    # As in `PlanBodyDoc`.
    model_config = ConfigDict(use_attribute_docstrings=False)

    policy: str
    parameters: ParametersDoc


def _policy(parameters: type[ParametersDoc]) -> type[ReplayPolicyDoc]:
    """The policies that have these parameters."""
    policies = [name for name, known in PARAMETERS.items() if known is parameters]
    return create_model(
        parameters.__name__.removesuffix("ParametersDoc") + "ReplayPolicy",
        __base__=ReplayPolicyDoc,
        __module__=__name__,
        __doc__=f"{' or '.join(policies)}, with its parameters.",
        policy=Annotated[str, OneOf(policies)],
        parameters=(parameters, parameters()),
    )


_POLICY_OF: Mapping[type[ParametersDoc], type[ReplayPolicyDoc]] = {
    parameters: _policy(parameters) for parameters in dict.fromkeys(PARAMETERS.values())
}
# Policy -> the document that chooses it.
REPLAY_POLICIES: Mapping[str, type[ReplayPolicyDoc]] = {
    policy: _POLICY_OF[parameters] for policy, parameters in PARAMETERS.items()
}
# A type only when the program runs: which policies there are is known then.
_AnyPolicy: Any = Annotated[Union[tuple(_POLICY_OF.values())], Field(discriminator="policy")]  # noqa: UP007


class ReplayBody(Document):
    """A trace of jobs on a cluster, once under each policy with each seed."""

    cluster: ClusterSource
    """A cluster, or `{"snapshot_id": ...}`: that of a stored snapshot, without its jobs."""
    trace: TraceDoc
    throughputs: Annotated[tuple[ThroughputDoc, ...], Field(min_length=1, max_length=MAX_ITEMS)] | None = None
    """How fast applications train; null: jobs run as long as they did in the trace, under policies that need no more
    than sizes."""
    applications: Annotated[tuple[ApplicationDoc, ...], Field(min_length=1, max_length=MAX_APPLICATIONS)] | None = None
    """Applications as they were measured, each once, in place of `throughputs`: steps take as long as was measured on
    such a placement, and under policies that go by goodput jobs choose their batch and learn their own model as they
    run. `stowplan applications` writes them."""
    profiling: Profiling = Profiling.ONE_GPU
    """What policies are told of `applications`. one_gpu: steps on one GPU of each type, from the start; released: less,
    as in the released simulator of Sia."""
    shared_models: bool = False
    """Jobs of one of the `applications` share what they measure."""
    modelled: bool = False
    """Jobs train models of the catalogue, as fast as the performance model says of the 3D plan that they run; then
    there are no `throughputs` and no `applications`. Jobs that lack `application`, `global_batch`, or one of
    `iterations` and `duration_s`, and jobs for which there is no plan on as many GPUs, are left out."""
    policies: Annotated[tuple[_AnyPolicy, ...], Field(min_length=1)]
    """Each with parameters that no other has."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1, max_length=MAX_SEEDS)] = (
        0,
    )
    """Of noise and failures; each at most once."""
    horizon_s: SomeSeconds | None = None
    """Nothing happens after it (null: until all jobs have ended)."""
    round_s: SomeSeconds | None = None
    """Plan every so many seconds (null: after every event)."""
    settle: bool = False
    """Jobs of known performance keep the GPUs they got until they work, at least."""
    charge: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Jobs start so many times the CPU seconds of the decision later (above 0: no two replays are the same)."""
    start_s: Seconds = 0.0
    """How long a job that starts does no work."""
    restart_s: Seconds = 0.0
    """The same of one that starts again or elsewhere."""
    delay_per_gpu_s: SomeSeconds | None = None
    """Starts of few GPUs take only so long for each of them."""
    checkpoint_s: SomeSeconds | None = None
    """A job that breaks goes on from a multiple of so many seconds of work (null: from its beginning)."""
    elasticity: Annotated[float, Field(ge=1, le=MAX_GPUS)] = 4.0
    """How many times fewer or more GPUs a job may get than it asked for, where its throughput is known."""
    estimates: Estimates = Estimates.EXACT
    """What policies are told of durations. exact: what is true, but for the noise; limit: the time limit of the job;
    none: nothing."""
    noise: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Standard deviation of the logarithm of estimates over what is true: of durations, or of throughputs; with
    `modelled` of what is true over the model."""
    failures: FailuresDoc | None = None
    """They need a horizon."""
    calendar: CalendarSource = ()
    """Who has which nodes when: entries, or `{"cluster": name}`, the calendar that the service has, as it is when the
    request is read. Times are those of the clock; `origin_s` of the trace says when the replay begins."""
    calendar_known_s: Seconds = 0.0
    """When the calendar becomes known, from time zero of the trace: until then everybody plans without it."""
    time_limit_s: Annotated[float, Field(gt=0, le=MAX_TIME_LIMIT_S)] | None = None
    """Wall-clock limit of each replay (null: that of the service); its figures then count until where it was."""


REPLAY_BODY = TypeAdapter(ReplayBody)
# b needs the whole node; c ends before a does, for which b waits, and is backfilled.
REPLAY_EXAMPLE: dict[str, Any] = {
    "cluster": {
        "gpu_types": [
            {
                "name": "a100",
                "memory_bytes": 80_000_000_000,
                "peak_flops_per_s": 312e12,
                "intra_node_bandwidth_bytes_per_s": 3e11,
                "inter_node_bandwidth_bytes_per_s": 2.5e10,
            }
        ],
        "nodes": [{"id": "a100-0", "gpu_type": "a100", "num_gpus": 8}],
    },
    "trace": {
        "name": "four",
        "jobs": [
            {"id": "a", "submit_s": 0, "num_gpus": 4, "duration_s": 100},
            {"id": "b", "submit_s": 10, "num_gpus": 8, "duration_s": 50},
            {"id": "c", "submit_s": 20, "num_gpus": 4, "duration_s": 30},
            {"id": "d", "submit_s": 25, "num_gpus": 4, "duration_s": 200},
        ],
    },
    "policies": [{"policy": "gang"}, {"policy": "gang", "parameters": {"backfill": "none"}}],
}
