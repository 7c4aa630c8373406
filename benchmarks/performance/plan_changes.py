"""What a training waits for when its plan changes: `python -m benchmarks plan-changes` (CPU ranks of this machine).

A small transformer goes from two replicas to two stages in four ways, which take turns:
- transferred: the next ranks meet and build their engines beside the run that trains, and get the state from its ranks
  (engine native)
- prepared: likewise, but they read the checkpoint with which that run ends
- libraries: they only load their libraries then, as where both runs have a GPU
- checkpoint-resume: the run is stopped with a checkpoint, and the next one started when it is over
The stall goes from the end of the last step before to the beginning of the first one after the change, as the runs
measured it; its parts add up. The same folder, checkpoints and supervisor in all ways, which look every 50 ms while
nothing trains. Shown are medians; `times` is over the prepared change. `moved`: of the state, in bytes, to ranks in
other places; `least`: what the ranks in the same places had not; `state`: of a checkpoint.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer

from benchmarks.paths import ROOT
from benchmarks.placement.placement_runs import versions_of
from benchmarks.rows import Row, median, show, write
from executor.deployment import DEFAULT_PORT, Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import DeploymentState, Phase
from executor.metrics import read_metrics
from executor.run_files import Preparation
from executor.run_folders import RunFolders
from executor.stall import Stall
from executor.supervision import Supervisor
from executor.training_job import DEFAULT_CHUNK_BYTES
from executor.training_options import Device, EngineName
from models.parallel_plan import symmetric_plan
from models.transformer import Precision, Transformer

_WAYS = ("transferred", "prepared", "libraries", "checkpoint-resume")
_POLL_S = 0.05
_LIMIT_S = 600.0
# Before the change, and after it.
_NUM_STEPS = 4
_PARTS = tuple(field.name for field in fields(Stall))


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Changes in each way.")] = 3,
    hidden: Annotated[int, typer.Option(min=64, help="Width of the model, a multiple of 64.")] = 256,
    python: Annotated[str, typer.Option(help="Interpreter of the ranks.")] = sys.executable,
) -> None:
    """Change the plan of a training beside it, and by stopping it: what it waits for, by part."""
    versions = versions_of(python)
    if versions is None:
        print(f"skipped: {python} has no torch and deepspeed; name one that has: --python")
        return
    found: dict[tuple[EngineName, str], list[Row]] = {
        (engine, way): []
        for engine in EngineName
        for way in _WAYS
        if engine is EngineName.NATIVE or way != "transferred"
    }
    for _ in range(rounds):
        for engine, way in found:
            with tempfile.TemporaryDirectory() as folder:
                row = _changed(Path(folder) / "job", way, _deployment(engine, way, hidden, python))
            found[engine, way].append(row)
            print(f"{engine} {way}: {row['stall_s']:.2f} s", flush=True)
    rows = [_row(engine, way, runs, found[engine, "prepared"]) for (engine, way), runs in found.items()]
    protocol = f"{rounds} changes in each way, in turns; hidden size {hidden}; {versions}; {__doc__}"
    show(f"Seconds without training, medians of {rounds}", [_brief(row) for row in rows])
    print(write("plan_changes", protocol, rows))


def _deployment(engine: EngineName, way: str, hidden: int, python: str) -> Deployment:
    """Two replicas on two hosts."""
    chunk_bytes = DEFAULT_CHUNK_BYTES if way == "transferred" else 0
    model = Transformer(
        num_layers=8,
        hidden_size=hidden,
        vocabulary_size=8192,
        sequence_length=64,
        global_batch=8,
        num_heads=hidden // 64,
        precision=Precision.FP32,
    )
    return Deployment(
        name="changes",
        model=model,
        plan=symmetric_plan(
            num_layers=8,
            pp=1,
            dp=2,
            tp=1,
            global_batch=8,
            num_micro_batches=2,
            gpu_type="cpu",
            gpus=(("a", 0), ("b", 0)),
        ),
        training=TrainingOptions(
            num_steps=1_000_000,
            engine=engine,
            device=Device.CPU,
            checkpoint_interval=0,
            transfer_chunk_bytes=chunk_bytes,
        ),
        launch=LaunchOptions(
            master_port=DEFAULT_PORT + 300,
            python=python,
            environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        ),
    )


def _in_stages(before: Deployment) -> Deployment:
    plan = symmetric_plan(
        num_layers=8,
        pp=2,
        dp=1,
        tp=1,
        global_batch=8,
        num_micro_batches=4,
        gpu_type="cpu",
        gpus=before.plan.gpus,
    )
    return replace(before, plan=plan)


def _changed(root: Path, way: str, before: Deployment) -> Row:
    """Train, change the plan, train, end; seconds of the stall by part."""
    supervisor = Supervisor(root, LocalBackend())
    with _ended(supervisor), patch("executor.supervision.preparation_beside", _preparation(way)):
        supervisor.deploy(before)
        _until(supervisor, lambda _: supervisor.status().step >= _NUM_STEPS)
        if way == "checkpoint-resume":
            supervisor.stop()
            _until(supervisor, lambda state: state.phase.final)
        supervisor.reconfigure(_in_stages(before))
        state = _until(supervisor, lambda state: state.phase is Phase.RUNNING and state.current.cost_s is not None)
        _until(supervisor, lambda _: supervisor.status().step >= state.current.from_step + _NUM_STEPS)
    runs = RunFolders(root)
    old, new = (list(read_metrics(runs.folder(number) / "metrics" / "metrics-rank0.jsonl")) for number in (1, 2))
    if [step.step for step in (*old, *new)] != list(range(1, len(old) + len(new) + 1)):
        raise RuntimeError("the change has lost or repeated a step")
    stall = runs.stall(1, 2, old[-1].started_at_s + old[-1].step_s, new[0].started_at_s)
    if stall is None:
        raise RuntimeError("rank 0 has not said when it began")
    parts = {name: float(getattr(stall, name)) for name in _PARTS}
    usual_s = median([step.step_s for step in new[1:]]) or 0.0
    movement = runs.movement(2)
    if (movement is not None) != (way == "transferred"):
        raise RuntimeError(f"the state came otherwise than {way} says")
    moved = {
        name: 0 if movement is None else getattr(movement, f"{name}_bytes") for name in ("moved", "least", "state")
    }
    return {"stall_s": stall.total_s, **parts, "first step_s": new[0].step_s, "usual step_s": usual_s, **moved}


def _preparation(way: str) -> Callable[[Deployment, Deployment], Preparation]:
    return lambda *_: Preparation.LIBRARIES if way == "libraries" else Preparation.ENGINE


@contextmanager
def _ended(supervisor: Supervisor) -> Iterator[None]:
    """End all runs behind the block."""
    try:
        yield
    finally:
        for folder in sorted((supervisor.root / "runs").iterdir()):
            LocalBackend().stop(folder, grace_s=1.0)


def _until(supervisor: Supervisor, holds: Callable[[DeploymentState], bool]) -> DeploymentState:
    end_s = time.monotonic() + _LIMIT_S
    while not holds(state := supervisor.advance()):
        if state.phase is Phase.FAILED or time.monotonic() > end_s:
            raise RuntimeError(f"the training is {state.phase}: {state.detail}")
        time.sleep(_POLL_S)
    return state


def _row(engine: EngineName, way: str, runs: list[Row], prepared: list[Row]) -> dict[str, object]:
    medians = _medians(runs)
    return {
        "engine": engine.value,
        "change": way,
        **medians,
        "times": medians["stall_s"] / _medians(prepared)["stall_s"],
        "runs": runs,
    }


def _medians(runs: list[Row]) -> Mapping[str, float]:
    names = runs[0]
    return {name: median([float(str(run[name])) for run in runs]) or 0.0 for name in names}


def _brief(row: Row) -> Row:
    """What fits a line: without parts that are nothing anywhere."""
    return {name.removesuffix("_s"): value for name, value in row.items() if name not in ("runs", "other_s")}
