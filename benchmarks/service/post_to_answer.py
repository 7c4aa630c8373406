"""From POST to answer, split by phase: `python -m benchmarks post-to-answer --runs 5`.

Posts the jobs of a busy moment of Sia's Helios trace 1 (every job submitted K times on K x 64 GPUs, as its authors
scale it) with their fitted goodput models, waits for the plan, and prints medians over the runs: the service's own
phases, the rest of the round trip (HTTP, JSON, queue, hand-over to the worker, storing), and the share of everything
but the solver. Also the start-up time of the service and, with `--install`, time and size of an installation
without extras. Needs the published traces beside the checkout.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from api.convert.snapshot import snapshot_to_document
from benchmarks.service.process import Answer, Service, running_service
from benchmarks.workloads.published.sia_traces import fitted_snapshot

_SCALES = (64, 512, 2048)
_PHASES = ("validate", "performance", "build", "solve", "place", "verify")


def main(
    runs: Annotated[int, typer.Option(help="Of every size.")] = 5,
    solver: Annotated[str, typer.Option(help="Of every solve.")] = "highs",
    gap: Annotated[float, typer.Option(help="Relative gap at which a solve ends.")] = 1e-4,
    starts: Annotated[int, typer.Option(help="Of the service, to time its start-up.")] = 3,
    install: Annotated[bool, typer.Option("--install", help="Time an installation without extras, too.")] = False,
) -> None:
    """Time the way from POST to answer, split by phase."""
    start_s = []
    for _ in range(starts):
        with running_service() as service:
            start_s.append(service.start_s)
    print(f"start-up until /readyz: median {statistics.median(start_s):.2f} s of {starts} starts")
    print(f"solver {solver}, gap {gap:g}, limit 60 s, 1 thread; medians of {runs} runs, ms")
    print(f"{'GPUs':>5} {'jobs':>5} {'total':>7} {'rest':>6} " + " ".join(f"{p:>11}" for p in _PHASES) + "  not solver")
    with running_service() as service:
        for num_gpus in _SCALES:
            _print_row(service, num_gpus, runs, solver, gap)
    if install:
        _print_installation()


def _print_row(service: Service, num_gpus: int, runs: int, solver: str, gap: float) -> None:
    snapshot = fitted_snapshot(num_gpus)
    options = f'{{"solver": "{solver}", "relative_gap": {gap}, "time_limit_s": 60}}'
    text = f'{{"policy": "sia", "snapshot": {snapshot_to_document(snapshot).model_dump_json()}, "options": {options}}}'
    answers = [service.call("POST", "/v1/plans", text.encode(), wait_s=60) for _ in range(runs)]
    failed = [answer.status for answer in answers if answer.status != 200 or not answer.body["verified"]]
    if failed:
        raise RuntimeError(f"{num_gpus} GPUs: answers {failed} instead of verified plans")
    phases = {name: statistics.median(_phase_ms(answer, name) for answer in answers) for name in _PHASES}
    total = statistics.median(1e3 * answer.elapsed_s for answer in answers)
    others = statistics.median(1 - _phase_ms(answer, "solve") / (1e3 * answer.elapsed_s) for answer in answers)
    rest = total - sum(phases.values())
    cells = " ".join(f"{phases[name]:11.1f}" for name in _PHASES)
    print(f"{num_gpus:5} {len(snapshot.jobs):5} {total:7.0f} {rest:6.0f} {cells} {others:10.0%}", flush=True)


def _phase_ms(answer: Answer, name: str) -> float:
    return float(answer.body["timings"]["phases_ms"].get(name, 0.0))


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
