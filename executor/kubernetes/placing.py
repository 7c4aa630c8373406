"""Pods onto hosts: Kubernetes counts GPUs, so what a pod can be told of a plan is its host."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from models.parallel_plan import Gpu
from models.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPods:
    """Pods one after another that go to one host."""

    host: str
    num_pods: int


class UnsayableError(Exception):
    """Kubernetes cannot be told what the plan wants of a job: a stable code, and why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def hosts_of_pods(gpus: Sequence[Gpu], pods: Sequence[int]) -> list[str]:
    """Host of every pod.

    Parameters
    ----------
    gpus
        (host, GPU) of every rank.
    pods
        GPUs that each pod asks for, in the order of ranks.

    Raises
    ------
    UnsayableError
        When the pods ask for another number of GPUs, or one would have ranks on two hosts.
    """
    if sum(pods) != len(gpus):
        raise UnsayableError(
            "other_size",
            f"its pods ask for {counted(sum(pods), 'GPU')}, and the plan gives it {len(gpus)}; the size of a job that "
            "is there cannot be changed",
        )
    hosts: list[str] = []
    rank = 0
    for k, num_gpus in enumerate(pods):
        of = {host for host, _ in gpus[rank : rank + num_gpus]}
        if len(of) != 1:
            raise UnsayableError(
                "pod_on_several_hosts",
                f"pod {k} asks for {counted(num_gpus, 'GPU')}, which the plan has on "
                + (" and ".join(sorted(of)) if of else "no host")
                + "; pods with fewer GPUs, or a plan with whole nodes, go together",
            )
        hosts += of
        rank += num_gpus
    return hosts


def runs_of_hosts(hosts: Iterable[str]) -> tuple[HostPods, ...]:
    """Hosts with the pods one after another that each has."""
    return tuple(HostPods(host=host, num_pods=sum(1 for _ in run)) for host, run in groupby(hosts))
