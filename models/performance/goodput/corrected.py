"""What a job said of its performance, set right by what was measured where it ran."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.performance.goodput.spec import (
    GoodputModel,
    GoodputObservations,
    Observation,
    TableEntry,
    ThroughputTable,
)
from models.performance.goodput.throughput import iteration_time_s, slowed


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredThroughput:
    """Samples per second on GPUs of one type."""

    gpu_type: str
    num_gpus: int
    num_nodes: int
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Steps of replicas of one GPU each; step_s: with the accumulation steps."""

    gpu_type: str
    num_nodes: int
    num_replicas: int
    local_batch: int
    accumulation_steps: int
    bandwidth_fraction: float
    step_s: float


def corrected_table(table: ThroughputTable, measured: Sequence[MeasuredThroughput]) -> ThroughputTable:
    """Put measurements, newest first, into a table.

    What was not measured is scaled as the nearest entry that was: of its GPU type, else of any, by the ratio of the
    numbers of GPUs. Left as it was said, whatever was not tried yet would look better than what turned out slower.
    """
    found: dict[TableEntry, float] = {}
    for one in measured:
        entry = entry_of(table, one.gpu_type, one.num_gpus, one.num_nodes)
        if entry is not None:
            found.setdefault(entry, one.samples_per_s)
    if not found:
        return table
    return replace(table, entries=tuple(_corrected(entry, found) for entry in table.entries))


def entry_of(table: ThroughputTable, gpu_type: str, num_gpus: int, num_nodes: int) -> TableEntry | None:
    """What a table says of these GPUs on so many nodes, before what it says of them on any; None for nothing."""
    of_them = [entry for entry in table.entries if (entry.gpu_type, entry.num_gpus) == (gpu_type, num_gpus)]
    on_nodes = (entry for wanted in (num_nodes, None) for entry in of_them if entry.num_nodes == wanted)
    return next(on_nodes, None)


def corrected_model(model: GoodputModel, measured: Sequence[MeasuredSteps]) -> GoodputModel:
    """Have all steps of a fitted model take as many times longer on a GPU type as the newest ones measured there do;
    where none were, as the newest ones anywhere do. `measured`: newest first."""
    ratios: dict[str, float] = {}
    for one in measured:
        said_s = step_s_of(model, one)
        if said_s is not None:
            ratios.setdefault(one.gpu_type, one.step_s / said_s)
    if not ratios:
        return model
    newest = next(iter(ratios.values()))
    return replace(
        model,
        profiles={
            name: replace(profile, parameters=slowed(profile.parameters, ratios.get(name, newest)))
            for name, profile in model.profiles.items()
        },
    )


def step_s_of(model: GoodputModel, one: MeasuredSteps) -> float | None:
    """Seconds of such steps by a model; None where it does not say: replicas of several GPUs, or the type is not known,
    or not with several replicas."""
    profile = model.profiles.get(one.gpu_type)
    if profile is None or profile.gpus_per_replica > 1 or (profile.single_gpu_only and one.num_replicas > 1):
        return None
    shape = one.num_nodes, one.num_replicas, one.local_batch, one.accumulation_steps, one.bandwidth_fraction
    return float(iteration_time_s(profile.parameters, *shape))


def with_observations(said: GoodputObservations, measured: Sequence[Observation]) -> GoodputObservations:
    """Add measurements, newest first, to what was observed before; of one shape the newest one counts."""
    newest: dict[tuple[object, ...], Observation] = {}
    for observation in (*measured, *said.observations):
        newest.setdefault(_shape(observation), observation)
    return replace(said, observations=tuple(newest.values()))


def _corrected(entry: TableEntry, found: Mapping[TableEntry, float]) -> TableEntry:
    def distance(other: TableEntry) -> tuple[bool, float]:
        return other.gpu_type != entry.gpu_type, abs(math.log(entry.num_gpus / other.num_gpus))

    if entry in found:
        return replace(entry, value=found[entry])
    nearest = min(found, key=distance)
    return replace(entry, value=entry.value * found[nearest] / nearest.value)


def _shape(observation: Observation) -> tuple[object, ...]:
    return (
        observation.gpu_type,
        observation.num_nodes,
        observation.num_replicas,
        observation.local_batch,
        observation.bandwidth_fraction,
    )
