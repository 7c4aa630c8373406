"""Steps of the native engine beside DeepSpeed's, on symmetric plans that both can run, on CPU ranks of this machine.

    python -m benchmarks engine-steps [--num-steps 24] [--sharded]

Every rank has both engines with the same weights and data, and does a step with one, then with the other. Reported are
medians, and the median of the ratios step by step, of wall time and of CPU time over all ranks; the latter is what
others on the machine disturb least. Needs the executor extra.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.rows import Row, show, write
from executor.extra import missing_extra
from executor.launch.local import free_port
from executor.training_job import TrainingJob, write_training_job
from executor.training_layout import StageLayout
from executor.training_options import Device, EngineName
from models.transformer import Precision, Transformer

_SETTLED = 4
_LIMIT_S = 900.0
# Stages, replicas, tensor ranks, ZeRO stage.
_PLANS = ((2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (2, 2, 1, 1))
_SHARDED = ((1, 2, 1, 1), (1, 2, 1, 2), (1, 2, 1, 3))
_PROTOCOL = (
    "4 layers of width 256, 8 sequences of 128 tokens in 4 micro-batches, one thread a rank; both engines in every "
    f"rank, steps in turns, without the first {_SETTLED}; ratios are native over DeepSpeed, medians over steps"
)


def measure(pp: int, dp: int, tp: int, zero_stage: int, precision: Precision, num_steps: int) -> Row:
    """Run both engines on a plan; RuntimeError with the last lines of a rank that fails."""
    with tempfile.TemporaryDirectory() as folder:
        job, result = Path(folder) / "job.json", Path(folder) / "steps.json"
        training = _job(pp, dp, tp, zero_stage, precision)
        write_training_job(training, job)
        command = [
            sys.executable,
            "-P",
            "-m",
            "benchmarks.performance.engine_rank",
            str(job),
            str(num_steps),
            str(result),
        ]
        meeting = {"WORLD_SIZE": str(training.num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        variables = os.environ | meeting | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
        variables |= {"PYTHONPATH": os.pathsep.join(path for path in (os.getcwd(), *sys.path) if path)}
        ranks = [
            subprocess.Popen(
                command,
                env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(training.num_ranks)
        ]
        try:
            said = [rank.communicate(timeout=_LIMIT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            raise RuntimeError("\n".join(output[-2000:] for output in said))
        steps = json.loads(result.read_text())
    slow, fast = steps[EngineName.DEEPSPEED], steps[EngineName.NATIVE]
    pairs = list(zip(slow, fast, strict=True))
    return {
        "plan": f"PP{pp} DP{dp} TP{tp}",
        "zero_stage": zero_stage,
        "precision": precision.value,
        "deepspeed_s": statistics.median(step[0] for step in slow[_SETTLED:]),
        "native_s": statistics.median(step[0] for step in fast[_SETTLED:]),
        "ratio": statistics.median(b[0] / a[0] for a, b in pairs[_SETTLED:]),
        "cpu_ratio": statistics.median(b[1] / a[1] for a, b in pairs[_SETTLED:]),
        "loss_difference": max(abs(a[2] - b[2]) for a, b in pairs),
    }


def _job(pp: int, dp: int, tp: int, zero_stage: int, precision: Precision) -> TrainingJob:
    model = Transformer(
        num_layers=4,
        hidden_size=256,
        vocabulary_size=4096,
        sequence_length=128,
        global_batch=8,
        tied_embeddings=False,
        precision=precision,
        zero_stage=zero_stage,
    )
    stage = StageLayout(num_layers=model.num_layers // pp, tp=tp, batches=(2 // dp,) * dp)
    return TrainingJob(
        model=model,
        stages=(stage,) * pp,
        num_micro_batches=4,
        num_steps=1000,
        engine=EngineName.NATIVE,
        device=Device.CPU,
    )


def main(
    num_steps: Annotated[int, typer.Option(help="Of each engine; the first ones are left out.", min=_SETTLED + 1)] = 24,
    sharded: Annotated[bool, typer.Option(help="Two replicas at ZeRO stages 1, 2 and 3.")] = False,
) -> None:
    """Measure steps of the native engine beside DeepSpeed's on symmetric plans.

    With --sharded at ZeRO 1 to 3, of which DeepSpeed has 2 and 3 without a pipeline, in fp32.
    """
    if missing := missing_extra("a step of both engines"):
        sys.stderr.write(f"{missing}\n")
        raise typer.Exit(2)
    precisions = (Precision.FP32,) if sharded else (Precision.FP32, Precision.BF16)
    plans = _SHARDED if sharded else _PLANS
    rows = [measure(*plan, precision, num_steps) for precision in precisions for plan in plans]
    show("Steps of both engines", rows)
    write("engine_steps_sharded" if sharded else "engine_steps", _PROTOCOL, rows)
