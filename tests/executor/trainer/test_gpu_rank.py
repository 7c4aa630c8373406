"""The rank of `benchmarks gpu-steps`, on CPU with tiny models."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor extra is not installed")

from executor.metrics import metrics_path, read_metrics
from executor.training_job import write_training_job
from executor.training_options import EngineName
from tests.executor.jobs import tiny_job
from tests.paths import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.training]


def test_a_rank_trains_one_after_another_whatever_becomes_of_them(tmp_path: Path) -> None:
    job = replace(tiny_job(engine=EngineName.NATIVE), num_steps=2)
    jobs = [replace(job, metrics_folder=str(tmp_path / name)) for name in ("first", "broken", "silent", "last")]
    jobs[1] = replace(jobs[1], layers_hook="nowhere:layers")
    jobs[2] = replace(jobs[2], layers_hook="tests.executor.trainer.hooks:fails")
    files = [str(tmp_path / f"{k}.json") for k in range(len(jobs))]
    for one, file in zip(jobs, files, strict=True):
        write_training_job(one, Path(file))
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    variables = os.environ | place | {"MASTER_PORT": str(free_port()), "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-m", "benchmarks.performance.gpu_rank", *files]
    subprocess.run(command, cwd=ROOT, env=variables, check=True)
    for name in ("first", "last"):
        assert [step.step for step in read_metrics(metrics_path(tmp_path / name, 0))] == [1, 2]
    assert (tmp_path / "broken" / "fault.txt").read_text(encoding="utf-8").startswith("InputError: ")
    assert (tmp_path / "silent" / "fault.txt").read_text(encoding="utf-8") == "RuntimeError: \n"
