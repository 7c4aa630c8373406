"""What programs of users measure where a controller deploys them."""

import json
from pathlib import Path
from unittest.mock import Mock, create_autospec

import pytest

from executor.deployed.learning import Learning
from executor.deployed.measured_runs import MeasuredRuns
from executor.deployment import Deployment, LaunchOptions
from executor.lifecycle import Cause, Run
from executor.own_steps import own_steps_path
from executor.supervision import Supervisor
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.performance.iteration.modelling import performance_model
from tests.executor.deployed.scenes import MODEL, job_of
from tests.models.allocation.gang.scenes import cluster

_PLAN = symmetric_plan(
    num_layers=4,
    pp=1,
    dp=2,
    tp=1,
    global_batch=8,
    num_micro_batches=1,
    gpu_type="a",
    gpus=(("a0", 0), ("a0", 1)),
)


def supervisor_of(folder: Path, plan: ParallelPlan, step_s: float, from_step: int, *steps: int) -> Mock:
    """A run that went on behind `from_step`, as far as told, and has done these steps."""
    path = own_steps_path(folder, 0)
    path.parent.mkdir(parents=True)
    lines = [{"step": step, "started_at_s": 10.0 + step, "step_s": step_s, "loss": 1.0} for step in steps]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = Run(number=2, plan="", cause=Cause.RESTARTED, started_at_s=0.0, from_step=from_step, detail="")
    supervisor: Mock = create_autospec(Supervisor, instance=True)
    supervisor.state.return_value.current = run
    supervisor.state.return_value.runs = (run,)
    supervisor.folder.return_value = folder
    supervisor.deployment.return_value = Deployment(
        name="own", model=MODEL, plan=plan, launch=LaunchOptions(program=("train",))
    )
    supervisor.steps_done.return_value = steps[-1]
    return supervisor


def test_their_steps_set_predictions_and_tables_right(tmp_path: Path) -> None:
    where = cluster(2)
    predicted_s = performance_model(MODEL, where).iteration(_PLAN).total_s
    # It had told of step 7, and went on from its checkpoint behind step 5.
    supervisor = supervisor_of(tmp_path, _PLAN, 1.5 * predicted_s, 7, *range(6, 20))
    run = MeasuredRuns(supervisor).newest(where)
    assert run is not None
    assert (run.launch, run.first_step, run.whole_steps) == (2, 6, True)
    table = ThroughputTable(entries=(TableEntry(gpu_type="a", num_gpus=2, value=8 / predicted_s),))
    learning = Learning(job_of("j", performance=table), None)
    assert learning.take(run)
    learned = learning.learned
    assert learned.step_s == pytest.approx(1.5 * predicted_s)
    after_s = performance_model(MODEL, where, learned.calibration).iteration(_PLAN).total_s
    assert after_s == pytest.approx(learned.step_s, rel=0.15)
    assert isinstance(learned.performance, ThroughputTable)
    assert learned.performance.entries[0].value == pytest.approx(8 / (1.5 * predicted_s))


def test_a_program_that_has_told_nothing_yet_says_nothing(tmp_path: Path) -> None:
    supervisor = supervisor_of(tmp_path, _PLAN, 1.0, 0, 1)
    own_steps_path(tmp_path, 0).write_text("no step\n")
    assert list(MeasuredRuns(supervisor).so_far(cluster(2))) == []
