"""Which deployment has which GPUs, by the hosts at which they are reached."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from executor.deployment import Deployment
from executor.host_gpus import LOCALHOST, gpus_by_host, host_of
from executor.lifecycle import Phase
from executor.spares import moved
from executor.supervision import Supervisor
from models.parallel_plan import Gpu
from stowplan.errors import Issue, pointer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A deployment that has GPUs, by host and index; `what` says of one of them who has it and why."""

    gpus: frozenset[Gpu]
    what: str


def holders_of(who: str, supervisor: Supervisor) -> Iterator[Holder]:
    """GPUs that the deployment of `who` uses, and those to which it may return."""
    state = supervisor.state()
    used = {run.number for run in (state.runs[-2:] if state.phase is Phase.RECONFIGURING else state.runs[-1:])}
    for number in sorted(used):
        yield Holder(gpus=gpus_by_host(supervisor.deployment(number)), what=f"is used by {who}")
    if state.launch is not None:
        due = moved(supervisor.deployment(state.launch.like), state.launch.moves)
        yield Holder(gpus=gpus_by_host(due), what=f"is about to be used by {who}")
    if state.fallback is not None:
        gpus = gpus_by_host(supervisor.deployment(state.fallback))
        yield Holder(gpus=gpus, what=f"is kept for {who} until its new plan has written a checkpoint")


def seen_from(here: str, holder: Holder, there: str) -> Holder:
    """What was told on one machine with all names that its GPUs have on another, or the same; both by host names."""
    gpus = frozenset((there if host == LOCALHOST else host, gpu) for host, gpu in holder.gpus)
    return replace(holder, gpus=gpus | {(LOCALHOST, gpu) for host, gpu in gpus if host == here})


def taken_gpus(deployment: Deployment, holders: Sequence[Holder]) -> list[Issue]:
    """GPUs of a deployment that others have; pointers below `/plan`."""
    mine = gpus_by_host(deployment)
    what = {gpu: holder.what for holder in reversed(holders) for gpu in holder.gpus & mine}
    return [
        Issue(
            code="gpu_taken",
            pointer=pointer_of("plan", "stages", i, "replicas", j, "gpus"),
            detail=f"GPU {gpu} of node {replica.node!r} {what[host_of(deployment, replica.node), gpu]}",
        )
        for i, stage in enumerate(deployment.plan.stages)
        for j, replica in enumerate(stage.replicas)
        for gpu in replica.gpus
        if (host_of(deployment, replica.node), gpu) in what
    ]
