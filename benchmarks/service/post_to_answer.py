"""What lies between a POST and its answer: `python -m benchmarks post-to-answer --checkout ../before --checkout .`.

Posts the jobs of a busy moment of Sia's Helios trace 1 (every job submitted K times on K x 64 GPUs, as its authors
scale it) with their fitted goodput models, and generated clusters for growth, and waits for the plan. CPU is that of
all threads of a process from before the POST until after the answer, beyond what they take while nobody asks: the
service, and its workers and readers. What planning itself took (`timings.cpu_ms`) is taken off: the rest is the
hand-over, which is received, read, checked, stored, sent on and back, and answered. Checkouts take turns. Also the
memory of an idle service with two workers (PSS of all processes), the start-up time, and with `--install` time and size
of an installation without extras. Needs the published traces beside the checkout.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from api.convert.snapshot import snapshot_to_document
from benchmarks.paths import ROOT
from benchmarks.rows import Row, show
from benchmarks.service.large_posts import generated_request
from benchmarks.service.planned_post import LIMIT_S, Posts, posts
from benchmarks.service.process import (
    Service,
    descendants_of,
    memory_bytes,
    running_service,
    settle,
)
from benchmarks.suite.machine import revision
from benchmarks.workloads.published.sia_traces import fitted_snapshot

_SCALES = (64, 512, 2048)
_WARM = 3
_TARGET_MS = {2048: 60.0}
_TARGET_MIB = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Milliseconds of one POST: wall clock until answered, CPU of the service, of all others, of planning, and wall
    clock of the solve, which has one thread."""

    wall_ms: float
    service_ms: float
    workers_ms: float
    plan_ms: float
    solve_ms: float

    @property
    def handover_ms(self) -> float:
        """CPU of everything but planning."""
        return self.service_ms + self.workers_ms - self.plan_ms


def main(
    runs: Annotated[int, typer.Option(min=1, help="Of every size.")] = 5,
    jobs: Annotated[list[int] | None, typer.Option(help="Jobs of generated clusters, beside the trace.")] = None,
    checkout: Annotated[
        list[Path] | None, typer.Option(help="Measure this checkout instead; several take turns.")
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Time an installation without extras, too.")] = False,
) -> None:
    """Measure CPU between POST and answer, process by process, and the memory of an idle service."""
    checkouts = [path.resolve() for path in checkout or [ROOT]]
    bodies = [(num_gpus, _traced(num_gpus)) for num_gpus in _SCALES]
    bodies += [(10 * num_jobs, generated_request(num_jobs)) for num_jobs in jobs or (1_000, 2_000, 5_000)]
    idle: list[Row] = []
    found: list[list[list[Post]]] = []
    for path in checkouts:
        with running_service(checkout=path) as service:
            settle(service)
            idle.append(_idle_row(service, path))
            with posts(service) as posting:
                found.append([_posted(posting, body, runs) for _, body in bodies])
    show("idle, two workers", idle)
    rows = [
        _row(num_gpus, body, path, found[number][k])
        for k, (num_gpus, body) in enumerate(bodies)
        for number, path in enumerate(checkouts)
    ]
    show(f"POST to answer, sia, medians of {runs} runs, CPU ms", rows)
    if install:
        _print_installation()


def _traced(num_gpus: int) -> bytes:
    # Fields that a checkout does not know yet would be refused.
    snapshot = snapshot_to_document(fitted_snapshot(num_gpus)).model_dump_json(exclude_defaults=True)
    return f'{{"policy": "sia", "snapshot": {snapshot}, "options": {{"time_limit_s": {LIMIT_S}}}}}'.encode()


def _posted(posting: Posts, body: bytes, runs: int) -> list[Post]:
    return [_post(posting, body) for _ in range(_WARM + runs)][_WARM:]


def _post(posting: Posts, body: bytes) -> Post:
    posted = posting.plan(body)
    timings = posted.answer["timings"]
    return Post(
        wall_ms=posted.wall_ms,
        service_ms=posted.service_ms,
        workers_ms=posted.others_ms,
        plan_ms=timings["cpu_ms"],
        solve_ms=timings["phases_ms"]["solve"],
    )


def _row(num_gpus: int, body: bytes, checkout: Path, posts: list[Post]) -> Row:
    target = _TARGET_MS.get(num_gpus)
    handover_ms = statistics.median(post.handover_ms for post in posts)
    return {
        "GPUs": num_gpus,
        "MB": len(body) / 1e6,
        "commit": _commit(checkout),
        "wall": statistics.median(post.wall_ms for post in posts),
        "service": statistics.median(post.service_ms for post in posts),
        "workers": statistics.median(post.workers_ms for post in posts),
        "planning": statistics.median(post.plan_ms for post in posts),
        "of it solve": statistics.median(post.solve_ms for post in posts),
        "hand-over": handover_ms,
        "target": "" if target is None else f"{target:g}: {'met' if handover_ms <= target else 'missed'}",
    }


def _idle_row(service: Service, checkout: Path) -> Row:
    own = memory_bytes(service.pid) / 2**20
    others = [memory_bytes(pid) / 2**20 for pid in descendants_of(service.pid)]
    mib = own + sum(others)
    return {
        "commit": _commit(checkout),
        "ready s": service.start_s,
        "service MiB": own,
        "others MiB": ", ".join(f"{each:.0f}" for each in others),
        "all MiB": mib,
        "target": f"{_TARGET_MIB:g}: {'met' if mib <= _TARGET_MIB else 'missed'}",
    }


def _commit(checkout: Path) -> str:
    commit, dirty = revision(checkout)
    return commit[:8] + ("+" if dirty else "")


def _print_installation() -> None:
    """Install the checkout without extras into a fresh environment."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        before = _size_bytes(Path(folder))
        start_s = time.perf_counter()
        subprocess.run([Path(folder) / "bin/pip", "install", "--quiet", "."], check=True, stderr=subprocess.DEVNULL)
        elapsed_s = time.perf_counter() - start_s
        print(f"installation without extras: {elapsed_s:.0f} s, {(_size_bytes(Path(folder)) - before) / 2**20:.0f} MiB")


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
