"""Replays side by side give what they give one after another, and end when a worker cannot."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from executor.simulation import processes
from executor.simulation.processes import replay_all
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import TruthParameters
from solver.monitor import SolveMonitor
from stowplan.errors import InputError, WorkerError
from tests.executor.simulation.scenes import setup_of
from tests.executor.simulation.test_replay import FOUR
from workloads.trace import sorted_trace

pytestmark = pytest.mark.slow
SETUPS = [setup_of(FOUR, 8, truth=TruthParameters(noise=0.5), seed=seed) for seed in range(3)]


def dying(setup: ReplaySetup, monitor: SolveMonitor) -> None:  # noqa: ARG001 - the pool's convention
    """A task that is killed whenever it is begun."""
    with Path(setup.trace.name).open("a") as file:
        file.write("begun\n")
    os._exit(9)


def test_results_come_in_order_and_are_those_of_one_process() -> None:
    apart = [(result.seed, result.jobs) for result in replay_all(SETUPS, 2)]
    assert apart == [(setup.seed, Replay(setup).run().jobs) for setup in SETUPS]


def test_what_a_replay_refuses_is_raised_here() -> None:
    unknown = replace(SETUPS[0], trace=sorted_trace("vague", [replace(FOUR.jobs[0], duration_s=None)]))
    with pytest.raises(InputError, match="none of the 1 jobs of 'vague' has GPUs and a duration"):
        list(replay_all([SETUPS[0], unknown], 1))


def test_a_worker_that_dies_twice_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "_TASK", f"{__name__}:dying")
    setup = replace(SETUPS[0], trace=replace(FOUR, name=str(tmp_path / "log")))
    with pytest.raises(WorkerError):
        list(replay_all([setup], 1))
    assert (tmp_path / "log").read_text() == "begun\nbegun\n"
