"""Every workaround still meets the library that it is for. What needs several ranks is in the tests of equivalence
(stage bounds, gradient norms, times) and of resuming (full disk, universal checkpoints).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import ClassVar

import deepspeed
import pytest
import torch
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.module import PipelineModule

from executor.deepspeed_conversion import refuse_many_ranks
from executor.deepspeed_workarounds import (
    TolerantCheckpointEngine,
    forbid_builds,
    other_versions,
    time_instructions,
    tolerate_full_disks,
    topology_of,
)
from executor.trainer.engine import place_of
from executor.trainer.rank import ENGINES
from executor.training_options import EngineName
from stowplan.errors import InputError
from tests.executor.jobs import LLAMA, tiny_job
from tests.paths import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.training]


def test_installed_versions_are_the_pinned_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_versions() == {}
    monkeypatch.setattr("executor.deepspeed_workarounds.version", {"torch": "2.13.0+cpu", "deepspeed": "1.0"}.get)
    assert other_versions() == {"deepspeed": "1.0"}


def test_shared_memory_extension_is_known_and_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deepspeed.ops.__compatible_ops__, "deepspeed_shm_comm", True)
    forbid_builds()
    assert deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] is False


def test_muon_is_loaded_without_the_compiler() -> None:
    """The first assertion fails when no engine asks any more: the workaround can go."""
    program = """
import inspect, sys
from deepspeed.runtime.zero.utils import is_zero_supported_optimizer
assert "muon_optimizer import" in inspect.getsource(is_zero_supported_optimizer)
from deepspeed.runtime import compiler
from executor.deepspeed_workarounds import load_muon_uncompiled
marking = compiler.compile
load_muon_uncompiled()
assert compiler.compile is marking
assert "deepspeed.runtime.zero.muon.original_muon" in sys.modules
import deepspeed.runtime.zero.muon.muon_optimizer
print("torch._inductor.compile_fx" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["False"]), done.stderr


def test_topology_has_the_order_of_the_job() -> None:
    job = tiny_job(LLAMA, stage_layers=(2, 2), dp=2, tp=2)
    topology = topology_of(2, 2, 2)
    for pipe, data, tensor in product(range(2), repeat=3):
        rank = topology.get_rank(pipe=pipe, data=data, model=tensor)
        assert job.coordinates(rank) == (pipe, data, tensor)


def test_library_still_asks_the_module_for_its_partition() -> None:
    assert callable(PipelineModule._partition_layers)
    assert callable(DeepSpeedEngine._copy_recovery_script)


def test_instructions_are_timed_for_one_engine_only() -> None:
    """All instructions of the library have a name; the map of the class stays as it is."""
    kinds = dict(PipelineEngine._INSTRUCTION_MAP)
    assert kinds.keys() == {
        *(schedule.OptimizerStep, schedule.ReduceGrads, schedule.ReduceTiedGrads, schedule.LoadMicroBatch),
        *(schedule.ForwardPass, schedule.BackwardPass, schedule.SendActivation, schedule.RecvActivation),
        *(schedule.SendGrad, schedule.RecvGrad),
    }
    events: list[str] = []

    @contextmanager
    def span(name: str) -> Iterator[None]:
        events.append(f"{name} begins")
        yield
        events.append(f"{name} ends")

    def _exec_reduce_grads(engine: object, buffer_id: int) -> None:
        events.append(f"{type(engine).__name__} {buffer_id}")

    class Engine:
        _INSTRUCTION_MAP: ClassVar = dict.fromkeys(kinds, _exec_reduce_grads)

    engine = Engine()
    time_instructions(engine, span, lambda: events.append("replica complete"))
    MethodType(engine._INSTRUCTION_MAP[schedule.ReduceGrads], engine)(buffer_id=3)
    assert events == ["replica complete", "reduction begins", "Engine 3", "reduction ends"]
    assert all(function is _exec_reduce_grads for function in Engine._INSTRUCTION_MAP.values())
    assert PipelineEngine._INSTRUCTION_MAP[schedule.ReduceGrads].__name__ == "_exec_reduce_grads"


def test_checkpoint_that_cannot_be_written_is_noted_and_not_raised(tmp_path: Path) -> None:
    engine = SimpleNamespace()
    writer = tolerate_full_disks(engine)
    assert engine.checkpoint_engine is writer
    assert isinstance(writer, TolerantCheckpointEngine)
    engine._copy_recovery_script("nowhere")
    writer.save({"weight": torch.ones(3)}, str(tmp_path / "good.pt"))
    failures = [writer.failure]
    assert torch.equal(torch.load(tmp_path / "good.pt")["weight"], torch.ones(3))
    writer.save({}, str(tmp_path / "missing" / "bad.pt"))
    failures.append(writer.failure)
    assert failures[0] is None
    assert "bad.pt" in str(failures[1])
    # What follows would be of no use.
    writer.save({}, str(tmp_path / "later.pt"))
    writer.makedirs(str(tmp_path / "later"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.pt"]


def test_converter_is_not_given_more_ranks_than_it_can_sort(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="101 model-parallel ranks"):
        refuse_many_ranks(tmp_path, 101)


@pytest.mark.parametrize("engine", ENGINES)
def test_building_an_engine_loads_nothing_late(engine: EngineName) -> None:
    """Whoever waits for a run to be prepared waits for its libraries, too."""
    program = f"""
import importlib, os, sys
from executor.trainer.clock import HostClock
from executor.trainer.engine import place_of
from executor.training_options import EngineName
from tests.executor.jobs import tiny_job
library = importlib.import_module({ENGINES[engine]!r})
job = tiny_job(engine=EngineName({engine.value!r}))
place = place_of(os.environ, job)
library.join(job, place)
before = set(sys.modules)
library.build(job, place, HostClock())
print(sorted(set(sys.modules) - before))
sys.stdout.flush()
os._exit(0 if set(sys.modules) == before else 1)
"""
    meeting = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    libraries = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **libraries, **meeting, "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_process_leaves_without_exit_handlers() -> None:
    program = (
        "import atexit; from executor.trainer.rank import leave_process\n"
        "atexit.register(print, 'handler'); print('work'); leave_process(7)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 7
    assert "work" in ended.stdout
    assert "handler" not in ended.stdout


ENVIRONMENT = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"LOCAL_RANK": "", "MASTER_PORT": ""}, "has not set LOCAL_RANK, MASTER_PORT"),
        ({"RANK": "one"}, "must be whole numbers"),
        ({"WORLD_SIZE": "4"}, "started 4 ranks; the plan has 2"),
    ],
)
def test_wrong_environment_is_refused(changes: dict[str, str], detail: str) -> None:
    """The library would derive a local rank by itself, and a wrong one on uneven hosts."""
    assert place_of(ENVIRONMENT, tiny_job(dp=2)).rank == 1
    with pytest.raises(InputError, match=detail):
        place_of(ENVIRONMENT | changes, tiny_job(dp=2))
