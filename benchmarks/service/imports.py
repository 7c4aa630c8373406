"""How long `stowplan import slurm` takes: `python -m benchmarks imports --nodes 10000`.

Half of the jobs run on a node each, the others wait with priorities of their own. Records are as large as Slurm's, and
tell much that nobody reads: cores one by one, a hundred settings. Every time is of the whole command, from the start of
its process to the written snapshot; the median of some runs, of modules that are compiled, as installed ones are: a
first run is not counted.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.workloads.slurm_documents import document, job, node, running

_LEAF = 16
_CORES = 64
_UNSET = {"set": False, "infinite": False, "number": 0}
_UNREAD: dict[str, Any] = {f"setting_that_is_not_read_{k}": "" for k in range(50)}
_UNREAD |= {f"number_that_is_not_read_{k}": _UNSET for k in range(30)}


def main(
    nodes: Annotated[list[int] | None, typer.Option(min=2 * _LEAF, help="Nodes, and as many jobs.")] = None,
    runs: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Measure how long the state of a Slurm cluster takes to become a snapshot."""
    print("| nodes and jobs | documents | seconds | CPU seconds | snapshot |")
    print("|---|---|---|---|---|")
    for size in nodes or (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            print(_row(size, runs, Path(folder)))


def write_documents(size: int, folder: Path) -> dict[str, Path]:
    """Write nodes below leaves of 16, and as many jobs; gives the files by role."""
    width = len(str(size))
    names = [f"n{k:0{width}d}" for k in range(size)]
    cores = [{"index": k, "status": ["ALLOCATED"]} for k in range(_CORES)]
    held: dict[str, Any] = {
        "job_resources": {"nodes": {"allocation": [{"index": 0, "sockets": [{"index": 0, "cores": cores}]}]}}
    }
    detail = ["gpu:h100:8(IDX:0-7)"]
    jobs = [running(k + 1, names[k], detail, **_UNREAD, **held) for k in range(size // 2)]
    jobs += [job(k + 1, priority=k, **_UNREAD) for k in range(size // 2, size)]
    leaves = [names[k : k + _LEAF] for k in range(0, size, _LEAF)]
    lines = [f"SwitchName=leaf{k} Nodes={','.join(leaf)}\n" for k, leaf in enumerate(leaves)]
    texts = {
        "nodes": document("nodes", [node(name, **_UNREAD) for name in names], indent=2),
        "queue": document("jobs", jobs, indent=2),
        "topology": "".join(lines) + f"SwitchName=spine Switches=leaf[0-{len(leaves) - 1}]\n",
    }
    paths = {role: folder / f"{role}.{'conf' if role == 'topology' else 'json'}" for role in texts}
    for role, path in paths.items():
        path.write_text(texts[role])
    return paths


def _row(size: int, num_runs: int, folder: Path) -> str:
    paths = write_documents(size, folder)
    snapshot = folder / "snapshot.json"
    command = [sys.executable, "-m", "api.cli.main", "import", "slurm", "--output", str(snapshot)]
    command += [word for role, path in paths.items() for word in (f"--{role}", str(path))]
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **compiled}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    walls_s, cpus_s = [], []
    for _ in range(num_runs):
        before, started_s = _children_s(), time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        walls_s.append(time.perf_counter() - started_s)
        cpus_s.append(_children_s() - before)
    read_mb = sum(path.stat().st_size for path in paths.values()) / 1e6
    written_mb = snapshot.stat().st_size / 1e6
    return f"| {size:,} | {read_mb:.1f} MB | {median(walls_s):.2f} | {median(cpus_s):.2f} | {written_mb:.1f} MB |"


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
