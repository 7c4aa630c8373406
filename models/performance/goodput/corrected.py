"""What a job said of its performance, set right by what was measured where it ran."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.performance.goodput.spec import GoodputObservations, Observation, TableEntry, ThroughputTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredThroughput:
    """Samples per second on GPUs of one type."""

    gpu_type: str
    num_gpus: int
    num_nodes: int
    samples_per_s: float


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
