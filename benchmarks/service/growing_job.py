"""A running job that Suika grows onto released GPUs: `python -m benchmarks growing-job` (CPU ranks of this machine).

A transformer trains under the native engine on two stages of two ranks. Another job ends, and the controller gives its
GPUs to the first one: six ranks, in a plan that is not symmetric. Then a job arrives that takes two of them back, and a
node is drained, from which the job goes to GPUs of another type. Every change in three ways:
- transferred: the next ranks meet and build their engines beside the run that trains, and get the state from its ranks
- prepared: likewise, but they read the checkpoint with which that run ends
- checkpoint-resume: the run is stopped with a checkpoint, and the next one started when it is over
Shown are the decisions, with the price of a restart that the policy was told, the plans, and what the training waited
for, by part, from the end of the last step before to the beginning of the first one after; `times` is over the first
way. `moved`: of the state, in bytes, to ranks in other places; `least`: what the ranks in the same places had not;
`state`: of a checkpoint. In the end the losses stand beside those of a run on one rank whose plan never changed
(`losses_apart`: at most). The GPUs are stated ones, and ranks share processors, so that policies are not told how long
steps take. `told_s` in the result is what later decisions are told that a restart costs; it begins with the launch of
the next run where that was later.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer

from benchmarks.paths import ROOT
from benchmarks.placement.placement_runs import versions_of
from benchmarks.rows import Row, show, write
from benchmarks.service.growing_scene import FAST, Decided, Loop, cluster_of, long_job, rigid_job
from executor.control.actions import Stop
from executor.deployed.job import DeployedJob
from executor.deployed.submission import Submission
from executor.deployment import DEFAULT_PORT, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import Run
from executor.metrics import metrics_path, read_metrics
from executor.stall import Stall
from executor.supervision import Supervisor
from executor.training_job import DEFAULT_CHUNK_BYTES
from executor.training_options import Device, EngineName, Schedule
from models.parallel_plan import symmetric_plan
from models.transformer import Precision, Transformer
from models.workload import Job

# The first is what the others are compared with. Bytes of the state that may be on their way at a time, and what makes
# jobs change so.
_WAYS: Mapping[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
    "transferred": (DEFAULT_CHUNK_BYTES, nullcontext),
    "prepared": (0, nullcontext),
    "checkpoint-resume": (0, partial(patch.object, DeployedJob, "_can_overlap", lambda *_: False)),
}
_CHANGES = ("grow", "shrink", "move")
_PARTS = tuple(field.name for field in fields(Stall))
# Six GPUs of the stated ones train it fastest in two stages of unequal degrees.
MODEL = Transformer(
    num_layers=4,
    hidden_size=512,
    vocabulary_size=1024,
    sequence_length=64,
    global_batch=8,
    num_heads=8,
    precision=Precision.FP32,
)
_SCHEDULE = Schedule(warmup_steps=10, decay_steps=10_000)
_LIMIT_S = 900.0
# Of the long job between two changes.
_NUM_STEPS = 5
_ENDLESS = 1_000_000
# What training in another order of sums may differ by.
_TOLERANCE = 1e-5


def main(
    short_steps: Annotated[int, typer.Option(min=1, help="Steps of the job that releases its GPUs.")] = 40,
    python: Annotated[str, typer.Option(help="Interpreter of the ranks.")] = sys.executable,
) -> None:
    """Grow a running job onto released GPUs, shrink and move it: decisions, plans, what it waits for, losses."""
    versions = versions_of(python)
    if versions is None:
        print(f"skipped: {python} has no torch and deepspeed; name one that has: --python")
        return
    found: list[tuple[int, Row]] = []
    for way, (chunk_bytes, changing) in _WAYS.items():
        print(way, flush=True)
        with tempfile.TemporaryDirectory() as folder, changing():
            rows, losses = _looped(Path(folder) / "cluster", short_steps, python, chunk_bytes)
            apart = _apart(losses, _unchanged(Path(folder) / "alone", len(losses), python))
        print(f"  loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps, {apart:.1e} off an unchanged run")
        named = ({"change": name, "way": way, **row} for name, row in zip(_CHANGES, rows, strict=True))
        found += enumerate({**row, "losses_apart": apart} for row in named)
    ordered = [row for _, row in sorted(found, key=itemgetter(0))]
    first_s = {row["change"]: _stall_s(row) for row in ordered if row["way"] == next(iter(_WAYS))}
    rows = [{**row, "times": _stall_s(row) / first_s[row["change"]]} for row in ordered]
    show("Seconds without training", [_brief(row) for row in rows])
    print(write("growing_job", f"{versions}; {__doc__}", rows))


def _looped(root: Path, short_steps: int, python: str, chunk_bytes: int) -> tuple[list[Row], list[float]]:
    """Grow, shrink and move the long job; a row of every change, and the losses of all steps."""
    with Loop(root, cluster_of(("f1", "f2", "f3"), ("s1", "s2")), _say) as loop:
        loop.submit(_submission(rigid_job("short", MODEL), 0, python, short_steps))
        loop.submit(_submission(long_job(MODEL), 1, python, chunk_bytes=chunk_bytes))
        loop.until_trained(1, _NUM_STEPS, _LIMIT_S)
        loop.until_trained(2, _NUM_STEPS, _LIMIT_S)
        loop.submit(_submission(rigid_job("urgent", MODEL), 2, python))
        loop.until_trained(3, _NUM_STEPS, _LIMIT_S)
        loop.drain("f2")
        loop.until_trained(4, _NUM_STEPS, _LIMIT_S)
        rows = [_row(run, loop.stall(run.number)) for run in loop.runs()[1:]]
        return rows, loop.losses()


def _row(run: Run, stall: Stall) -> Row:
    parts = {name: float(getattr(stall, name)) for name in _PARTS}
    moved = {
        name: 0 if run.movement is None else getattr(run.movement, f"{name}_bytes")
        for name in ("moved", "least", "state")
    }
    return {"plan": run.plan, "kind": str(run.change), "told_s": run.cost_s, "stall_s": stall.total_s, **parts, **moved}


def _submission(job: Job, number: int, python: str, num_steps: int = _ENDLESS, *, chunk_bytes: int = 0) -> Submission:
    """A job under the native engine; `number` keeps its ports from those of others."""
    training = TrainingOptions(
        num_steps=num_steps,
        engine=EngineName.NATIVE,
        device=Device.CPU,
        schedule=_SCHEDULE,
        checkpoint_interval=0,
        transfer_chunk_bytes=chunk_bytes,
    )
    launch = LaunchOptions(
        master_port=DEFAULT_PORT + 400 + 10 * number,
        python=python,
        environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    return Submission(job=job, training=training, launch=launch)


def _unchanged(root: Path, num_steps: int, python: str) -> list[float]:
    """Losses of as many steps of the long job on one rank."""
    submission = _submission(long_job(MODEL), 3, python, num_steps)
    batch = MODEL.global_batch
    alone = symmetric_plan(
        num_layers=MODEL.num_layers,
        pp=1,
        dp=1,
        tp=1,
        global_batch=batch,
        num_micro_batches=1,
        gpu_type=FAST,
        gpus=(("f1", 0),),
    )
    supervisor = Supervisor(root, LocalBackend())
    supervisor.deploy(submission.with_plan(alone))
    end_s = time.monotonic() + _LIMIT_S
    try:
        while not (state := supervisor.advance()).phase.final:
            if time.monotonic() > end_s:
                raise RuntimeError(f"the unchanged run has not ended after {_LIMIT_S:.0f} s")
            time.sleep(supervisor.rest_s(state))
    finally:
        LocalBackend().stop(supervisor.folder(1), grace_s=1.0)
    return [step.loss for step in read_metrics(metrics_path(supervisor.folder(1) / "metrics", 0))]


def _apart(losses: list[float], alone: list[float]) -> float:
    """Largest difference between losses; RuntimeError where it is more than sums in another order make."""
    apart = max(abs(one - other) for one, other in zip(losses, alone, strict=True))
    if not apart <= _TOLERANCE:
        raise RuntimeError(f"the losses are up to {apart:.1e} off those of an unchanged run; {_TOLERANCE:.0e} is right")
    return apart


def _say(decided: Decided) -> None:
    """Print a decision."""
    print(f"  {decided.at_s:6.1f} s  {', '.join(decided.events)}")
    for action in decided.actions:
        if isinstance(action, Stop):
            print(f"            {action.job_id}: stopped")
            continue
        given, price_s = action.allocation, decided.prices_s[action.allocation.job_id]
        plan = "" if given.parallel_plan is None else given.parallel_plan.notation()
        told = f"; a restart was told to cost {price_s:.1f} s" if price_s else ""
        nodes = ", ".join(part.node for part in given.gpus)
        print(f"            {given.job_id}: {given.change} on {nodes}: {plan}{told}", flush=True)


def _stall_s(row: Row) -> float:
    return float(str(row["stall_s"]))


def _brief(row: Row) -> Row:
    """What fits a line."""
    hidden = ("plan", "kind", "told_s", "conversion_s", "other_s", "least", "state", "losses_apart")
    return {name.removesuffix("_s"): value for name, value in row.items() if name not in hidden}
