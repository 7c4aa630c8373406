"""What a rank says when it cannot start: one clear line and exit code 2, before it waits for anybody."""

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from executor.training_job import TrainingJob, write_training_job
from executor.training_options import Device
from tests.executor.jobs import tiny_job
from tests.executor.trainer.launching import Ranks
from tests.paths import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.training]

ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": ""}


def _start(*arguments: str, **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "executor.trainer", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


def test_job_file_is_needed() -> None:
    code, output = _start()
    assert code == 2
    stamp, said = output.split(" ", 1)
    assert datetime.fromisoformat(stamp).tzinfo is not None
    assert said == "ERROR rank ? stowplan.executor.trainer: usage: python -P -m executor.trainer job.json\n"


def test_wrong_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    write_training_job(tiny_job(), path)
    path.write_text(path.read_text().replace('"num_micro_batches": 4', '"num_micro_batches": 8'))
    code, output = _start(str(path))
    assert code == 2
    assert "are 16; the model's global batch is 8" in output


def test_what_the_host_lacks_is_said(tmp_path: Path) -> None:
    write_training_job(tiny_job(device=Device.CUDA), tmp_path / "job.json")
    code, output = _start(str(tmp_path / "job.json"), **ALONE, MASTER_PORT=str(free_port()))
    assert code == 2
    assert "local rank 0 needs a GPU; this host shows 0" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("job", "detail"),
    [
        (tiny_job(token_file="/nowhere/tokens.bin"), "/nowhere/tokens.bin cannot be read"),  # noqa: S106
        (tiny_job(layers_hook="nowhere:layers"), "the layers hook nowhere:layers cannot be imported"),
    ],
)
def test_what_cannot_be_read_is_said(job: TrainingJob, detail: str, tmp_path: Path) -> None:
    """Of ranks that are forked: what they are told on the command line is tested above."""
    with Ranks(job, tmp_path) as running:
        ended = running.wait()
    assert ended.codes == [2]
    assert detail in ended.output[0]
    assert "Traceback" not in ended.output[0]
