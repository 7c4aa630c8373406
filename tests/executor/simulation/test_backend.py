"""The backend's own account of GPUs and work, which trusts no plan and no policy."""

import pytest

from executor.control.actions import Place, Stop
from executor.control.events import Arrival, Completion, Failure, NodeChange, Tick
from executor.simulation.backend import SimulatedBackend
from executor.simulation.progress import Submission
from executor.simulation.traced import TracedDurations
from executor.simulation.truth import TruthParameters
from models.workload import Job
from stowplan.errors import InputError
from tests.executor.control.test_controller import given_to
from tests.models.allocation.gang.scenes import cluster
from tests.workloads.jobs import jobs_of
from topology.cluster import NodeState


def backend(*changes: NodeChange) -> SimulatedBackend:
    """Jobs a and b of 4 GPUs and 100 s, submitted at 0, on two nodes of 4."""
    trace = jobs_of((0, 4, 100), (0, 4, 100))
    submissions = [Submission(at_s=0.0, job=Job(id=name, min_gpus=4)) for name in ("a", "b")]
    truth = TracedDurations(trace, TruthParameters(start_s=10.0, restart_s=20.0, checkpoint_s=30.0), seed=0)
    made = SimulatedBackend(cluster(4, 4), submissions, truth, changes=changes)
    assert [type(event) for event in made.next_events()] == [Arrival, Arrival]
    return made


def test_no_gpu_is_given_twice() -> None:
    made = backend()
    made.act([Place(allocation=given_to("a", a0=range(4)))])
    with pytest.raises(AssertionError, match="cannot have"):
        made.act([Place(allocation=given_to("b", a0=range(4)))])


def test_a_node_that_is_down_takes_no_job() -> None:
    made = backend(NodeChange(at_s=5.0, node="a1", state=NodeState.DOWN))
    made.act([Place(allocation=given_to("a", a0=range(4)))])
    made.next_events()
    with pytest.raises(AssertionError, match="cannot have"):
        made.act([Place(allocation=given_to("b", a1=range(4)))])


def test_a_job_runs_on_its_own_size_alone() -> None:
    made = backend()
    made.act([Place(allocation=given_to("a", a0=range(2)))])
    with pytest.raises(InputError, match="known only how long it runs on 4"):
        made.next_events()


def test_work_is_credited_at_the_speed_at_which_it_was_done() -> None:
    """a starts at 0 (10 s of delay), stops at 50 with 40 done, starts again (20 s), and breaks at 120 with 90 done, of
    which a checkpoint has 90; its last 10 take until 120 + 20 + 10."""
    made = backend(NodeChange(at_s=120.0, node="a0", state=NodeState.DOWN))
    made.act([Place(allocation=given_to("a", a0=range(4)))])
    made.wake_at(50.0)
    assert made.next_events() == (Tick(at_s=50.0),)
    made.act([Stop(job_id="a"), Place(allocation=given_to("b", a1=range(4)))])
    made.act([Place(allocation=given_to("a", a0=range(4)))])
    broken, change = made.next_events()
    assert (broken, change.at_s) == (Failure(at_s=120.0, job_id="a", remaining_s=10.0), 120)
    first, _ = made.progress()
    assert (first.done, first.lost, first.gpu_s) == (90, 0, 4 * 120)
    assert made.next_events() == (Completion(at_s=160.0, job_id="b"),)
    made.act([Place(allocation=given_to("a", a1=range(4)))])
    assert made.next_events() == (Completion(at_s=190.0, job_id="a"),)
    assert made.next_events() == ()


def test_a_job_may_not_end_with_work_undone() -> None:
    """Somebody has set its end too early."""
    made = backend()
    made.act([Place(allocation=given_to("a", a0=range(4)))])
    made.progress()[0].speed = 0.5
    with pytest.raises(AssertionError, match="of 100"):
        made.next_events()
