"""The loop closed on a real Slurm: `python -m benchmarks slurm-connector` (root; Debian's slurm-wlm and munge).

Eight slurmd on this machine, 8 pretended GPUs each, two a leaf, two leaves a pod, below a spine. The same jobs arrive
at the same pace, first for Slurm alone (backfill, topology/tree), then through `stowplan connect slurm` (gang; Arnold
places jobs of two nodes and more, which say that they are data-parallel over nodes). A job is a sleep that writes when
it begins, where, and when it ends. Both have Slurm look at its queue every second; the connection looks as often, and
is there, with all that it loads, before the first job comes, as Slurm is. It lets jobs wait for closer nodes.

leaves, pods: units that a job of several nodes is spread over, on average; least leaves: what its number of nodes needs
at least. waited: from submission to begin.
"""

import inspect
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import typer

from benchmarks.paths import ROOT
from benchmarks.placement.slurm_cluster import LARGER, OFTEN, Gpus, missing, slurm_cluster
from benchmarks.rows import Row, show, write
from stowplan.errors import InputError
from topology.readers.hostlist import expand_hostlist

NUM_GPUS = 8
NODES = (1, 1, 2, 2, 2, 3, 4, 0)
PACE_S = 0.25
# What users say; how long jobs run nobody knows.
LIMIT_S = 120
_POLL_S = 0.5
_LIMIT_S = 900.0
_SOON = "--begin=now+5minutes"
LEAF = {node: leaf for leaf, nodes in LARGER.leaves.items() for node in nodes}
POD = {leaf: pod for pod, leaves in LARGER.pods.items() for leaf in leaves}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedJob:
    """What is submitted: whole nodes, or half a node where `nodes` is 0."""

    nodes: int
    seconds: float

    @property
    def gpus(self) -> int:
        """Of all its nodes."""
        return NUM_GPUS * self.nodes or NUM_GPUS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of it, in seconds since 1970."""

    job: SizedJob
    submitted_s: float
    began_s: float
    ended_s: float
    nodes: tuple[str, ...]


def main(
    jobs: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Each with other jobs.")] = 1,
    shortest: Annotated[
        float, typer.Option(min=1, max=60, help="Seconds of the shortest job; the longest has four times as many.")
    ] = 5.0,
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between looks of the connection.")] = 1.0,
    nearness: Annotated[float, typer.Option(min=0, help="nearness_s of gang: longer, for closer nodes.")] = 30.0,
    near_wait: Annotated[float, typer.Option(min=0, help="Seconds that a job waits for closer nodes.")] = 2.0,
    name: Annotated[str, typer.Option(help="Name of the result.")] = "slurm_connector",
) -> None:
    """Run the same jobs under Slurm alone and under `stowplan connect slurm`: spread, waiting, makespan."""
    if (lacking := missing()) is not None:
        raise InputError(f"this needs a Slurm: {lacking}")
    parameters = f'{{"nearness_s": {nearness}}}'
    ours = ("--interval", str(interval), "--near-wait", str(near_wait), "--parameters", parameters)
    rows: list[Row] = []
    for seed in range(rounds):
        made = drawn_jobs(seed, jobs, shortest)
        for who in ("slurm", "stowplan"):
            with tempfile.TemporaryDirectory(prefix="stowplan-") as folder:
                ran = _run(Path(folder), made, ours if who == "stowplan" else None)
            rows.append({"seed": seed, "who": who, **figures(ran), "load": round(os.getloadavg()[0], 1)})
        # A round takes minutes: what is there is kept, whatever becomes of the next.
        show(f"{jobs} jobs, the same for both", rows)
        write(name, inspect.cleandoc(__doc__ or ""), rows)


def drawn_jobs(seed: int, num_jobs: int, shortest_s: float) -> list[SizedJob]:
    """The jobs of a round."""
    drawn = random.Random(seed)  # noqa: S311 - repeatable, no secret
    return [
        SizedJob(nodes=drawn.choice(NODES), seconds=drawn.uniform(shortest_s, 4 * shortest_s)) for _ in range(num_jobs)
    ]


def _run(folder: Path, jobs: Sequence[SizedJob], options: Sequence[str] | None) -> list[Ran]:
    """All jobs, on a Slurm of their own; `options` of the connection to it, None without."""
    told = folder / "told"
    with slurm_cluster(
        folder / "slurm", gpus=Gpus(type="h100", num=NUM_GPUS), layout=LARGER, settings=OFTEN
    ) as cluster:
        connection = None if options is None else _connection(folder, cluster.environment, options)
        try:
            submitted_s = {}
            for k, job in enumerate(jobs):
                submitted_s[k] = time.time()
                _submit(job, k, told, cluster.environment, opts_in=connection is not None)
                time.sleep(PACE_S)
            return _wait_for_all(told, jobs, submitted_s, connection)
        finally:
            if connection is not None:
                connection.send_signal(signal.SIGTERM)
                connection.wait(60)


def _connection(folder: Path, environment: Mapping[str, str], given: Sequence[str]) -> "subprocess.Popen[bytes]":
    options = ("--send", "--lock", str(folder / "lock"), "--arnold", '{"alpha": 0.3}', *given)
    path = folder / "connection.log"
    with path.open("wb") as log:
        connection = subprocess.Popen(
            [sys.executable, "-m", "api.cli.main", "connect", "slurm", *options],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    limit_s = time.monotonic() + _LIMIT_S
    while not path.stat().st_size:
        if connection.poll() is not None or time.monotonic() > limit_s:
            raise InputError("the connection does not come up")
        time.sleep(_POLL_S)
    return connection


def _submit(job: SizedJob, number: int, told: Path, environment: Mapping[str, str], *, opts_in: bool) -> None:
    line = f'echo {number} begin $(date +%s.%N) "$SLURM_JOB_NODELIST" >> {told}; sleep {job.seconds:.2f}; '
    line += f"echo {number} end $(date +%s.%N) - >> {told}"
    degrees = f": tp={NUM_GPUS} dp={job.nodes}" if job.nodes > 1 else ""
    ours = (_SOON, f"--comment=stowplan{degrees}") if opts_in else ()
    size = (f"--nodes={job.nodes}", f"--gpus-per-node={NUM_GPUS}") if job.nodes else (f"--gpus={job.gpus}",)
    words = ("sbatch", "--mem=1", "-t", f"{LIMIT_S // 60}", "-o", "/dev/null", *ours, *size, "--wrap", line)
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)


def _wait_for_all(
    told: Path, jobs: Sequence[SizedJob], submitted_s: Mapping[int, float], connection: "subprocess.Popen[bytes] | None"
) -> list[Ran]:
    limit_s = time.monotonic() + _LIMIT_S
    while True:
        lines = [line.split() for line in told.read_text().splitlines()] if told.exists() else []
        ends = {int(words[0]): float(words[2]) for words in lines if words[1] == "end"}
        if len(ends) == len(jobs):
            break
        if time.monotonic() > limit_s or (connection is not None and connection.poll() is not None):
            raise InputError(f"{len(ends)} of {len(jobs)} jobs have ended, and nothing goes on")
        time.sleep(_POLL_S)
    return [
        Ran(
            job=jobs[int(words[0])],
            submitted_s=submitted_s[int(words[0])],
            began_s=float(words[2]),
            ended_s=ends[int(words[0])],
            nodes=tuple(expand_hostlist(words[3])),
        )
        for words in lines
        if words[1] == "begin"
    ]


def figures(ran: Sequence[Ran]) -> dict[str, float]:
    """Spread, waiting and makespan."""
    several = [one for one in ran if one.job.nodes > 1]
    leaves = [len({LEAF[node] for node in one.nodes}) for one in several]
    pods = [len({POD[LEAF[node]] for node in one.nodes}) for one in several]
    fewest = [-(-one.job.nodes // 2) for one in several]
    first_s = min(one.submitted_s for one in ran)
    makespan_s = max(one.ended_s for one in ran) - first_s
    waited_s = sorted(one.began_s - one.submitted_s for one in ran)
    busy = sum(one.job.gpus * (one.ended_s - one.began_s) for one in ran)
    return {
        "jobs": len(ran),
        "leaves": round(mean(leaves), 3),
        "least leaves": round(mean(fewest), 3),
        "pods": round(mean(pods), 3),
        "over leaves needlessly": sum(a > b for a, b in zip(leaves, fewest, strict=True)),
        "of": len(several),
        # Nothing else was there yet.
        "first waited, s": round(ran[0].began_s - ran[0].submitted_s, 2),
        "waited, s": round(mean(waited_s), 2),
        "median": round(median(waited_s), 2),
        "makespan, s": round(makespan_s, 1),
        "utilisation": round(busy / (makespan_s * NUM_GPUS * len(LARGER.nodes)), 3),
    }
