"""How fast models train on GPUs, as measured or estimated: tables of samples per second.

Two layouts are read, told apart by their headers: application, global_batch, gpu_type, num_gpus, num_nodes,
samples_per_s; and the table that the simulation of Arena (EuroSys'26) uses, of which rows that adaptive parallelism
cannot run are left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from workloads.readers.arena import application_of
from workloads.readers.table import POSITIVE, POSITIVE_COUNT, Table, positive, positive_count, read_table, text_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Samples per second of an application at a global batch on so many GPUs of a type, spread over so many nodes."""

    application: str
    global_batch: int
    gpu_type: str
    num_gpus: int
    num_nodes: int
    samples_per_s: float


def read_throughputs(path: Path) -> tuple[Throughput, ...]:
    """Read a table.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong; also when a row says again what an earlier one says.
    """
    source = str(path)
    table = read_table(read_text(path), source)
    for start, read in _LAYOUTS.items():
        if start in table:
            rows = read(table)
            break
    else:
        starts = " or ".join(map(repr, _LAYOUTS))
        raise FileFormatError.at(
            source, 1, f"no table of throughputs: there is no column {starts}; the columns are {list(table.names)}"
        )
    if not rows:
        raise FileFormatError.at(source, None, "there are no throughputs in the file")
    for k in repeated(rows):
        row = rows[k]
        what = f"{row.application} at {row.global_batch} on {row.num_gpus} x {row.gpu_type}, {row.num_nodes} nodes"
        raise FileFormatError.at(source, None, f"has {what} twice")
    return rows


def repeated(rows: Iterable[Throughput]) -> Iterator[int]:
    """Which rows say again what an earlier one says."""
    seen: set[tuple[str, int, str, int, int]] = set()
    for k, row in enumerate(rows):
        key = (row.application, row.global_batch, row.gpu_type, row.num_gpus, row.num_nodes)
        if key in seen:
            yield k
        seen.add(key)


def _own(table: Table) -> tuple[Throughput, ...]:
    return _rows(table, table.required("application", text_cell, "a name"), "num_gpus", "num_nodes", "samples_per_s")


def _arena(table: Table) -> tuple[Throughput, ...]:
    table.require("model", "params", "ap_feasible")
    feasible = table.only([cell == "1" for cell in table.texts("ap_feasible")])
    models = zip(feasible.texts("model"), feasible.texts("params"), strict=True)
    return _rows(feasible, [application_of(*model) for model in models], "n_gpus", "n_nodes", "throughput_sps")


def _rows(table: Table, applications: list[str], gpus: str, nodes: str, speed: str) -> tuple[Throughput, ...]:
    columns = zip(
        applications,
        table.required("global_batch", positive_count, POSITIVE_COUNT),
        table.required("gpu_type", text_cell, "a name"),
        table.required(gpus, positive_count, POSITIVE_COUNT),
        table.required(nodes, positive_count, POSITIVE_COUNT),
        table.required(speed, positive, POSITIVE),
        strict=True,
    )
    return tuple(
        Throughput(
            application=application,
            global_batch=global_batch,
            gpu_type=gpu_type,
            num_gpus=num_gpus,
            num_nodes=num_nodes,
            samples_per_s=samples_per_s,
        )
        for application, global_batch, gpu_type, num_gpus, num_nodes, samples_per_s in columns
    )


# By a column that no other layout has.
_LAYOUTS: Mapping[str, Callable[[Table], tuple[Throughput, ...]]] = MappingProxyType(
    {"application": _own, "throughput_sps": _arena}
)
