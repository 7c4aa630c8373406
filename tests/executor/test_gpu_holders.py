"""Who has which GPUs: the run, the one that is about to begin, the one that may come back."""

from dataclasses import replace
from typing import cast

from executor.deployment import Deployment, LaunchOptions
from executor.gpu_holders import Holder, holders_of, taken_gpus
from executor.host_gpus import gpus_by_host, preparation_beside
from executor.lifecycle import Cause, DeploymentState, Launch, Phase, Run
from executor.run_files import Preparation
from executor.supervision import Supervisor
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT

SSH = LaunchOptions(backend="ssh", addresses={"a": "me@host-a"})


def on(*nodes: str, launch: LaunchOptions = SSH) -> Deployment:
    """Two GPUs of each node."""
    gpus = tuple((node, gpu) for node in nodes for gpu in (0, 1))
    plan = symmetric_plan(
        num_layers=4, pp=1, dp=len(gpus), tp=1, global_batch=8, num_micro_batches=1, gpu_type="h100", gpus=gpus
    )
    return Deployment(name="llm", model=GPT, plan=plan, launch=launch)


class Supervised:
    """What a supervisor says of a deployment."""

    def __init__(self, state: DeploymentState, *deployments: Deployment) -> None:
        self._state, self._deployments = state, deployments

    def state(self) -> DeploymentState:
        return self._state

    def deployment(self, number: int) -> Deployment:
        return self._deployments[number]


def state_of(phase: Phase, num_runs: int) -> DeploymentState:
    runs = tuple(Run(number=k, plan="", cause=Cause.DEPLOYED, started_at_s=0.0) for k in range(num_runs))
    return DeploymentState(name="llm", phase=phase, runs=runs, phase_since_s=0.0)


def held(state: DeploymentState, *deployments: Deployment) -> list[tuple[set[str], str]]:
    """Hosts, and what is said of them."""
    supervisor = cast("Supervisor", Supervised(state, *deployments))
    return [({host for host, _ in holder.gpus}, holder.what) for holder in holders_of("job j", supervisor)]


def test_a_run_has_its_gpus_and_a_change_those_of_both() -> None:
    assert held(state_of(Phase.RUNNING, 2), on("a"), on("b")) == [({"b"}, "is used by job j")]
    assert held(state_of(Phase.RECONFIGURING, 3), on("c"), on("a"), on("b")) == [
        ({"host-a"}, "is used by job j"),
        ({"b"}, "is used by job j"),
    ]


def test_what_is_to_begin_and_what_may_come_back_is_kept() -> None:
    launch = Launch(like=1, cause=Cause.RESTARTED, detail="", moves={"b": "spare"})
    state = replace(state_of(Phase.STARTING, 2), launch=launch, fallback=0)
    assert held(state, on("a"), on("b")) == [
        ({"b"}, "is used by job j"),
        ({"spare"}, "is about to be used by job j"),
        ({"host-a"}, "is kept for job j until its new plan has written a checkpoint"),
    ]


def test_hosts_count_by_their_addresses() -> None:
    assert gpus_by_host(on("a", "b")) == {("host-a", 0), ("host-a", 1), ("b", 0), ("b", 1)}
    assert gpus_by_host(on("a", launch=LaunchOptions(backend="local"))) == {("localhost", 0), ("localhost", 1)}
    on_cpus = replace(on("a"), training=replace(on("a").training, device=Device.CPU))
    assert gpus_by_host(on_cpus) == frozenset()


def test_a_run_is_prepared_to_the_end_where_it_has_its_gpus_to_itself() -> None:
    assert preparation_beside(on("b"), on("a")) is Preparation.ENGINE
    assert preparation_beside(on("a", "b"), on("a")) is Preparation.LIBRARIES
    # Another name of the same host.
    assert preparation_beside(on("host-a"), on("a")) is Preparation.LIBRARIES
    on_cpus = replace(on("a"), training=replace(on("a").training, device=Device.CPU))
    assert preparation_beside(on_cpus, on_cpus) is Preparation.ENGINE


def test_taken_gpus_are_named_with_who_has_them_first() -> None:
    holders = [
        Holder(gpus=frozenset({("b", 1)}), what="is used by job x"),
        Holder(gpus=frozenset({("b", 1), ("host-a", 0), ("c", 0)}), what="is kept for job y"),
    ]
    assert [(issue.code, issue.pointer, issue.detail) for issue in taken_gpus(on("a", "b"), holders)] == [
        ("gpu_taken", "/plan/stages/0/replicas/0/gpus", "GPU 0 of node 'a' is kept for job y"),
        ("gpu_taken", "/plan/stages/0/replicas/3/gpus", "GPU 1 of node 'b' is used by job x"),
    ]
    assert taken_gpus(on("d"), holders) == []
