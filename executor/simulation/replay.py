"""A trace replayed under a policy, by a controller that does not know that time is simulated."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from executor.control.controller import NO_PRICES, Controller, Planner, Step
from executor.control.events import CalendarChange, NodeChange
from executor.simulation.backend import SimulatedBackend
from executor.simulation.figures import (
    Asked,
    DecisionFigures,
    JobRecord,
    ReplayResult,
    distribution,
    hours,
    job_records,
    makespan_of,
)
from executor.simulation.progress import SimulationState, Submission
from executor.simulation.setup import ReplaySetup, covered_trace, truth_of, unusual_parameters
from models.plan import Change
from models.planning import plan
from models.workload import Job
from stowplan.errors import InputError
from topology.cluster import NodeState
from workloads.generators.failures import NodeFailure, node_failures

# Of finish-time fairness: a job that ran alone is at 1.
_ROUNDING = 1e-6

OnStep = Callable[["Replay", Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """A replay between two events; `key` of its setup. decision_cpu_s: of every decision so far; cpu_s: of all. prices:
    of the last plan."""

    key: str
    simulation: SimulationState
    decision_cpu_s: tuple[float, ...]
    num_skipped: int
    cpu_s: float
    prices: Mapping[str, float] = field(default_factory=dict)


class Replay:
    """A replay, event by event.

    Raises
    ------
    InputError
        When the state is of another setup.
    """

    def __init__(self, setup: ReplaySetup, *, state: ReplayState | None = None, planner: Planner = plan) -> None:
        self.setup = setup
        self._truth = truth_of(setup)
        trace = covered_trace(setup, self._truth.covers)
        self._num_left_out = len(setup.trace.jobs) - len(trace.jobs)
        self._jobs = {job.id: job for job in trace.jobs}
        if state is not None and state.key != setup.key():
            raise InputError(
                "the state is of another replay; trace, cluster, policy, parameters and seed must be equal"
            )
        self._backend = SimulatedBackend(
            setup.cluster,
            [Submission(at_s=job.submit_s, job=self._told(job.id)) for job in trace.jobs],
            self._truth,
            changes=_changes(setup),
            horizon_s=math.inf if setup.horizon_s is None else setup.horizon_s,
            state=None if state is None else state.simulation,
        )
        prices = NO_PRICES if state is None else state.prices
        self._controller = Controller(self._backend, setup.control, planner, prices=prices)
        self._decision_cpu_s = [] if state is None else list(state.decision_cpu_s)
        self._num_skipped = 0 if state is None else state.num_skipped
        self._stopped_s: float | None = None
        # Asked for once, not at every step: it is a call of the system.
        self._cpu_before_s = (0.0 if state is None else state.cpu_s) - time.process_time()

    @property
    def now_s(self) -> float:
        """The virtual clock."""
        return self._backend.now_s

    @property
    def num_left(self) -> int:
        """Jobs that have not ended."""
        return self._backend.num_left

    @property
    def num_jobs(self) -> int:
        """Jobs in all."""
        return len(self._jobs)

    def step(self) -> Step | None:
        """The next instant; None at the end.

        Raises
        ------
        UnverifiedPlanError
            When a plan fails the check.
        """
        step = self._controller.step()
        if step is not None and step.decision is not None:
            self._decision_cpu_s.append(step.decision.cpu_s)
        elif step is not None:
            self._num_skipped += 1
        return step

    def run(self, on_step: OnStep | None = None, is_over: Callable[[], bool] = lambda: False) -> ReplayResult:
        """Go on to the end, or to the first instant after which `is_over` says so."""
        while (step := self.step()) is not None:
            if on_step is not None:
                on_step(self, step)
            if self.num_left and is_over():
                self.stop()
                break
        return self.result()

    def stop(self) -> None:
        """Have it end now; the figures are those of a horizon here."""
        self._stopped_s = self.now_s
        self._backend.account()

    def state(self) -> ReplayState:
        """What it takes to go on from here, in another process."""
        return ReplayState(
            key=self.setup.key(),
            simulation=self._backend.state(),
            decision_cpu_s=tuple(self._decision_cpu_s),
            num_skipped=self._num_skipped,
            cpu_s=self._cpu_before_s + time.process_time(),
            prices=dict(self._controller.prices),
        )

    def _told(self, job_id: str) -> Job:
        """What is said of a job when it is submitted."""
        told = self._truth.told(job_id)
        entry = self.setup.reserved_for.get(job_id)
        return told if entry is None else replace(told, calendar_entry=entry)

    def _asked(self, job_id: str) -> Asked:
        job, (alone_s, alone_gpus) = self._jobs[job_id], self._truth.alone(job_id)
        return Asked(num_gpus=job.num_gpus, alone_s=alone_s, alone_gpus=alone_gpus, deadline_s=job.deadline_s)

    def result(self) -> ReplayResult:
        """Figures, once the end is reached."""
        setup = self.setup
        end_s = self.now_s if setup.horizon_s is None or self._stopped_s is not None else setup.horizon_s
        progresses = self._backend.progress()
        asked = {progress.job_id: self._asked(progress.job_id) for progress in progresses}
        jobs = job_records(progresses, asked, end_s, setup.cluster.num_gpus)
        timely = [job.met_deadline for job in jobs if job.met_deadline is not None]
        makespan_s, gpu_hours = makespan_of(jobs), hours(job.gpu_s for job in jobs)
        decision_cpu_s = math.fsum(self._decision_cpu_s)
        return ReplayResult(
            trace=setup.trace.name,
            policy=setup.policy,
            parameters=unusual_parameters(setup.control.parameters),
            seed=setup.seed,
            num_gpus=setup.cluster.num_gpus,
            horizon_s=setup.horizon_s,
            num_jobs=len(jobs),
            num_finished=sum(job.ended_s is not None for job in jobs),
            num_left_out=self._num_left_out,
            completion_s=distribution(job.completion_s for job in jobs),
            weighted_completion_s=_share(
                math.fsum(job.num_gpus * job.completion_s for job in jobs), sum(job.num_gpus for job in jobs)
            ),
            floor_completion_s=distribution(min(job.alone_s, end_s - job.submitted_s) for job in jobs).mean,
            waited_s=distribution(job.waited_s for job in jobs),
            makespan_s=makespan_s,
            utilisation=_share(gpu_hours, hours([setup.cluster.num_gpus * makespan_s])),
            gpu_hours=gpu_hours,
            restarts=_mean_restarts(jobs),
            num_deadlines=len(timely),
            num_deadlines_met=sum(timely),
            most_unfair=max((job.unfairness for job in jobs), default=0.0),
            unfair_share=_share(sum(job.unfairness > 1 + _ROUNDING for job in jobs), len(jobs)),
            failures=sum(job.num_failures for job in jobs),
            decisions=DecisionFigures(
                num_planned=len(self._decision_cpu_s),
                num_skipped=self._num_skipped,
                total_cpu_s=decision_cpu_s,
                cpu_s=distribution(self._decision_cpu_s),
            ),
            other_cpu_s=self._cpu_before_s + time.process_time() - decision_cpu_s,
            jobs=jobs,
            stopped_s=self._stopped_s,
        )


def _changes(setup: ReplaySetup) -> list[NodeChange | CalendarChange]:
    """Calendars that become known, and nodes that go down and come back, by time."""
    nodes: list[NodeChange] = []
    if setup.failures is not None and setup.horizon_s is not None:
        names = [node.id for node in setup.cluster.nodes]
        nodes = node_changes(node_failures(names, setup.horizon_s, setup.failures, setup.seed))
    return sorted([*setup.calendars, *nodes], key=lambda change: change.at_s)


def node_changes(failures: Iterable[NodeFailure]) -> list[NodeChange]:
    """Failures as events, by time."""
    changes = [
        NodeChange(at_s=at_s, node=failure.node, state=state)
        for failure in failures
        for at_s, state in ((failure.down_s, NodeState.DOWN), (failure.up_s, NodeState.UP))
    ]
    return sorted(changes, key=lambda change: (change.at_s, change.node))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean_restarts(jobs: Sequence[JobRecord]) -> dict[str, float]:
    """Of a job on average, by kind."""
    counts: Counter[str] = Counter()
    for job in jobs:
        counts.update(job.restarts)
    return {kind.value: counts[kind.value] / len(jobs) for kind in Change if counts[kind.value]}
