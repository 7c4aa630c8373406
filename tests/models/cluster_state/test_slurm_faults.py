"""What is wrong with what Slurm says is told with document and place."""

import json
import re
from typing import Any

import pytest

from benchmarks.workloads.slurm_documents import document, job, node, reservation, running
from models.cluster_state import SourceDocument, StateOptions, read_state
from models.cluster_state.json_documents import read_json_document, read_listed
from stowplan.errors import FileFormatError, InputError
from tests.models.cluster_state.slurm_documents import NODES, read, state_of


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (
            [running(1, "n9", ["gpu:h100:1(IDX:0)"])],
            "queue.json: /jobs/0/nodes: job '1' runs on node 'n9', which nodes.json",
        ),
        (
            [running(1, "n1", ["gpu:h100:1(IDX:8)"])],
            "/jobs/0/nodes: job '1' has GPU 8 of node 'n1', which has GPUs 0 to 7",
        ),
        (
            [running(1, "n1", ["gpu:h100:1(IDX:3)"]), running(2, "n1", ["gpu:h100:1(IDX:3)"])],
            "/jobs/1/nodes: job '2' has GPU 3 of node 'n1', which job '1' has, too: the documents may be of different",
        ),
        ([running(1, "n1", ["gpu:h100:9(CNT:9)"])], "/jobs/0/nodes: job '1' has 9 GPUs of node 'n1', where 8 are left"),
        ([running(1, "n[1-3]", [], tres_alloc_str="gres/gpu=8")], "/jobs/0/gres_detail: job '1' has 8 GPUs on 3 nodes"),
        ([running(1, "n[1-", ["gpu:1"])], "/jobs/0/nodes: hostlist 'n[1-' has unbalanced"),
        ([running(1, "n1", ["gpu:h100:1(IDX:x)"])], "/jobs/0/gres_detail: IDX:x are no indices of GPUs, such as 0-3,7"),
        ([job(1), job(1)], "/jobs/1/job_id: job '1' stands there twice"),
        ([job(1, job_state=[])], "/jobs/0/job_state: is missing"),
        ([job(1, priority="high")], "/jobs/0/priority: is 'high'; must be a number"),
        ([job(1, node_count=-1)], "/jobs/0/node_count: is -1; must be a whole number from 0 on"),
        ([job(1, tres_per_node=8)], "/jobs/0/tres_per_node: is a number; must be a text"),
        ([job(1, array_job_id=1, array_task_string="1-x")], "/jobs/0/array_task_string: is '1-x'; must be tasks"),
        ([job(1, array_job_id=1, array_task_string="0-999999999")], "an array may have 100000 tasks at most"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(jobs: list[Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        state_of(*jobs)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"nodes": "{\n]"}, "nodes.json:2: no JSON"),
        ({"nodes": "[]"}, "nodes.json: /: is a list; give what `scontrol show nodes --json` writes"),
        ({"nodes": document("jobs", [])}, "nodes.json: /: has no list 'nodes' (it has jobs)"),
        (
            {"nodes": document("nodes", [node("n1", "")])},
            "none of the 1 nodes has GPUs that can be planned; node 'n1' has no",
        ),
        ({"nodes": document("nodes", [node("n1"), node("n1")])}, "/nodes/1/name: node 'n1' stands there twice"),
        ({"nodes": document("nodes", [node("n1", "gpu:h100:9999")])}, "/nodes/0/gres: has 9999 GPUs; at most 4096"),
        (
            {"topology": "SwitchName=a Nodes=n[1-2]\n"},
            "/nodes/2: 2 of 4 nodes with GPUs are not in topology.json: 'n3', 'n4'",
        ),
        ({"topology": "SwitchName=a Nodes=n[1-\n"}, "topology.json:1: hostlist 'n[1-' has unbalanced"),
        (
            {"reservations": document("reservations", [reservation("r", "n7", 1, 2)])},
            "reservations.json: /reservations/0/node_list: reservation 'r' has node 'n7', which nodes.json does",
        ),
        (
            {"reservations": "ReservationName=r StartTime=2026-11-24T04:39:06 Nodes=n1\n"},
            "reservations.json:1: start_time is '2026-11-24T04:39:06', without a time zone; give what `SLURM_TIME",
        ),
        (
            {"queue": document("jobs", []).replace("[]", "[7]", 1)},
            "queue.json: /jobs/0: is a number; must be an object",
        ),
        (
            {"accounting": document("jobs", [{"job_id": 1, "time": 5}])},
            "accounting.json: /jobs/0/time: is a number; must be",
        ),
        ({"pods": "{}"}, "slurm has no document 'pods'; it takes nodes, topology"),
    ],
)
def test_documents_that_do_not_fit_are_told_with_their_place(texts: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(**({"nodes": document("nodes", NODES)} | texts))
    assert message in str(refused.value)


def test_what_is_missing_or_unknown_beside_documents() -> None:
    with pytest.raises(InputError, match="slurm needs nodes: what `scontrol show nodes --json` writes"):
        read()
    with pytest.raises(InputError, match="slurm has no setting 'zone'"):
        state_of(options=StateOptions(settings={"zone": "a"}))
    with pytest.raises(InputError, match="there is no format 'pbs' of cluster states"):
        read_state("pbs", {}, StateOptions())
    with pytest.raises(InputError, match="ends is 'soon'"):
        state_of(options=StateOptions(settings={"ends": "soon"}))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[NaN, -Infinity, 1e400, 1e-5, -0.0]",
        '"\\ud800"',
        str(10**30),
        "[" * 300 + "]" * 300,
        " [] ",
    ],
    ids=["repeated", "not-finite", "surrogate", "large", "deep", "blank"],
)
def test_json_is_what_the_library_reads(text: str) -> None:
    assert repr(read_json_document(SourceDocument(name="x", text=text))) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "[1,]", "{'a': 1}", "\ufeff[]", "[1] 2", '"\t"'])
