"""Spare hosts in plans whose stages and shares differ."""

from dataclasses import replace

import pytest

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.spares import moved, replacements
from executor.training_options import EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage
from stowplan.errors import InputError
from tests.executor.jobs import GPT

# Shares of three and one on two hosts, then a tensor group on a third one.
PLAN = ParallelPlan(
    stages=(
        Stage(
            num_layers=3,
            replicas=(
                Replica(node="a", gpu_type="h100", gpus=(1,), local_batch=3),
                Replica(node="b", gpu_type="h100", gpus=(0,), local_batch=1),
            ),
        ),
        Stage(num_layers=1, replicas=(Replica(node="c", gpu_type="h100", gpus=(0, 1), local_batch=4),)),
    ),
    num_micro_batches=2,
)
DEPLOYMENT = Deployment(
    name="job",
    model=GPT,
    plan=PLAN,
    training=TrainingOptions(engine=EngineName.NATIVE),
    launch=LaunchOptions(backend="slurm", spares=("c", "d", "e", "f")),
)


def test_a_spare_has_the_share_of_the_host_that_is_lost() -> None:
    """c is used itself; ranks, shares and degrees stay."""
    hosts = replacements(DEPLOYMENT, ("b", "a"))
    assert hosts == {"b": "d", "a": "e"}
    after = moved(DEPLOYMENT, hosts)
    assert after.plan.notation() == PLAN.notation()
    assert after.plan.gpus == (("e", 1), ("d", 0), ("c", 0), ("c", 1))
    assert [replica.local_batch for replica in after.plan.stages[0].replicas] == [3, 1]
    assert after.launch.spares == ("c", "f")


def test_hosts_of_several_types_have_no_spares() -> None:
    first, last = PLAN.stages
    other = replace(last, replicas=tuple(replace(replica, gpu_type="a100") for replica in last.replicas))
    with pytest.raises(InputError, match=r"/launch/spares: must be left out: .* 'a100', 'h100'"):
        replace(DEPLOYMENT, plan=replace(PLAN, stages=(first, other)))


def test_too_few_spares_are_none() -> None:
    assert replacements(DEPLOYMENT, ("a", "b", "c", "x")) == {}
