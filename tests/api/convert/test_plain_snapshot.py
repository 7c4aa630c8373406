"""The JSON of a state without documents is that of the documents, or there is none."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.convert.cluster_state import imported_state
from api.convert.plain_snapshot import plain_snapshot
from models.cluster_state import ClusterState, StateOptions, read_state
from models.cluster_state.base import StateJob
from models.workload import Job, NodeGpus, Parallelism
from stowplan.errors import InputError
from tests.api.convert.test_cluster_state import ANYTHING, ROLES, documents, texts
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

_GPU = GpuType(
    name="h100",
    memory_bytes=80 * 2**30,
    peak_flops_per_s=1e15,
    intra_node_bandwidth_bytes_per_s=4.5e11,
    inter_node_bandwidth_bytes_per_s=4e11,
)
_NODE = Node(id="n1", gpu_type="h100", num_gpus=8, path=("a",))
_CLUSTER = Cluster(gpu_types=(_GPU,), nodes=(_NODE,), tiers=(Tier(name="leaf"),), minipod_tier="leaf")
_ENTRY = CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=0.25, until_s=3600, nodes=("n1",), owner="ada")


def state(*jobs: Job, cluster: Cluster = _CLUSTER, calendar: tuple[CalendarEntry, ...] = ()) -> ClusterState:
    items = tuple(StateJob(job=job) for job in jobs)
    return ClusterState(cluster=cluster, jobs=items, taken_at_s=1_800_000_000.0, calendar=calendar)


def by_documents(of: ClusterState) -> dict[str, Any] | None:
    """None where the documents refuse it."""
    try:
        written = imported_state(of, {}).snapshot.model_dump(mode="json", exclude_defaults=True)
    except InputError:
        return None
    for job in written["jobs"]:
        job.setdefault("min_gpus", 1)
    return written


@pytest.mark.parametrize(
    "of",
    [
        state(),
        state(Job(id="1", min_gpus=1), Job(id="2", min_gpus=4, gpu_types=("h100",), preemptible=False, priority=7)),
        state(
            Job(
                id="\N{SNOWMAN}",
                min_gpus=2,
                current=(NodeGpus(node="n1", gpus=(0, 7)),),
                age_s=1,
                num_restarts=2,
                deadline_s=0.1,
                remaining_s=0,
                queue="gpu",
                attained_gpu_s=3.5,
                calendar_entry="r",
                user="ada",
                application="x" * 256,
                time_limit_s=60,
                running_s=0.0,
            ),
            calendar=(
                _ENTRY,
                replace(_ENTRY, name="m", kind=EntryKind.MAINTENANCE, until_s=None, hard=False, owner=""),
            ),
        ),
        state(
            cluster=replace(
                _CLUSTER,
                nodes=(replace(_NODE, gpus_in_use=(1, 2), state=NodeState.DRAINED, state_reason="disk"),),
                tiers=(Tier(name="leaf", bandwidth_fraction=0.5),),
                core_bandwidth_fraction=0.25,
                minipod_tier=None,
            )
        ),
    ],
    ids=["no-jobs", "waiting", "running", "cluster"],
)
def test_it_is_what_documents_write(of: ClusterState) -> None:
    written = plain_snapshot(of)
    assert written is not None
    assert json.dumps(written) == json.dumps(by_documents(of))


@pytest.mark.parametrize(
    "of",
    [
        state(Job(id="x" * 257)),
        state(Job(id="1\n")),
        state(Job(id="")),
        state(Job(id="1", queue="a\N{LINE SEPARATOR}b")),
        state(Job(id="1", min_gpus=10_000_001)),
        state(Job(id="1", priority=10**9 + 1)),
        state(Job(id="1", num_restarts=10**9 + 1)),
        state(Job(id="1", gpu_types=())),
        state(cluster=replace(_CLUSTER, nodes=(replace(_NODE, num_gpus=4097),))),
        state(cluster=replace(_CLUSTER, nodes=(replace(_NODE, state_reason=""),))),
        state(cluster=replace(_CLUSTER, nodes=(replace(_NODE, state_reason="x" * 1025),))),
        state(cluster=replace(_CLUSTER, nodes=(replace(_NODE, path=("\x1b",)),))),
        state(cluster=replace(_CLUSTER, gpu_types=(replace(_GPU, memory_bytes=2**63 - 1),))),
        state(calendar=(replace(_ENTRY, owner="x" * 257),)),
        replace(state(), taken_at_s=1e15),
    ],
)
def test_what_documents_refuse_is_left_to_them(of: ClusterState) -> None:
    assert by_documents(of) is None
    assert plain_snapshot(of) is None


def test_what_no_scheduler_says_is_left_to_documents() -> None:
    for of in (
        state(Job(id="1", parallelism=Parallelism(tp=1, pp=1, dp=1))),
        state(Job(id="1", weight=2.0)),
        state(calendar=(replace(_ENTRY, nodes=(), shape=Shape(num_nodes=1)),)),
    ):
        assert by_documents(of) is not None
        assert plain_snapshot(of) is None


@given(data=st.data())
def test_whatever_a_field_holds_both_say_the_same(data: st.DataObject) -> None:
    found = texts()
    role = data.draw(st.sampled_from(sorted(ROLES)))
    record = data.draw(st.sampled_from(found[role][ROLES[role]]))
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(ANYTHING)
    with suppress(InputError):
        read = read_state("slurm", documents(found), StateOptions())
        assert plain_snapshot(read) == by_documents(read)
