"""Hosts that somebody names in a file, and plans that are put on them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.parallel_plan import ParallelPlan
from models.wording import counted
from stowplan.errors import InputError, Issue
from topology.readers.hostlist import expand_hostlist

# What Slurm, Kubernetes, MPI and SSH take for one host and nothing else: no list, option, second word or file.
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
HOST_FORM = "must be of letters a to z, digits, and between them dots, dashes and underscores, 253 at most"
# As many nodes as any plan has; keeps lines that stand for very many from filling the memory together.
_MAX_HOSTS, _MAX_ISSUES = 200_000, 1000
_LINE = re.compile(r"(\S+?)(?:(?::|\s+slots=)(\d{1,6}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host; `slots`: GPUs that may be used on it, None where nobody says."""

    name: str
    slots: int | None = None


def read_hosts(text: str) -> tuple[Host, ...]:
    """Read a line per host, with `slots=8` or `:8` behind it as DeepSpeed and MPI have it, or hostlists of Slurm such
    as `node[01-16]`; what follows a # is left out.

    Raises
    ------
    InputError
        Naming the lines that are no hosts, or name one again.
    """
    hosts: dict[str, Host] = {}
    issues: list[Issue] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        for host in _hosts(words, number, issues) if words else ():
            if host.name in hosts:
                detail = f"{host.name} is named again; name every host once"
                if len(issues) < _MAX_ISSUES:
                    issues.append(Issue(code="duplicate_host", pointer=f"/{number}", detail=detail))
            hosts.setdefault(host.name, host)
        if len(hosts) > _MAX_HOSTS:
            raise InputError(f"up to line {number} more than {_MAX_HOSTS} hosts are named")
    if issues:
        raise InputError("the file of hosts is wrong; pointers are numbers of lines", issues)
    if not hosts:
        raise InputError("the file names no host; write one a line")
    return tuple(hosts.values())


def _hosts(line: str, number: int, issues: list[Issue]) -> Iterator[Host]:
    """The hosts of a line; faults go to `issues`."""
    found = _LINE.fullmatch(line)
    try:
        names = expand_hostlist(found[1]) if found is not None else [line]
    except ValueError:
        names = [line]
    if wrong := [name for name in names if not HOST.fullmatch(name)]:
        detail = f"{wrong[0][:60]!r} is no host name; {HOST_FORM}, then perhaps slots=8"
        issues.append(Issue(code="bad_node_name", pointer=f"/{number}", detail=detail))
        return
    slots = int(found[2]) if found is not None and found[2] is not None else None
    if slots == 0:
        issues.append(Issue(code="not_positive", pointer=f"/{number}", detail="has 0 slots; at least 1"))
        return
    yield from (Host(name=name, slots=slots) for name in names)


def on_hosts(plan: ParallelPlan, hosts: tuple[Host, ...]) -> ParallelPlan:
    """The plan with hosts in place of its nodes, in the order of their first rank.

    Raises
    ------
    InputError
        When there are too few hosts, or one has fewer slots than its node has GPUs in the plan.
    """
    indices: dict[str, int] = {}
    for node, gpu in plan.gpus:
        indices[node] = max(indices.get(node, 0), gpu)
    if len(hosts) < len(indices):
        raise InputError(
            f"the plan has {counted(plan.num_gpus, 'rank')} on {counted(len(indices), 'node')}; the file names "
            f"{counted(len(hosts), 'host')}"
        )
    of = dict(zip(indices, hosts, strict=False))
    for node, last in indices.items():
        slots = of[node].slots
        if slots is not None and slots <= last:
            raise InputError(
                f"host {of[node].name} has {counted(slots, 'slot')}; the plan uses GPU {last} (counted from 0) of the "
                "node that it takes the place of: name hosts with more, or plan for --gpus-per-node"
            )
    stages = tuple(
        replace(stage, replicas=tuple(replace(one, node=of[one.node].name) for one in stage.replicas))
        for stage in plan.stages
    )
    return replace(plan, stages=stages)
