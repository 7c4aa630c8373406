"""What Slurm says becomes a snapshot: real documents of one version, and those of all others as Slurm writes them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.workloads.slurm_documents import (
    NOW_S,
    UNLIMITED,
    VERSIONS,
    document,
    job,
    node,
    reservation,
    run,
    running,
)
from models.cluster_state import ClusterState, StateOptions, read_state
from models.cluster_state.base import ParsedDocument, StateJob
from models.cluster_state.slurm.jobs import JOB_FIELDS
from models.cluster_state.slurm.nodes import NODE_FIELDS
from models.workload import NodeGpus
from stowplan.errors import InputError
from tests.growth import work
from tests.models.cluster_state.slurm_documents import NODES, read, state_of
from topology.calendar import EntryKind
from topology.cluster import NodeState

_SAMPLES = Path(__file__).with_name("slurm_samples")
_TREE = "SwitchName=spine Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"


def only(state: ClusterState) -> StateJob:
    (found,) = state.jobs
    return found


def codes(state: ClusterState) -> dict[str, int]:
    return {note.code: note.count for note in state.notes}


def test_what_a_real_slurm_writes() -> None:
    """GPUs by index, an array of which two tasks run at a time, a dependency, a held and a heterogeneous job."""
    names = {
        "nodes": "sinfo.json",
        "queue": "squeue.json",
        "topology": "topology.conf",
        "reservations": "reservations.txt",
    }
    state = read(**{role: (_SAMPLES / name).read_text() for role, name in names.items()})
    assert [(node.id, node.num_gpus, node.path) for node in state.cluster.nodes] == [
        ("n1", 8, ("spine", "leaf-a")),
        ("n2", 8, ("spine", "leaf-b")),
        ("n3", 8, ("spine", "leaf-a")),
        ("n4", 8, ("spine", "leaf-b")),
    ]
    assert (state.cluster.nodes[3].state, state.cluster.nodes[3].state_reason) == (
        NodeState.DRAINED,
        "DRAIN+IDLE: bad fan",
    )
    jobs = {item.job.id: item for item in state.jobs}
    assert jobs["1"].job.current == (NodeGpus(node="n1", gpus=(0, 1, 2, 3)),)
    assert jobs["2"].job.current == (NodeGpus(node="n1", gpus=(4, 5)),)
    sizes = {"1": 4, "2": 2, "3": 32, "4": 16, "6": 8, "7": 4, "8": 3} | dict.fromkeys(("5_0", "5_1", "5_2", "5_3"), 1)
    assert {name: item.job.min_gpus for name, item in jobs.items()} == sizes
    assert {name: item.held for name, item in jobs.items() if item.held} == {
        "4": "JobHeldUser",
        "6": "dependency afterok:3(unfulfilled)",
        "5_2": "JobArrayTaskLimit",
        "5_3": "JobArrayTaskLimit",
    }
    assert [name for name, item in jobs.items() if item.on_hold] == ["4"]
    assert [(entry.name, entry.kind, entry.nodes) for entry in state.calendar] == [
        ("maint", EntryKind.MAINTENANCE, ("n1", "n2")),
    ]
    assert len(state.snapshot().jobs) == 7
    assert len(state.snapshot(released=["4", "6"]).jobs) == 8


def test_a_job_that_ends_has_its_number_of_gpus_and_no_indices() -> None:
    """Slurm 22.05 writes so while the job is COMPLETING."""
    state = state_of(running(1, "n1", ["gpu:h100:8(IDX:)"], job_state=["COMPLETING"]))
    assert state.jobs[0].job.current == (NodeGpus(node="n1", gpus=tuple(range(8))),)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_says_the_same(version: int) -> None:
    nodes = [node("n1"), node("n2", "gpu:h100:8", "MIXED", "DRAIN", reason="xid 79"), node("n3"), node("n4")]
    jobs = [
        running(1, "n[1-2]", ["gpu:h100:4(IDX:0-1,6-7)", "gpu:h100:2(IDX:3,5)"], priority=5),
        job(2, dependency="afterok:1(unfulfilled)"),
        job(3, array_job_id=3, array_task_string="0-2%2", array_max_tasks=2, node_count=2, time_limit=UNLIMITED),
    ]
    entries = [reservation("hw", "n[3-4]", 600, 4200, "MAINT")]
    state = read(
        StateOptions(taken_at_s=NOW_S),
        nodes=document("nodes", nodes, version),
        queue=document("jobs", jobs, version),
        reservations=document("reservations", entries, version),
    )
    newest = read(
        StateOptions(taken_at_s=NOW_S),
        nodes=document("nodes", nodes),
        queue=document("jobs", jobs),
        reservations=document("reservations", entries),
    )
    assert state == newest
    assert [item.job.id for item in state.jobs] == ["1", "2", "3_0", "3_1", "3_2"]
    first = state.jobs[0].job
    assert first.current == (NodeGpus(node="n1", gpus=(0, 1, 6, 7)), NodeGpus(node="n2", gpus=(3, 5)))
    assert (first.min_gpus, first.remaining_s, first.running_s, first.attained_gpu_s) == (6, 82_800.0, 3600.0, 21_600.0)
    assert (first.age_s, first.user, first.application, first.queue) == (7200.0, "ada", "train-1", "gpu")
    assert (first.priority, first.preemptible, first.time_limit_s) == (2, True, 86_400.0)
    waiting = state.jobs[2]
    assert (waiting.job.min_gpus, waiting.job.remaining_s, waiting.job.priority) == (16, None, 1)
    assert (waiting.num_nodes, waiting.gpus_per_node, waiting.account, waiting.qos) == (2, 8, "llm", "normal")
    assert [item.held for item in state.jobs] == [
        None,
        "dependency afterok:1(unfulfilled)",
        None,
        None,
        "JobArrayTaskLimit",
    ]
    assert state.cluster.nodes[1].state_reason == "DRAIN+MIXED: xid 79"
    assert [(entry.from_s, entry.until_s, entry.kind) for entry in state.calendar] == [(600.0, 4200.0, "maintenance")]


@pytest.mark.parametrize("said", ["openapi/v0.0.37", "data_parser/v0.0.45", "v1"])
def test_another_version_is_refused_by_name(said: str) -> None:
    text = document("nodes", NODES).replace("data_parser/v0.0.44", said)
    with pytest.raises(InputError) as refused:
        read(nodes=text)
    assert f"nodes.json: /meta/plugin: is of version '{said}'; known are v0.0.38 to v0.0.44" in str(refused.value)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("IDLE",), NodeState.UP),
        (("ALLOCATED", "COMPLETING"), NodeState.UP),
        (("MIXED", "PLANNED"), NodeState.UP),
        (("IDLE", "CLOUD", "POWERED_DOWN"), NodeState.UP),
        (("IDLE", "DRAIN"), NodeState.DRAINED),
        (("MIXED", "REBOOT_REQUESTED"), NodeState.DRAINED),
        (("IDLE", "FAIL"), NodeState.DRAINED),
        (("IDLE", "RESERVED"), NodeState.DRAINED),
        (("IDLE", "MAINTENANCE"), NodeState.DRAINED),
        (("DOWN",), NodeState.DOWN),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), NodeState.DOWN),
        (("UNKNOWN",), NodeState.DOWN),
    ],
)
def test_states_of_nodes(states: tuple[str, ...], state: NodeState) -> None:
    found = read(nodes=document("nodes", [node("n1", "gpu:h100:8", *states), node("n2")])).cluster.nodes[0]
    assert found.state is state
    assert (found.state_reason is None) == (state is NodeState.UP)


def test_what_reservations_close_the_calendar_says() -> None:
    nodes = [node("n1", "gpu:h100:8", "IDLE", "MAINTENANCE"), node("n2", "gpu:h100:8", "IDLE", "RESERVED")]
    entries = [
        reservation("hw", "n1", -60, 600, "MAINT", "OVERLAP"),
        reservation("old", "n1", -900, -60),
        reservation("team", "n[1-2]", 900, 1800, "DAILY"),
    ]
    state = state_of(job(1, resv_name="team"), nodes=nodes, reservations=document("reservations", entries))
    assert [node.state for node in state.cluster.nodes] == [NodeState.UP, NodeState.UP]
    assert [(entry.name, entry.hard, entry.nodes) for entry in state.calendar] == [
        ("hw", False, ("n1",)),
        ("team", True, ("n1", "n2")),
    ]
    assert only(state).job.calendar_entry == "team"
    assert codes(state) == {"reservation_repeats": 1}


def test_nodes_that_cannot_be_planned_are_left_out() -> None:
    """Jobs there are no jobs of the plan; those that are also elsewhere take their GPUs."""
    nodes = [
        node("n1"),
        node("login", ""),
        node("mig", "gpu:1g.5gb:7"),
        node("both", "gpu:h100:4,gpu:a100:4"),
        node("shared", "gpu:h100:8,shard:h100:32", gres_used="gpu:h100:0(IDX:N/A),shard:h100:3(3/4,0/4)"),
        node("later", "gpu:h100:8", "FUTURE"),
    ]
    jobs = [
        running(1, "both", ["gpu:h100:1(IDX:0)"]),
        running(2, "both,n1", ["gpu:h100:1(IDX:1)", "gpu:h100:2(IDX:4-5)"]),
        running(3, "login", [""], tres_per_node=""),
        job(4, tres_per_node="gres/shard:4"),
        job(5, tres_per_node="gres/gpu:v100:1"),
    ]
    state = state_of(*jobs, nodes=nodes)
    assert [(item.id, item.gpus_in_use) for item in state.cluster.nodes] == [("n1", (4, 5))]
    assert state.jobs == ()
    once = "no_gpus gpu_slices several_gpu_types shared_gpus future_node runs_elsewhere runs_partly_elsewhere"
    assert codes(state) == dict.fromkeys([*once.split(), "shards_asked", "gpu_type_absent"], 1) | {"no_gpus_asked": 2}


@pytest.mark.parametrize(
    ("asked", "num_gpus"),
    [
        ({"tres_per_node": "gres/gpu:h100:4", "node_count": 3}, 12),
        ({"tres_per_node": "gres:gpu:4", "node_count": 3}, 12),
        ({"tres_per_node": "", "tres_per_job": "gres/gpu:h100:6", "node_count": 2}, 6),
        ({"tres_per_node": "gres/gpu:8", "tres_per_job": "gres/gpu:6"}, 6),
        ({"tres_per_node": "", "tres_per_task": "gres/gpu:2", "tasks": 5}, 10),
        ({"tres_per_node": "", "tres_per_task": "gres/gpu=1", "tasks": 5}, 5),
        ({"tres_per_node": "gres/gpu", "node_count": 2}, 2),
        ({"tres_req_str": "cpu=9,node=2,gres/gpu=16,gres/gpu:h100=16", "node_count": 2}, 16),
        ({"tres_req_str": "cpu=9,node=2,gres/gpu:h100=12", "tres_per_node": ""}, 12),
    ],
)
def test_how_many_gpus_a_job_asks_for(asked: dict[str, Any], num_gpus: int) -> None:
    assert only(state_of(job(1, **asked))).job.min_gpus == num_gpus


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, None),
        ({"state_reason": "Priority"}, None),
        ({"state_reason": "ReqNodeNotAvail"}, None),
        ({"priority": 0, "hold": True, "state_reason": "JobHeldAdmin"}, "JobHeldAdmin"),
        ({"priority": 0, "state_reason": "None"}, "held (priority 0)"),
        ({"eligible_time": NOW_S + 300, "state_reason": "BeginTime"}, "begins no earlier than in 300 s"),
        ({"state_reason": "QOSMaxGRESPerUser"}, "QOSMaxGRESPerUser"),
        ({"state_reason": "AssocGrpGRES"}, "AssocGrpGRES"),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"]}, "state PENDING+REQUEUE_HOLD"),
    ],
)
def test_who_cannot_start_whatever_is_free(fields: dict[str, Any], held: str | None) -> None:
    assert only(state_of(job(1, **fields))).held == held


def test_partitions_that_start_nothing_hold_their_jobs() -> None:
    partitions = document("partitions", [{"name": "gpu", "partition": {"state": ["INACTIVE"]}}])
    assert only(state_of(job(1), partitions=partitions)).held == "partition gpu takes no jobs"


def test_tasks_of_an_array_that_run_count_against_its_limit() -> None:
    task = running(9, "n1", ["gpu:h100:8(IDX:0-7)"], array_job_id=3, array_task_id=0)
    rest = job(3, array_job_id=3, array_task_string="1-7:3,9%2", array_max_tasks=2)
    state = state_of(task, rest)
    assert [(item.job.id, item.held) for item in state.jobs] == [
        ("3_0", None),
        ("3_1", None),
        ("3_4", "JobArrayTaskLimit"),
        ("3_7", "JobArrayTaskLimit"),
        ("3_9", "JobArrayTaskLimit"),
    ]


def test_components_start_together_and_run_as_they_are() -> None:
    waiting = [job(1, het_job_id=1), job(2, het_job_id=1, het_job_offset=1, node_count=2)]
    assert only(state_of(*waiting)).job.min_gpus == 24
    parts = [
        running(1, "n1", ["gpu:h100:8(IDX:0-7)"], het_job_id=1),
        running(2, "n2", ["gpu:h100:1(IDX:0)"], het_job_id=1, het_job_offset=1),
    ]
    assert [item.job.id for item in state_of(*parts).jobs] == ["1+0", "1+1"]
    mixed = [job(1, het_job_id=1), job(2, het_job_id=1, het_job_offset=1, partition="other")]
    assert codes(state_of(*mixed)) == {"mixed_components": 1}


def test_one_partition_is_planned_and_others_take_their_gpus() -> None:
    nodes = [node("n1"), node("n2", partitions=["gpu", "debug"]), node("n3", partitions=["debug"])]
    jobs = [
        running(1, "n2", ["gpu:h100:2(IDX:6-7)"], partition="debug"),
        running(2, "n1", ["gpu:h100:8(IDX:0-7)"]),
        job(3),
        job(4, partition="debug"),
        job(5, partition="debug,gpu"),
    ]
    state = state_of(*jobs, nodes=nodes, options=StateOptions(settings={"partition": "gpu"}))
    assert [(item.id, item.gpus_in_use) for item in state.cluster.nodes] == [("n1", ()), ("n2", (6, 7))]
    assert [item.job.id for item in state.jobs] == ["2", "3", "5"]
    with pytest.raises(InputError, match="no node is in a partition 'big'; there are \\['debug', 'gpu'\\]"):
        state_of(nodes=nodes, options=StateOptions(settings={"partition": "big"}))


def test_partitions_of_one_gpu_type_are_planned_as_that_type() -> None:
    nodes = [node("n1"), node("n2", "gpu:a100:8", partitions=["old"]), node("n3", partitions=["gpu", "dev"])]
    jobs = [
        job(1, tres_per_node="gres/gpu:8"),
        job(2, tres_per_node="gres/gpu:8", partition="old"),
        job(3, partition="dev"),
    ]
    state = state_of(*jobs, nodes=nodes)
    assert [item.job.gpu_types for item in state.jobs] == [("h100",), ("a100",), ("h100",)]
    assert codes(state) == {"partition_not_planned": 1}


def test_gpus_without_indices_are_the_lowest_free_ones() -> None:
    jobs = [
        running(1, "n1", ["gpu:h100(CNT:2)"]),
        running(2, "n1", ["gpu:h100:2(IDX:0,2)"]),
        running(3, "n[2-3]", [], tres_alloc_str="cpu=4,node=2,gres/gpu=8"),
    ]
    state = state_of(*jobs)
    assert state.jobs[0].job.current == (NodeGpus(node="n1", gpus=(1, 3)),)
    assert state.jobs[2].job.current == (NodeGpus(node="n2", gpus=(0, 1, 2, 3)), NodeGpus(node="n3", gpus=(0, 1, 2, 3)))
    assert codes(state) == {"gpu_indices_assumed": 3}


def test_gpus_are_called_as_slurm_calls_them() -> None:
    """Whatever product they are: without a type as the options say, under a name of the site with its product."""
    nodes = [node("n1", "gpu:8"), node("n2", "gpu:gpu80:8")]
    options = StateOptions(gpu_type="h200", gpu_products={"gpu80": "a100-80gb"})
    kinds = read(options, nodes=document("nodes", nodes)).cluster.gpu_types
    assert [(kind.name, kind.memory_bytes) for kind in kinds] == [("h200", 141e9), ("gpu80", 80e9)]
    with pytest.raises(InputError, match=r"no GPU product 'a100-8gb' in the catalogue; did you mean 'a100-80gb'"):
        read(replace(options, gpu_products={"gpu80": "a100-8gb"}), nodes=document("nodes", nodes))
    with pytest.raises(InputError, match=r"nodes.json: /nodes/0/gres: has GPUs without a type"):
        read(nodes=document("nodes", nodes))
    with pytest.raises(InputError, match=r"nodes.json: /nodes/1/gres: names the GPU 'gpu80', which the catalogue"):
        read(replace(options, gpu_products={}), nodes=document("nodes", nodes))


def test_the_moment_is_the_last_one_that_documents_tell_of() -> None:
    jobs = [job(1, last_sched_evaluation=NOW_S + 30), running(2, "n1", ["gpu:h100:1(IDX:0)"], end_time=NOW_S + 90)]
    state = state_of(*jobs)
    assert (state.taken_at_s, state.jobs[1].job.remaining_s) == (NOW_S + 30, 60.0)
    later = state_of(*jobs, options=StateOptions(taken_at_s=NOW_S + 600))
    assert (later.taken_at_s, later.jobs[1].job.remaining_s) == (NOW_S + 600, 0.0)
    told = state_of(*jobs, options=StateOptions(settings={"ends": "forecast"}))
    assert [item.job.remaining_s for item in told.jobs] == [None, None]
    assert [item.job.time_limit_s for item in told.jobs] == [86_400.0, 86_400.0]


def test_earlier_runs_count_as_service_and_restarts() -> None:
    runs = [
        run(1, "NODE_FAIL", NOW_S - 9000, NOW_S - 8000, 8),
        run(1, "REQUEUED", NOW_S - 7000, NOW_S - 6500, 4),
        run(1, "RUNNING", NOW_S - 3600, 0, 8),
        run(3, "PREEMPTED", NOW_S - 500, NOW_S - 400, 1, task=2),
        run(9, "PENDING", 0, 0, 0),
    ]
    jobs = [running(1, "n1", ["gpu:h100:8(IDX:0-7)"]), job(2), job(7, array_job_id=3, array_task_id=2)]
    state = state_of(*jobs, accounting=document("jobs", runs))
    assert [(item.job.id, item.job.num_restarts, item.job.attained_gpu_s) for item in state.jobs] == [
        ("1", 2, 8 * 1000 + 4 * 500 + 8 * 3600),
        ("2", 0, 0.0),
        ("3_2", 1, 100.0),
    ]


def test_what_a_plan_does_not_know_is_told() -> None:
    jobs = [
        job(1, node_count=2, tres_per_node="gres/gpu:4"),
        job(2, required_nodes="n3"),
        job(3, features="nvme"),
        job(4, shared=["none"]),
    ]
    assert codes(state_of(*jobs)) == {"shape_not_planned": 1, "constraints_not_planned": 3}


@st.composite
def queues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs that run on GPUs of their own, and jobs that wait."""
    free = {f"n{k}": list(range(8)) for k in range(1, 5)}
    jobs: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(1, 8))):
        names = draw(st.lists(st.sampled_from(sorted(free)), unique=True, max_size=3))
        held = {}
        for name in sorted(names):
            gpus = sorted(draw(st.lists(st.sampled_from(free[name]), unique=True)) if free[name] else [])
            if gpus:
                held[name] = gpus
                free[name] = [gpu for gpu in free[name] if gpu not in gpus]
        priority = draw(st.integers(1, 5))
        if held:
            detail = [f"gpu:h100:{len(gpus)}(IDX:{','.join(map(str, gpus))})" for gpus in held.values()]
            jobs.append(running(number, ",".join(held), detail, draw(st.integers(0, 23)), priority=priority))
        else:
            jobs.append(job(number, node_count=draw(st.integers(1, 9)), priority=priority))
    return jobs


