"""A trace replayed under a policy, by a controller that does not know that time is simulated."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from executor.control.controller import Controller, ControlOptions, Planner, Step
from executor.control.events import NodeChange
from executor.simulation.backend import SimulatedBackend, SimulationState, Submission
from executor.simulation.figures import (
    DecisionFigures,
    JobRecord,
    ReplayResult,
    distribution,
    hours,
    job_record,
    makespan_of,
)
from executor.simulation.truth import TracedDurations, TracedParameters, Truth
from models.planning import plan
from models.policies import policy_of
from models.workload import Job
from stowplan.errors import InputError
from stowplan.records import to_json
from topology.cluster import Cluster, NodeState
from workloads.generators.failures import FailureParameters, NodeFailure, node_failures
from workloads.trace import Trace

OnStep = Callable[["Replay", Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """What is replayed: a trace on a cluster under the policy that `control` names.

    horizon_s: nothing happens after it (None: until all jobs have ended). failures: of nodes, which need a horizon.
    seed: of failures and noise.
    """

    cluster: Cluster
    trace: Trace
    control: ControlOptions
    traced: TracedParameters = field(default_factory=TracedParameters)
    failures: FailureParameters | None = None
    horizon_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.horizon_s is not None and not 0 < self.horizon_s < math.inf:
            raise InputError(f"the horizon is {self.horizon_s} s; must be a number above 0")
        if self.failures is not None and self.horizon_s is None:
            raise InputError("failures of nodes are drawn until a horizon; give one")

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return policy_of(self.control.parameters).name

    def key(self) -> str:
        """Tells setups apart: where a replay goes on, it must be the same."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """A replay between two events; `key` of its setup. decision_cpu_s: of every decision so far; cpu_s: of all."""

    key: str
    simulation: SimulationState
    decision_cpu_s: tuple[float, ...]
    num_skipped: int
    cpu_s: float


class Replay:
    """A replay, event by event.

    Raises
    ------
    InputError
        When the state is of another setup.
    """

    def __init__(self, setup: ReplaySetup, *, state: ReplayState | None = None, planner: Planner = plan) -> None:
        self.setup = setup
        trace = setup.trace.where(lambda job: job.num_gpus > 0 and job.duration_s is not None)
        self._num_left_out = len(setup.trace.jobs) - len(trace.jobs)
        self._truth: Truth = TracedDurations(trace, setup.traced, setup.seed)
        self._num_gpus = {job.id: job.num_gpus for job in trace.jobs}
        if state is not None and state.key != setup.key():
            raise InputError(
                "the state is of another replay; trace, cluster, policy, parameters and seed must be equal"
            )
        self._backend = SimulatedBackend(
            setup.cluster,
            _submissions(trace, self._truth),
            self._truth,
            changes=_changes(setup),
            horizon_s=math.inf if setup.horizon_s is None else setup.horizon_s,
            state=None if state is None else state.simulation,
        )
        self._controller = Controller(self._backend, setup.control, planner)
        self._decision_cpu_s = [] if state is None else list(state.decision_cpu_s)
        self._num_skipped = 0 if state is None else state.num_skipped
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
        return len(self._num_gpus)

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

    def run(self, on_step: OnStep | None = None) -> ReplayResult:
        """Go on to the end."""
        while (step := self.step()) is not None:
            if on_step is not None:
                on_step(self, step)
        return self.result()

    def state(self) -> ReplayState:
        """What it takes to go on from here, in another process."""
        return ReplayState(
            key=self.setup.key(),
            simulation=self._backend.state(),
            decision_cpu_s=tuple(self._decision_cpu_s),
            num_skipped=self._num_skipped,
            cpu_s=self._cpu_before_s + time.process_time(),
        )

    def result(self) -> ReplayResult:
        """Figures, once the end is reached."""
        setup = self.setup
        end_s = self.now_s if setup.horizon_s is None else setup.horizon_s
        jobs = tuple(
            job_record(progress, self._num_gpus[progress.job_id], end_s, self._truth.alone_s(progress.job_id))
            for progress in self._backend.progress()
        )
        makespan_s, gpu_hours = makespan_of(jobs), hours(job.gpu_s for job in jobs)
        decision_cpu_s = math.fsum(self._decision_cpu_s)
        return ReplayResult(
            trace=setup.trace.name,
            policy=setup.policy,
            seed=setup.seed,
            num_gpus=setup.cluster.num_gpus,
            horizon_s=setup.horizon_s,
            num_jobs=len(jobs),
            num_finished=sum(job.ended_s is not None for job in jobs),
            num_left_out=self._num_left_out,
            completion_s=distribution(job.completion_s for job in jobs),
            floor_completion_s=distribution(job.alone_s for job in jobs).mean,
            waited_s=distribution(job.waited_s for job in jobs),
            makespan_s=makespan_s,
            utilisation=_share(gpu_hours, hours([setup.cluster.num_gpus * makespan_s])),
            gpu_hours=gpu_hours,
            restarts=_mean_restarts(jobs),
            failures=sum(job.num_failures for job in jobs),
            decisions=DecisionFigures(
                num_planned=len(self._decision_cpu_s),
                num_skipped=self._num_skipped,
                total_cpu_s=decision_cpu_s,
                cpu_s=distribution(self._decision_cpu_s),
            ),
            other_cpu_s=self._cpu_before_s + time.process_time() - decision_cpu_s,
            jobs=jobs,
        )


def _submissions(trace: Trace, truth: Truth) -> list[Submission]:
    return [
        Submission(
            at_s=job.submit_s,
            job=Job(
                id=job.id,
                min_gpus=job.num_gpus,
                priority=job.priority or 1,
                queue=job.queue,
                remaining_s=truth.expected_s(job.id, 0.0),
            ),
        )
        for job in trace.jobs
    ]


def _changes(setup: ReplaySetup) -> list[NodeChange]:
    """Nodes that go down and come back."""
    if setup.failures is None or setup.horizon_s is None:
        return []
    names = [node.id for node in setup.cluster.nodes]
    return node_changes(node_failures(names, setup.horizon_s, setup.failures, setup.seed))


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


def _mean_restarts(jobs: tuple[JobRecord, ...]) -> float:
    return sum(job.num_restarts for job in jobs) / len(jobs) if jobs else 0.0
