"""Trains on hosts in network namespaces and measures the steps of one run."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.paths import ROOT
from benchmarks.placement.namespaces import INTERFACE, NamespaceBackend, Network
from benchmarks.placement.placement_choices import MODEL
from executor.bundle import write_bundle
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.base import LaunchBackend, RunState
from executor.metrics import StepMetrics, metrics_path, read_metrics
from executor.training_options import Device
from models.parallel_plan import ParallelPlan

# Imports and the first meeting of the ranks belong to no step.
SKIPPED_STEPS = 4
_RUN_LIMIT_S = 900.0
_POLL_S = 0.2
# Shorter windows tell little about who else works here.
_WINDOW_S = 2.0
_ASK_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run of a job.

    `hosts` in rank order. `step_s`: median over the steps behind the first ones; a step takes as long as its slowest
    rank. `losses`: of all steps. `uplink_bytes_per_step`: what the leaves sent up. `busy_before`: share of the CPUs
    that others used just before.
    """

    hosts: tuple[str, ...]
    step_s: float
    losses: tuple[float, ...]
    uplink_bytes_per_step: float
    busy_before: float


def measured(
    network: Network,
    plan: ParallelPlan,
    folder: Path,
    *,
    num_steps: int,
    python: str,
    backend: LaunchBackend | None = None,
    command: tuple[str, ...] | None = None,
) -> MeasuredRun:
    """Deploy a plan on the network, train, and take the run down.

    Parameters
    ----------
    python
        Interpreter of the ranks, with torch and deepspeed.
    backend
        What starts the agents on the hosts; None: we do.
    command
        What becomes a rank in place of the trainer.

    Raises
    ------
    RuntimeError
        When the run fails or does not end in time, with the last lines of its log.
    """
    busy = busy_share()
    deployment = Deployment(
        name="placement",
        model=MODEL,
        plan=plan,
        training=TrainingOptions(num_steps=num_steps, device=Device.CPU, checkpoint_interval=0),
        launch=LaunchOptions(
            # Ranks meet at the address of the first one's host.
            backend="slurm",
            addresses=network.addresses,
            python=python,
            command=command,
            environment={"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        ),
    )
    write_bundle(deployment, folder, folder / "checkpoints")
    backend = backend or NamespaceBackend(network)
    try:
        backend.start(folder)
        first = metrics_path(folder / "metrics", 0)
        _wait(backend, folder, lambda: len(_steps(first)) >= SKIPPED_STEPS)
        seen, sent = len(_steps(first)), network.uplink_bytes()
        _wait(backend, folder, lambda: len(_steps(first)) >= num_steps)
        sent = network.uplink_bytes() - sent
        _wait(backend, folder, lambda: backend.status(folder).state is RunState.SUCCEEDED)
    finally:
        backend.stop(folder, grace_s=1.0)
    ranks = [_steps(metrics_path(folder / "metrics", rank)) for rank in range(plan.num_gpus)]
    slowest = [max(step.step_s for step in steps) for steps in zip(*ranks, strict=True)]
    return MeasuredRun(
        hosts=tuple(host for host, _ in plan.gpus),
        step_s=median(slowest[SKIPPED_STEPS:]),
        losses=tuple(step.loss for step in ranks[0]),
        uplink_bytes_per_step=sent / (num_steps - seen),
        busy_before=busy,
    )


def loss_difference(runs: Sequence[MeasuredRun]) -> float:
    """Largest difference between two runs in the loss of the same step."""
    return float(max(max(losses) - min(losses) for losses in zip(*(run.losses for run in runs), strict=True)))


def busy_share() -> float:
    """Share of the CPUs that is in use, over a short while."""
    before, start_s = _idle_s(), time.monotonic()
    time.sleep(_WINDOW_S)
    idle = (_idle_s() - before) / (time.monotonic() - start_s)
    return max(0.0, 1.0 - idle / _num_cpus())


def wait_for_quiet(limit_share: float, patience_s: float) -> None:
    """Wait until others use less than a share of the CPUs, or patience ends."""
    end_s = time.monotonic() + patience_s
    while busy_share() > limit_share and time.monotonic() < end_s:
        time.sleep(_WINDOW_S)


def versions_of(python: str) -> str | None:
    """What the ranks will train with (`torch 2.13.0, deepspeed 0.19.8`); None where something is missing."""
    names = ("torch", "deepspeed")
    code = f"from importlib.metadata import version; print(*(version(name) for name in {names}))"
    try:
        done = subprocess.run(
            [python, "-P", "-c", code], capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ", ".join(f"{name} {found}" for name, found in zip(names, done.stdout.split(), strict=True))


def _wait(backend: LaunchBackend, folder: Path, until: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _RUN_LIMIT_S
    while not until():
        status = backend.status(folder)
        if status.state in (RunState.FAILED, RunState.STOPPED) or time.monotonic() > end_s:
            said = "\n".join(line for rank in status.dead for line in rank.last_lines)
            raise RuntimeError(f"the run in {folder} is {status.state}: {status.detail}\n{said}")
        time.sleep(_POLL_S)


def _steps(path: Path) -> list[StepMetrics]:
    return list(read_metrics(path)) if path.exists() else []


def _idle_s() -> float:
    """Seconds that all CPUs together were idle since the start of the machine."""
    return float(Path("/proc/uptime").read_text().split()[1])


def _num_cpus() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return sum(line.startswith("cpu") and line[3].isdigit() for line in lines)
