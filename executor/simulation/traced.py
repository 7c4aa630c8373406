"""Jobs of which only the size is known: each runs as long as it did in the trace."""

from collections.abc import Mapping

from executor.control.backend import Measured
from executor.simulation.truth import Seen, Segment, TruthParameters
from models.plan import JobAllocation
from models.workload import Job
from stowplan.errors import InputError
from workloads.trace import Trace, TraceJob


class TracedDurations:
    """Jobs run as long as they did in the trace, wherever their GPUs are.

    Work is seconds on `num_gpus` GPUs.
    """

    def __init__(self, trace: Trace, parameters: TruthParameters, seed: int) -> None:
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in trace.jobs if self.covers(job)}
        self._parameters = parameters
        self._seed = seed

    def covers(self, job: TraceJob) -> bool:
        """Whether it is known how long the job runs."""
        return job.num_gpus > 0 and job.duration_s is not None

    def told(self, job_id: str) -> Job:
        """Its size, and how long it is said to run."""
        job = self._jobs[job_id]
        return Job(
            id=job_id,
            min_gpus=job.num_gpus,
            priority=job.priority or 1,
            queue=job.queue,
            remaining_s=self.expected_s(job_id, 0.0),
        )

    def work(self, job_id: str) -> float:
        """Its duration."""
        return self._jobs[job_id].duration_s or 0.0

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:  # noqa: ARG002 - the protocol
        """A second per second on its own size, which is the only one it runs on."""
        if allocation.num_gpus != self._jobs[allocation.job_id].num_gpus:
            raise InputError(
                f"job {allocation.job_id!r} gets {allocation.num_gpus} GPUs; it is known only how long it runs on "
                f"{self._jobs[allocation.job_id].num_gpus}"
            )
        return Segment(speed=1.0)

    def learn(self, job_id: str, seen: Seen) -> None:
        """There is nothing to measure."""

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:
        """By the parameters."""
        return self._parameters.delay_s(allocation.num_gpus, is_first=is_first)

    def kept(self, job_id: str, done: float) -> float:  # noqa: ARG002 - the protocol
        """What the last checkpoint has."""
        every_s = self._parameters.checkpoint_s
        return 0.0 if every_s is None else done // every_s * every_s

    def alone(self, job_id: str) -> tuple[float, int]:
        """It starts at once."""
        num_gpus = self._jobs[job_id].num_gpus
        return self._parameters.delay_s(num_gpus, is_first=True) + self.work(job_id), num_gpus

    def expected_s(self, job_id: str, done: float) -> float | None:
        """By the estimate of all its work."""
        whole_s = self._parameters.estimate_s(self._jobs[job_id], self._seed, lambda: self.work(job_id))
        return None if whole_s is None else max(0.0, whole_s - done)

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:  # noqa: ARG002 - the protocol
        """Nobody counts iterations."""
        return Measured()
