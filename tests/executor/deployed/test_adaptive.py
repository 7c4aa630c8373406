"""A job of Sia whose batch changes with its GPUs, through the controller, on runs without processes."""

from dataclasses import replace
from pathlib import Path

from executor.control.controller import Controller
from executor.control.events import Completion
from executor.control.options import ControlOptions
from executor.progress import ScalingRule
from executor.training_options import EngineName, Schedule
from models.allocation.sia.parameters import SiaParameters
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    ThroughputParameters,
    TypeProfile,
)
from tests.executor.deployed.scenes import Deployed, job_of, submitted
from tests.models.allocation.gang.scenes import cluster
from topology.cluster import NodeState

# A step takes as long whatever its batch: the largest one that its noise allows is best.
_TIMES = ThroughputParameters(alpha_c=1.0, beta_c=0.01, alpha_r=0.01, beta_r=0.0, alpha_n=0.01, beta_n=0.0, gamma=1.0)
_GOODPUT = GoodputModel(
    batch=BatchRange(initial=8, maximum=32),
    gradient=GradientStatistics(squared_norm=1.0, variance=1e3),
    profiles={"a": TypeProfile(parameters=_TIMES, max_local_batch=32)},
)


def test_a_job_gets_another_batch_with_its_gpus(tmp_path: Path) -> None:
    """On one of two nodes while the other one is down, then on both."""
    scene = Deployed.of(tmp_path, cluster(1, 1), (0.0, ("a1", NodeState.DOWN)), (40.0, ("a1", NodeState.UP)))
    schedule = Schedule(scaling=ScalingRule.SQUARE_ROOT, initial_batch=8)
    made = submitted(job_of("j", 1, performance=_GOODPUT))
    training = replace(made.training, schedule=schedule, engine=EngineName.NATIVE)
    scene.tell(1.0, replace(made, training=training))
    controller, batches, left, ended = Controller(scene.backend, ControlOptions(parameters=SiaParameters())), [], [], 0
    while not ended:
        step = controller.step()
        assert step is not None
        ended = sum(isinstance(event, Completion) and event.fault is None for event in step.events)
        if not ended and scene.backend.facts().jobs:
            deployment = scene.backend._jobs["j"]._deployment
            assert deployment is not None
            batches.append((deployment.plan.num_gpus, deployment.model.global_batch))
            left.append(scene.backend.measured("j").iterations_left)
    scene.backend.close()
    (alone, small), (both, large) = dict.fromkeys(batches)
    assert (alone, both) == (1, 2)
    assert small > 8
    assert large >= small
    # Steps at the initial batch: while noise is not known each of the run is one.
    assert left[0] == 100
    assert left[-1] is not None
    assert left[-1] < 100
