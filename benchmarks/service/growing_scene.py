"""A cluster whose controller asks Suika after every event, and one elastic job on it that changes its plan.

    f1: short    f2, f3: long        short ends       long grows onto f1, with a plan that is not symmetric
    f1: urgent   f2, f3: long        urgent arrives   long gives f1 back
    f1: urgent   s1, s2: long        f2 is drained    long goes to GPUs of the other type, and leaves f2 and f3

Every node has two GPUs, which ranks on CPUs stand for. The ranks share the processors of a machine, so that policies
are not told how long steps take; what changes of plan cost they are told.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from executor.control.actions import Action
from executor.control.controller import Controller, Step
from executor.control.options import ControlOptions
from executor.deployed.backend import DeployedBackend
from executor.deployed.submission import Submission
from executor.launch.backends import launch_backend
from executor.lifecycle import Run
from executor.metrics import StepMetrics, metrics_path, read_metrics
from executor.run_folders import RunFolders
from executor.stall import Stall
from executor.supervision import Supervisor
from models.allocation.suika.parameters import SuikaParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.transformer import Transformer
from models.workload import Job, Parallelism
from topology.cluster import Cluster, GpuType, Node, NodeState

FAST, SLOW = "fast", "slow"
LONG = "long"
# Links are stated to be so slow that stages of unequal degrees are the best use of six GPUs.
_BANDWIDTH_BYTES_PER_S = 1e8
_PEAKS = {FAST: 6e10, SLOW: 4e10}
_END_S = 30.0
_POLL_S = 0.05


def cluster_of(fast: Sequence[str], slow: Sequence[str] = ()) -> Cluster:
    """Nodes of two GPUs each, of two types."""
    kinds = tuple(
        GpuType(
            name=name,
            memory_bytes=4 * 2**30,
            peak_flops_per_s=peak,
            intra_node_bandwidth_bytes_per_s=_BANDWIDTH_BYTES_PER_S,
            inter_node_bandwidth_bytes_per_s=_BANDWIDTH_BYTES_PER_S,
        )
        for name, peak in _PEAKS.items()
    )
    typed = [(node, kind) for kind, nodes in ((FAST, fast), (SLOW, slow)) for node in nodes]
    return Cluster(gpu_types=kinds, nodes=tuple(Node(id=node, gpu_type=kind, num_gpus=2) for node, kind in typed))


def long_job(model: Transformer) -> Job:
    """Two stages of two replicas, and up to two GPUs more."""
    return Job(id=LONG, min_gpus=4, max_gpus=6, transformer=model, parallelism=Parallelism(tp=1, pp=2, dp=2))


def rigid_job(id_: str, model: Transformer) -> Job:
    """Two replicas on fast GPUs."""
    degrees = Parallelism(tp=1, pp=1, dp=2)
    return Job(id=id_, min_gpus=2, max_gpus=2, gpu_types=(FAST,), transformer=model, parallelism=degrees)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that changes something: `prices_s`, what each job was said to lose when it gets other GPUs."""

    at_s: float
    events: tuple[str, ...]
    prices_s: Mapping[str, float]
    actions: tuple[Action, ...]


@dataclass(slots=True)
class Loop:
    """The controller over deployments below `root`, in a thread of its own for as long as the block takes; `say` is
    told of every decision that changes something."""

    root: Path
    cluster: Cluster
    say: Callable[[Decided], None] = lambda _: None
    decided: list[Decided] = field(default_factory=list)
    _backend: DeployedBackend = field(init=False)
    _thread: threading.Thread = field(init=False)
    _launched: dict[str, str] = field(default_factory=dict)
    _prices_s: Mapping[str, float] = field(default_factory=dict)
    _fault: BaseException | None = None

    def __enter__(self) -> "Loop":
        self._backend = DeployedBackend(self.root, self.cluster, poll_s=_POLL_S, learns=False)
        self._thread = threading.Thread(target=self._control)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.close()
        self._thread.join(_END_S)
        for name, backend in self._launched.items():
            for folder in sorted((self.root / name / "runs").glob("*")):
                launch_backend(backend).stop(folder, grace_s=1.0)

    def submit(self, submission: Submission) -> None:
        """Have a job arrive."""
        self._launched[submission.name] = submission.launch.backend
        self._backend.submit(submission)

    def drain(self, node: str) -> None:
        """Say that a node takes no work any more."""
        self._backend.change_node(node, NodeState.DRAINED)

    def until(self, holds: Callable[[], object], what: str, limit_s: float) -> None:
        """Wait; RuntimeError where it takes too long, or the controller has ended."""
        end_s = time.monotonic() + limit_s
        while not holds():
            if self._fault is not None or time.monotonic() > end_s:
                raise RuntimeError(f"{what} has not happened; decided so far: {self.decided}") from self._fault
            time.sleep(_POLL_S)

    def until_trained(self, run: int, num_steps: int, limit_s: float) -> None:
        """Wait until a run of the long job has done so many steps, and what its start has cost is known."""

        def holds() -> bool:
            runs = self.runs()
            return len(runs) == run and runs[-1].cost_s is not None and len(self.steps(run)) >= num_steps

        self.until(holds, f"run {run} of job {LONG}", limit_s)

    def runs(self) -> tuple[Run, ...]:
        """Of the long job."""
        supervisor = self._supervisor()
        return supervisor.state().runs if supervisor.exists else ()

    def steps(self, *runs: int) -> list[StepMetrics]:
        """Of some runs of the long job, or of all."""
        folders = [self._supervisor().folder(run) for run in runs or range(1, 1 + len(self.runs()))]
        paths = [metrics_path(folder / "metrics", 0) for folder in folders]
        return [step for path in paths if path.exists() for step in read_metrics(path)]

    def stall(self, run: int) -> Stall:
        """What the long job waited for before a run, from its last step before; RuntimeError where that is not told."""
        (*_, last), (first, *_) = self.steps(run - 1), self.steps(run)
        folders = RunFolders(self.root / LONG)
        stall = folders.stall(run - 1, run, last.started_at_s + last.step_s, first.started_at_s)
        if stall is None:
            raise RuntimeError(f"rank 0 of run {run} has not said when it began")
        return stall

    def losses(self) -> list[float]:
        """Of all steps of the long job; RuntimeError where one is lost or repeated."""
        steps = self.steps()
        if any(after.step != before.step + 1 for before, after in pairwise(steps)) or steps[0].step != 1:
            raise RuntimeError(f"a change has lost or repeated a step: {[step.step for step in steps]}")
        return [step.loss for step in steps]

    def _supervisor(self) -> Supervisor:
        return Supervisor(self.root / LONG, launch_backend(self._launched[LONG]))

    def _control(self) -> None:
        controller = Controller(self._backend, ControlOptions(parameters=SuikaParameters()), self._planned)
        try:
            while (step := controller.step()) is not None:
                self._note(step)
        except BaseException as error:
            self._fault = error
            raise

    def _planned(self, request: PlanRequest) -> PlanOutcome:
        self._prices_s = {job.id: job.restart_cost_s for job in request.snapshot.jobs}
        return plan(request)

    def _note(self, step: Step) -> None:
        if step.decision is None or not step.decision.actions:
            return
        events = tuple(
            f"{type(event).__name__} {getattr(event, 'job_id', '') or getattr(event, 'node', '')}".strip()
            for event in step.events
        )
        decided = Decided(at_s=step.at_s, events=events, prices_s=self._prices_s, actions=step.decision.actions)
        self.decided.append(decided)
        self.say(decided)
