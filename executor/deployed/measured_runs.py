"""Reads what the ranks of a deployed job have measured.

Steps of a run are read when all its ranks have done a few behind the warm-up, and again when they have done as many
more, at the latest after some hundreds.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from executor.deployed.learning import MAX_RUNS
from executor.deployment import Deployment
from executor.lifecycle import Run
from executor.metrics import StepMetrics, metrics_path, newest_metrics
from executor.own_steps import first_own_step, newest_own_steps, own_steps_path
from executor.supervision import Supervisor
from executor.training_options import Device
from models.performance.iteration.step_table import MIN_STEPS, WARM_UP_STEPS, MeasuredRun, StepTable
from stowplan.errors import InputError, StowplanError
from topology.cluster import Cluster

# Steps of all ranks together, and of each: enough for medians, and quick to read.
_MAX_RECORDS, _MIN_STEPS, _MAX_STEPS = 10_000, 8, 200
# Steps behind which a run is read first, and behind which it is read again at the latest.
_FIRST, _OFTEN = WARM_UP_STEPS + MIN_STEPS, 500
# Field of a table of steps -> field of a line, where the names differ.
_COLUMNS = {"small_square": "small_gradient_square", "large_square": "large_gradient_square"}
_logger = logging.getLogger("stowplan.executor.deployed.measured_runs")


class MeasuredRuns:
    """Of the job that a supervisor looks after."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._run, self._due = 0, _FIRST

    def so_far(self, cluster: Cluster) -> Iterator[MeasuredRun]:
        """The newest runs, oldest first, but those that cannot be read."""
        for run in self._supervisor.state().runs[-MAX_RUNS:]:
            try:
                found = self._read(run, cluster)
            except (StowplanError, OSError):
                _logger.exception("what was measured in %s cannot be read", self._supervisor.folder(run.number))
                continue
            if found is not None:
                yield found

    def newest(self, cluster: Cluster) -> MeasuredRun | None:
        """The newest run, where it is due; None else.

        Raises
        ------
        InputError, OSError
            When what it has measured cannot be read; it is not due again at once.
        """
        run = self._supervisor.state().current
        num_steps = self._supervisor.steps_done() - run.from_step
        if num_steps < (self._due if run.number == self._run else _FIRST):
            return None
        self._run, self._due = run.number, num_steps + min(num_steps, _OFTEN)
        return self._read(run, cluster)

    def _read(self, run: Run, cluster: Cluster) -> MeasuredRun | None:
        """None where a rank has measured nothing, or a node is not in the cluster any more."""
        deployment, folder = self._supervisor.deployment(run.number), self._supervisor.folder(run.number) / "metrics"
        num_ranks = len(deployment.ranks())
        used = {node for node, _ in deployment.plan.gpus}
        nodes = tuple(node for node in cluster.nodes if node.id in used)
        if len(nodes) < len(used):
            return None
        where = replace(cluster, nodes=nodes)
        if deployment.launch.program is not None:
            return _told(run, deployment, where, own_steps_path(folder.parent, 0))
        num_steps = min(max(_MAX_RECORDS // num_ranks, _MIN_STEPS), _MAX_STEPS)
        lines = [newest_metrics(metrics_path(folder, rank), num_steps) for rank in range(num_ranks)]
        if not all(lines):
            return None
        measured = _measured(run, deployment, where, lines)
        times_s = measured.records.step_s
        if not (np.isfinite(times_s) & (times_s > 0)).all():
            raise InputError(f"{folder} has steps of which step_s is no number above 0")
        return measured


def _told(run: Run, deployment: Deployment, cluster: Cluster, path: Path) -> MeasuredRun | None:
    """What rank 0 of a program of the user's own tells; None where that is nothing."""
    steps = [step for step in newest_own_steps(path, _MAX_STEPS) if step.step_s > 0]
    first = first_own_step(path)
    if first is None or not steps:
        return None
    return MeasuredRun(
        launch=run.number,
        job=deployment.model,
        plan=deployment.plan,
        cluster=cluster,
        records=StepTable.of_whole_steps(
            np.array([step.step for step in steps]),
            np.array([step.started_at_s for step in steps]),
            np.array([step.step_s for step in steps]),
        ),
        # Its checkpoint may be older than what it has told.
        first_step=first.step,
        whole_steps=True,
    )


def _measured(
    run: Run, deployment: Deployment, cluster: Cluster, lines: Sequence[Sequence[StepMetrics]]
) -> MeasuredRun:
    """`lines`: the newest ones of every rank."""
    launch = max(known[-1].launch for known in lines)
    records = [(rank, line) for rank, known in enumerate(lines) for line in known if line.launch == launch]
    names = [field.name for field in fields(StepTable) if field.name != "rank"]
    columns = {name: np.array([getattr(line, _COLUMNS.get(name, name)) for _, line in records]) for name in names}
    return MeasuredRun(
        # In the order of launches, also where a clock was set.
        launch=run.number,
        job=deployment.model,
        plan=deployment.plan,
        cluster=cluster,
        records=StepTable(rank=np.array([rank for rank, _ in records]), **columns),
        first_step=run.from_step + 1,
        tensor_memory=deployment.training.device is Device.CUDA,
    )
