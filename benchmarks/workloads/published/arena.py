"""The 1,280-GPU cluster of Arena's simulation, its throughput table, and moments of its traces as snapshots."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.paths import PUBLISHED
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Job
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of
from workloads.readers import read_trace
from workloads.throughputs import read_throughputs
from workloads.trace import TraceJob

DIRECTORY = PUBLISHED / "arena"
THROUGHPUTS = "sim_effective_throughput.csv"
ROUND_S = 300.0

# Name in the data, product, nodes, GPUs of a node (Arena Table 1 and section 5.1).
_MACHINES = (("a100", "a100-40gb", 80, 4), ("v100", "v100", 20, 16), ("a40", "a40", 160, 2), ("a10", "a10", 160, 2))

# Application and global batch.
ModelKey = tuple[str | None, int | None]


def data_are_there() -> bool:
    """Whether the published data lie beside the checkout."""
    return (DIRECTORY / THROUGHPUTS).is_file()


def simulated_cluster() -> Cluster:
    """320 GPUs of each of four types."""
    kinds = {name: gpu_type_of(find_product(product), "fp16") for name, product, _, _ in _MACHINES}
    return Cluster(
        gpu_types=tuple(replace(kind, name=name) for name, kind in kinds.items()),
        nodes=tuple(
            Node(id=f"{name}-{k:03}", gpu_type=name, num_gpus=size)
            for name, _, num_nodes, size in _MACHINES
            for k in range(num_nodes)
        ),
    )


@cache
def throughput_tables(directory: Path = DIRECTORY) -> Mapping[ModelKey, ThroughputTable]:
    """What the released simulator uses on as few nodes as there may be, where adaptive parallelism is feasible."""
    nodes_of = {name: size for name, _, _, size in _MACHINES}
    entries: dict[ModelKey, list[TableEntry]] = {}
    for row in read_throughputs(directory / THROUGHPUTS):
        if row.num_nodes == math.ceil(row.num_gpus / nodes_of[row.gpu_type]):
            entries.setdefault((row.application, row.global_batch), []).append(
                TableEntry(
                    gpu_type=row.gpu_type, num_gpus=row.num_gpus, num_nodes=row.num_nodes, value=row.samples_per_s
                )
            )
    return {model: ThroughputTable(entries=tuple(table), batch_size=model[1]) for model, table in entries.items()}


@cache
def submissions(trace: str, directory: Path = DIRECTORY) -> tuple[TraceJob, ...]:
    """The jobs of trace `philly`, `helios` or `pai`, by submission."""
    return read_trace(directory / f"trace_{trace}.csv", format_="arena").jobs


def active_jobs(trace: str, now_s: float, restart_cost_s: float = 300.0) -> tuple[Job, ...]:
    """Jobs that would not be finished at `now_s` had each run as requested since its submission; all wait.

    GPUs from half to twice the request, as in Crius; iterations that are left, and deadlines that are not over;
    priorities, which the traces do not have, 1, 2, 3, 1, ... in the order of submission.
    """
    jobs = []
    for k, traced in enumerate(submissions(trace)):
        table = throughput_tables()[traced.application, traced.global_batch]
        age_s = now_s - traced.submit_s
        left = (traced.iterations or 0.0) - max(0.0, age_s) * _requested_speed(traced, table) / _batch(table)
        if age_s < 0 or left <= 0:
            continue
        jobs.append(
            Job(
                id=traced.id,
                min_gpus=max(1, traced.num_gpus // 2),
                max_gpus=2 * traced.num_gpus,
                performance=table,
                age_s=age_s,
                restart_cost_s=restart_cost_s,
                remaining_iterations=left,
                deadline_s=_left(traced.deadline_s, age_s),
                priority=k % 3 + 1,
            )
        )
    return tuple(jobs)


def _requested_speed(traced: TraceJob, table: ThroughputTable) -> float:
    """Samples/s on the requested block, or on the nearest count of the type, or of any type."""

    def distance(entry: TableEntry) -> tuple[bool, float]:
        return entry.gpu_type != traced.gpu_type, abs(entry.num_gpus - traced.num_gpus)

    return min(table.entries, key=distance).value


def _left(deadline_s: float | None, age_s: float) -> float | None:
    """Seconds to a deadline that is not over."""
    return deadline_s - age_s if deadline_s is not None and deadline_s > age_s else None


def _batch(table: ThroughputTable) -> int:
    assert table.batch_size is not None  # noqa: S101 - set above
    return table.batch_size