@given(jobs=queues(), version=st.sampled_from(VERSIONS))
def test_what_was_written_is_read(jobs: list[dict[str, Any]], version: int) -> None:
    state = read(nodes=document("nodes", NODES, version), queue=document("jobs", jobs, version), topology=_TREE)
    snapshot = state.snapshot()
    for said, found in zip(jobs, snapshot.jobs, strict=True):
        held = {part.node: list(part.gpus) for part in found.current or ()}
        names = said["nodes"].split(",") if said["nodes"] else []
        texts = [text.partition("IDX:")[2].rstrip(")") for text in said["gres_detail"]]
        assert held == dict(zip(names, ([int(k) for k in text.split(",")] for text in texts), strict=True))
        assert found.id == str(said["job_id"])
        assert found.min_gpus == (sum(map(len, held.values())) or 8 * said["node_count"])
    ranks = sorted({item["priority"] for item in jobs}, reverse=True)
    assert [found.priority for found in snapshot.jobs] == [ranks.index(said["priority"]) + 1 for said in jobs]


def test_the_cost_grows_as_the_cluster() -> None:
    def size(num: int) -> int:
        nodes = document("nodes", [node(f"n{k}") for k in range(num)])
        jobs = [running(k, f"n{k}", ["gpu:h100:8(IDX:0-7)"]) for k in range(1, num // 2)]
        # Whole nodes, and parts of several.
        jobs += [job(k) for k in range(num // 2, num * 3 // 4)]
        jobs += [job(k, node_count=2, tres_per_node="gres/gpu:h100:4") for k in range(num * 3 // 4, num)]
        queue = document("jobs", jobs)
        tree = "".join(f"SwitchName=l{k} Nodes=n[{8 * k}-{8 * k + 7}]\n" for k in range(num // 8))
        return work(lambda: read(nodes=nodes, queue=queue, topology=tree).snapshot())

    assert size(160) < 2.3 * size(80)


class _Asked(dict[str, Any]):
    """A record that notes which fields are asked for."""

    def __init__(self, values: dict[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self.asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def test_the_fields_that_are_read_are_those_that_are_built() -> None:
    # A text is read field by field: what is read and not named would always be missing.
    asked: dict[str, set[str]] = {"nodes": set(), "jobs": set()}
    jobs = [
        running(1, "n1", ["gpu:h100:8(IDX:0-7)"]),
        running(2, "n2", [], tres_alloc_str="gres/gpu=4"),
        job(3, tres_per_node="", tres_per_job="gres/gpu=4"),
        job(4, array_job_id=4, array_task_string="0-3%2", array_max_tasks=0),
        job(5, array_job_id=5, array_task_id=1),
        job(6, het_job_id=6, het_job_offset=0),
    ]
    documents = {}
    for role, key, records in (("nodes", "nodes", NODES), ("queue", "jobs", jobs)):
        whole = json.loads(document(key, records))
        whole[key] = [_Asked(record, asked[key]) for record in whole[key]]
        documents[role] = [ParsedDocument(name=role, value=whole)]
    read_state("slurm", documents, StateOptions())
    assert asked == {"nodes": set(NODE_FIELDS), "jobs": set(JOB_FIELDS)}
