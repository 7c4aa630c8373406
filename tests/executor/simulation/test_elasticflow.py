"""Deadlines over time: who was admitted and has begun is in time."""

import math

import pytest

from executor.control.options import ControlOptions
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from models.allocation.elasticflow.parameters import ElasticFlowParameters
from models.plan import PlanOutcome, PlanRequest
from tests.executor.simulation.scenes import Watched, gantt
from tests.models.placement.scenes import cluster, dice, node
from workloads.throughputs import Throughput
from workloads.trace import Trace, TraceJob, sorted_trace

ROWS = tuple(
    Throughput(application="m", global_batch=1, gpu_type="a", num_gpus=n, num_nodes=1, samples_per_s=speed)
    for n, speed in ((1, 1.0), (2, 1.8), (4, 3.0), (8, 4.5))
)


def replay_of(trace: Trace, watched: Watched | None = None) -> dict[str, tuple[float, float]]:
    """When each job began and ended."""
    control = ControlOptions(parameters=ElasticFlowParameters(slot_s=30.0))
    setup = ReplaySetup(cluster=cluster(node("n0", 8)), trace=trace, throughputs=ROWS, control=control)
    done = gantt(Replay(setup, planner=watched or Watched()))
    return {name: (began or 0.0, ended or math.inf) for name, (began, ended) in done.items()}


def job(name: str, submit_s: float, iterations: float, deadline_s: float | None) -> TraceJob:
    return TraceJob(
        id=name,
        submit_s=submit_s,
        num_gpus=2,
        iterations=iterations,
        application="m",
        global_batch=1,
        deadline_s=deadline_s,
    )


class Admissions(Watched):
    """Keeps who has had GPUs with its deadline guaranteed."""

    def __init__(self) -> None:
        super().__init__()
        self.admitted: set[str] = set()

    def __call__(self, request: PlanRequest) -> PlanOutcome:
        outcome = super().__call__(request)
        assert outcome.plan is not None
        has_gpus = {item.job_id for item in outcome.plan.allocations}
        met = {term.job_id or "" for term in outcome.plan.score if term.term == "deadline_met"}
        self.admitted |= has_gpus & met
        return outcome


def test_a_job_is_refused_so_that_another_is_in_time() -> None:
    """`x` needs all 8 GPUs, 4.5/s for 200 of its 240 s; `y`, alone in time on them too, is best effort when it is too
    late for that."""
    jobs = [job("x", 0, 900, 240), job("y", 5, 450, 155)]
    watched = Admissions()
    done = replay_of(sorted_trace("two", jobs), watched)
    assert watched.admitted == {"x"}
    assert done["x"][1] <= 240
    assert done["y"][1] > 160


@pytest.mark.parametrize("seed", range(3))
def test_every_admitted_job_is_in_time(seed: int) -> None:
    """30 jobs, more than 8 GPUs can do until then; no noise, and starts cost nothing."""
    rng, jobs, submit_s = dice(seed), [], 0.0
    for k in range(30):
        submit_s += rng.expovariate(1 / 60)
        work = rng.choice((100.0, 300.0, 900.0))
        deadline_s = work / 1.8 * rng.uniform(0.5, 1.5) if rng.random() < 0.9 else None
        jobs.append(job(f"j{k}", submit_s, work, deadline_s))
    due = {one.id: one.submit_s + one.deadline_s for one in jobs if one.deadline_s}
    watched = Admissions()
    done = replay_of(sorted_trace("made", jobs), watched)
    assert 10 <= len(watched.admitted) < len(due)
    assert {name for name in watched.admitted if done[name][1] > due[name] + 1e-6} == set()
