"""Jobs of which a step takes a GPU second, simulated and deployed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from executor.control.backend import ClusterBackend, Measured
from executor.control.controller import Controller, Step
from executor.control.events import Completion
from executor.control.options import ControlOptions
from executor.deployed.backend import DeployedBackend
from executor.deployed.job import Patience
from executor.deployed.learning import Learning
from executor.deployed.submission import Submission, deployment_of
from executor.deployment import LaunchOptions, TrainingOptions
from executor.simulation.truth import Seen, Segment
from executor.training_options import Device
from models.parallel_plan import ParallelPlan
from models.performance.iteration.step_table import MeasuredRun, StepTable
from models.plan import JobAllocation
from models.transformer import Precision, Transformer
from models.workload import Job
from tests.executor.deployed.scripted import ScriptedBackend, VirtualClock
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, NodeState
from workloads.trace import TraceJob

MODEL = Transformer(
    num_layers=4,
    hidden_size=64,
    vocabulary_size=96,
    sequence_length=32,
    global_batch=8,
    num_heads=4,
    precision=Precision.FP32,
)
CHECKPOINT_STEPS = 30


def job_of(id_: str, num_gpus: int = 2, steps: int = 100, **more: Any) -> Job:
    """A job that says how long it runs on its GPUs."""
    told: dict[str, Any] = {"remaining_s": steps / num_gpus, "transformer": MODEL} | more
    return Job(id=id_, min_gpus=num_gpus, **told)


def submitted(job: Job, steps: int = 100, **launch: Any) -> Submission:
    """The job with as many steps, without processes."""
    training = TrainingOptions(num_steps=steps, device=Device.CPU, checkpoint_interval=CHECKPOINT_STEPS)
    return Submission(job=job, training=training, launch=LaunchOptions(**({"backend": "scripted"} | launch)))


class Linear:
    """A `Truth`: a step takes a GPU second, nothing has a delay, and every 30 steps there is a checkpoint."""

    def __init__(self, jobs: Sequence[Submission]) -> None:
        self._jobs = {one.job.id: one for one in jobs}

    def covers(self, job: TraceJob) -> bool:
        return job.id in self._jobs

    def told(self, job_id: str) -> Job:
        return self._jobs[job_id].job

    def work(self, job_id: str) -> float:
        return float(self._jobs[job_id].training.num_steps)

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:  # noqa: ARG002
        return Segment(speed=float(allocation.num_gpus))

    def learn(self, job_id: str, seen: Seen) -> None:
        """Nothing is measured."""

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:  # noqa: ARG002
        return 0.0

    def kept(self, job_id: str, done: float) -> float:  # noqa: ARG002
        return done // CHECKPOINT_STEPS * CHECKPOINT_STEPS

    def alone(self, job_id: str) -> tuple[float, int]:
        return self.work(job_id), 1

    def expected_s(self, job_id: str, done: float) -> float | None:
        whole_s = self.told(job_id).remaining_s
        return None if whole_s is None else whole_s * (self.work(job_id) - done) / self.work(job_id)

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:  # noqa: ARG002
        return Measured(iterations_left=max(1.0, self.work(job_id) - done))


class Measuring(Linear):
    """What ranks measure becomes known, at the first decision that finds enough steps of the run done."""

    def __init__(self, jobs: Sequence[Submission], where: Cluster) -> None:
        super().__init__(jobs)
        self._where = where
        self._learning = {
            one.job.id: Learning(
                one.job, None if one.job.remaining_s is None else one.job.remaining_s / one.training.num_steps
            )
            for one in jobs
        }
        # Number, plan and first step of the newest run.
        self._runs: dict[str, tuple[int, ParallelPlan, int]] = {}

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:
        one, (number, *_) = self._jobs[allocation.job_id], self._runs.get(allocation.job_id, (0,))
        calibration = self._learning[one.job.id].learned.calibration or one.job.calibration
        told = replace(one, job=replace(one.job, calibration=calibration))
        self._runs[one.job.id] = number + 1, deployment_of(told, allocation, self._where).plan, int(done) + 1
        return super().segment(allocation, done, batch)

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:
        learning = self._learning[job_id]
        if job_id in self._runs:
            number, plan, first = self._runs[job_id]
            learning.take(run_of(number, plan, self._where, first, int(done)))
        known = super().measured(job_id, done, batch)
        return replace(known, calibration=learning.learned.calibration, performance=learning.learned.performance)


def run_of(number: int, plan: ParallelPlan, where: Cluster, first: int, last: int) -> MeasuredRun:
    """What the ranks of a run measure in these steps, as `pretend_training.metrics` has it."""
    num_ranks, steps = len(plan.gpus), range(first, last + 1)
    rank, step = np.tile(np.arange(num_ranks), len(steps)), np.repeat(np.array(steps, dtype=np.int64), num_ranks)
    step_s = np.full(rank.shape, 1.0 / num_ranks)
    used = {node for node, _ in plan.gpus}
    return MeasuredRun(
        launch=number,
        job=MODEL,
        plan=plan,
        cluster=replace(where, nodes=tuple(node for node in where.nodes if node.id in used)),
        records=StepTable(
            rank=rank,
            step=step,
            started_at_s=np.zeros_like(step_s),
            step_s=step_s,
            forward_s=step_s / 4,
            backward_s=step_s / 2,
            reduction_s=np.zeros_like(step_s),
            optimizer_s=step_s / 4,
            peak_memory_bytes=np.ones_like(step_s),
            small_square=np.ones_like(step_s),
            large_square=np.ones_like(step_s),
        ),
        first_step=first,
    )


@dataclass(slots=True)
class Deployed:
    """A deployed cluster under a virtual clock; `told`: what happens at which second: a job, (node, state), or the
    entries of the calendar on that clock."""

    root: Path
    cluster: Cluster
    clock: VirtualClock
    backend: DeployedBackend

    @classmethod
    def of(cls, root: Path, cluster: Cluster, *told: tuple[float, Any]) -> "Deployed":
        clock = VirtualClock()
        ScriptedBackend.reset(clock)
        made = cls(root, cluster, clock, backend_of(root, cluster, clock))
        for at_s, what in told:
            made.tell(at_s, what)
        return made

    def tell(self, at_s: float, what: Submission | tuple[str, NodeState] | list[CalendarEntry]) -> None:
        backend, line = self.backend, partial[None]
        if isinstance(what, Submission):
            told = line(backend.submit, what)
        elif isinstance(what, list):
            told = line(backend.change_calendar, [entry.seen_at(at_s) for entry in what])
        else:
            told = line(backend.change_node, *what)
        self.clock.script.append((at_s, told))
        self.clock.script.sort(key=lambda line: line[0])

    def taken_over(self, cluster: Cluster | None = None) -> "Deployed":
        """Another process in the place of this one."""
        self.backend.close()
        where = cluster or self.cluster
        return Deployed(self.root, where, self.clock, backend_of(self.root, where, self.clock))


def backend_of(root: Path, cluster: Cluster, clock: VirtualClock) -> DeployedBackend:
    # Between two events of the script nothing is to be seen.
    return DeployedBackend(root, cluster, patience=Patience(max_faults=2, pause_s=5.0), poll_s=1e9, clock=clock)


def steps_of(backend: ClusterBackend, options: ControlOptions, num_jobs: int) -> list[Step]:
    """Control until so many jobs have ended."""
    controller, steps, ended = Controller(backend, options), [], 0
    while ended < num_jobs:
        step = controller.step()
        assert step is not None
        steps.append(step)
        ended += sum(isinstance(event, Completion) for event in step.events)
    return steps
