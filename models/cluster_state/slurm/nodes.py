"""Nodes as `scontrol show nodes --json` has them (before Slurm 23.02: `sinfo --json`), those with whole GPUs."""

from collections.abc import Set
from dataclasses import dataclass

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.gpus import KnownGpus
from models.cluster_state.slurm.gres import parse_gres
from models.cluster_state.slurm.records import Record, slurm_records
from topology.cluster import NodeState

COMMAND = "scontrol show nodes --json"
# All that is read of a node.
NODE_FIELDS = (
    *("name", "state", "state_flags", "reason", "gres", "gres_used", "partitions"),
    *("last_busy", "slurmd_start_time"),
)
# What Slurm says of a state, as flags or instead of it: nothing runs there; it takes no new work; it is no node yet.
_DOWN = frozenset({"DOWN", "ERROR", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND", "POWERING_DOWN", "REBOOT_ISSUED"})
_DRAINED = frozenset({"DRAIN", "FAIL", "REBOOT_REQUESTED", "INVALID_REG", "POWER_DRAIN", "POWER_DOWN", "BLOCKED"})
_NO_NODE = frozenset({"FUTURE", "DYNAMIC_FUTURE", "INVALID"})
# Closed by a reservation, which the calendar says better.
_RESERVED = frozenset({"RESERVED", "MAINTENANCE", "MAINT"})
_MAX_GPUS = 4096
_REASON_CHARS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node with GPUs of one type."""

    name: str
    gpu_type: str
    num_gpus: int
    state: NodeState
    reason: str | None
    partitions: frozenset[str]
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNodes:
    """The nodes that are planned, by name; those that are not, with the reason; and the last moment that they tell of,
    in seconds since 1970 (0: none)."""

    document: SourceDocument
    planned: dict[str, SlurmNode]
    left_out: dict[str, str]
    seen_s: float


def read_nodes(
    document: SourceDocument, gpus: KnownGpus, notes: Notes, *, partition: str | None, has_calendar: bool
) -> SlurmNodes:
    """Read the nodes.

    Parameters
    ----------
    partition
        Only its nodes are planned; None for all.
    has_calendar
        Whether reservations are known; without them nodes that are reserved now take no work.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    planned: dict[str, SlurmNode] = {}
    left_out: dict[str, str] = {}
    partitions: set[str] = set()
    seen_s = 0.0
    for record in slurm_records(document, "nodes", COMMAND, NODE_FIELDS):
        name = record.text("name")
        if not name:
            raise record.fault("name", "is missing; must be the name of the node")
        if name in planned or name in left_out:
            raise record.fault("name", f"node {name!r} stands there twice")
        own = frozenset(record.words("partitions"))
        partitions |= own
        seen_s = max(seen_s, record.time_s("last_busy") or 0.0, record.time_s("slurmd_start_time") or 0.0)
        states = states_of(record)
        why = _left_out(record, states, own, partition)
        if why is not None:
            code, left_out[name] = why
            notes.add(code, document, record.pointer, f"node {name!r} {left_out[name]}; it is left out")
            continue
        planned[name] = _node(record, name, states, own, gpus, has_calendar=has_calendar)
    if partition is not None and partition not in partitions:
        raise document.fault(f"no node is in a partition {partition!r}; there are {sorted(partitions)}", pointer="")
    if not planned:
        raise document.fault(
            f"none of the {len(left_out)} nodes has GPUs that can be planned" + _first(left_out), pointer="/nodes"
        )
    return SlurmNodes(document=document, planned=planned, left_out=left_out, seen_s=seen_s)


def states_of(record: Record) -> Set[str]:
    """Words of a node's state, flags among them, as newer versions write them."""
    return {word.upper() for key in ("state", "state_flags") for word in record.words(key)}


def _left_out(
    record: Record, states: Set[str], partitions: frozenset[str], partition: str | None
) -> tuple[str, str] | None:
    """Code and words for why a node is not planned; None where it is."""
    try:
        has = parse_gres(record.text("gres"))
        used = parse_gres(record.text("gres_used"))
    except ValueError as error:
        raise record.fault("gres", str(error)) from error
    if not any(item.num for item in has.gpus):
        return "no_gpus", "has no GPUs"
    if states & _NO_NODE:
        return "future_node", "is not there yet (FUTURE)"
    if partition is not None and partition not in partitions:
        return "other_partition", f"is not in partition {partition!r}"
    if any(item.are_slices for item in has.gpus):
        return "gpu_slices", f"has slices of GPUs (MIG): {record.text('gres')}"
    if len({item.type for item in has.gpus if item.num}) > 1:
        return "several_gpu_types", f"has GPUs of several types: {record.text('gres')}"
    if used.num_shared:
        return "shared_gpus", f"shares GPUs among jobs (shard, MPS): {record.text('gres_used')}"
    return None


def _node(
    record: Record, name: str, words: Set[str], partitions: frozenset[str], gpus: KnownGpus, *, has_calendar: bool
) -> SlurmNode:
    has = [item for item in parse_gres(record.text("gres")).gpus if item.num]
    num_gpus = sum(item.num for item in has)
    if num_gpus > _MAX_GPUS:
        raise record.fault("gres", f"has {num_gpus} GPUs; at most {_MAX_GPUS}")
    state = NodeState.DOWN if words & _DOWN else NodeState.DRAINED if words & _DRAINED else NodeState.UP
    reason = record.text("reason")
    if state is NodeState.UP and words & _RESERVED and not has_calendar:
        state = NodeState.DRAINED
        reason = reason or "reserved, and nobody said for whom: give the reservations"
    if state is not NodeState.UP:
        reason = f"{'+'.join(sorted(words))}{': ' if reason else ''}{reason}"
    return SlurmNode(
        name=name,
        gpu_type=gpus.name(has[0].type, record.document, f"{record.pointer}/gres"),
        num_gpus=num_gpus,
        state=state,
        reason=None if state is NodeState.UP else reason[:_REASON_CHARS],
        partitions=partitions,
        pointer=record.pointer,
    )


def _first(left_out: dict[str, str]) -> str:
    return "".join(f"; node {name!r} {why}" for name, why in list(left_out.items())[:1])
