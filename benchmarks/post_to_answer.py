"""From POST to answer, split by phase: `python -m benchmarks.post_to_answer --runs 5`.

Posts the jobs of a busy moment of Sia's Helios trace 1 (every job submitted K times on K x 64 GPUs, as its authors
scale it) with their fitted goodput models, waits for the plan, and prints medians over the runs: the service's own
phases, the rest of the round trip (HTTP, JSON, queue, hand-over to the worker, storing), and the share of everything
but the solver. Also the start-up time of the service and, with `--install`, time and size of an installation
without extras. Needs the published traces beside the checkout.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from api.convert.snapshot import snapshot_to_document
from benchmarks.published.sia_traces import fitted_snapshot
from benchmarks.service.process import Answer, Service, running_service

_SCALES = (64, 512, 2048)
_PHASES = ("validate", "performance", "build", "solve", "place", "verify")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--solver", default="highs")
    parser.add_argument("--gap", type=float, default=1e-4)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    starts = []
    for _ in range(arguments.starts):
        with running_service() as service:
            starts.append(service.start_s)
    print(f"start-up until /readyz: median {statistics.median(starts):.2f} s of {arguments.starts} starts")
    print(
        f"solver {arguments.solver}, gap {arguments.gap:g}, limit 60 s, 1 thread; medians of {arguments.runs} runs, ms"
    )
    print(f"{'GPUs':>5} {'jobs':>5} {'total':>7} {'rest':>6} " + " ".join(f"{p:>11}" for p in _PHASES) + "  not solver")
    with running_service() as service:
        for num_gpus in _SCALES:
            _print_row(service, num_gpus, arguments.runs, arguments.solver, arguments.gap)
    if arguments.install:
        _print_installation()
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