def test_what_is_no_json_is_told_as_the_library_tells_it(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as known:
        json.loads(text)
    with pytest.raises(FileFormatError, match=re.escape(known.value.msg)):
        read_json_document(SourceDocument(name="x", text=text))


@pytest.mark.parametrize(
    "value", ['1, "a": 2', "NaN", "1e400", "-0.0", str(10**30), '"\\ud800"', "[" * 300 + "]" * 300]
)
def test_what_is_read_of_a_listed_record_is_what_the_library_reads(value: str) -> None:
    text = f'{{"meta": [0], "jobs": [{{"b": {value}, "a": {value}}}, {{"b": 0}}], "errors": []}}'
    whole, found = json.loads(text), read_listed(SourceDocument(name="x", text=text), "jobs", ("a", "c"))
    assert found["meta"] == [0]
    assert repr([record.get("a") for record in found["jobs"]]) == repr([record.get("a") for record in whole["jobs"]])


@pytest.mark.parametrize(
    "text", ["", '{"jobs": [{"b": tru}]}', '{"jobs": [{"b": "\t"}]}', '{"jobs": []} 2', "{'jobs': []}"]
)
def test_what_is_wrong_where_nobody_reads_is_told_all_the_same(text: str) -> None:
    with pytest.raises(FileFormatError) as known:
        read_json_document(SourceDocument(name="x", text=text))
    with pytest.raises(FileFormatError, match=re.escape(known.value.detail)):
        read_listed(SourceDocument(name="x", text=text), "jobs", ("a",))


@pytest.mark.parametrize("text", ["[]", '{"job": []}', '{"jobs": {}}', '{"jobs": [1]}', '{"jobs": null}'])
def test_another_document_than_a_list_is_read_whole(text: str) -> None:
    assert read_listed(SourceDocument(name="x", text=text), "jobs", ("a",)) == json.loads(text)
