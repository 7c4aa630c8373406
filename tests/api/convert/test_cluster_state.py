"""Whatever schedulers say becomes a document that can be planned, or an error for them."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.convert.cluster_state import imported
from api.convert.snapshot import snapshot_from_document
from benchmarks.workloads.slurm_documents import document, job, node, reservation, running
from models.cluster_state import SourceDocument, StateOptions, read_state
from stowplan.errors import InputError

ANYTHING: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(0, 10)
ANYTHING |= st.text(max_size=6) | st.sampled_from(["n" * 300, "\x1b[31m", "gpu:h100:9", "1-9%2"])
ANYTHING |= st.lists(ANYTHING, max_size=2) | st.dictionaries(st.sampled_from(["set", "number", "state"]), ANYTHING)
ROLES = {"nodes": "nodes", "queue": "jobs", "reservations": "reservations", "partitions": "partitions"}


def texts() -> dict[str, Any]:
    """Documents by role, decoded."""
    records: dict[str, list[dict[str, Any]]] = {
        "nodes": [node("n1"), node("n2")],
        "queue": [running(1, "n1", ["gpu:h100:1(IDX:0)"]), job(2, array_task_string="0-3%2", array_job_id=2), job(3)],
        "reservations": [reservation("r", "n2", 60, 120)],
        "partitions": [{"name": "gpu", "partition": {"state": ["UP"]}, "topology": ""}],
    }
    return {role: json.loads(document(ROLES[role], found)) for role, found in records.items()}


def documents(found: dict[str, Any]) -> dict[str, list[SourceDocument]]:
    return {role: [SourceDocument(name=f"{role}.json", text=json.dumps(whole))] for role, whole in found.items()}


@given(data=st.data())
def test_whatever_a_field_holds_it_is_read_or_refused(data: st.DataObject) -> None:
    found = texts()
    role = data.draw(st.sampled_from(sorted(ROLES)))
    record = data.draw(st.sampled_from(found[role][ROLES[role]]))
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(ANYTHING)
    with suppress(InputError):
        snapshot_from_document(imported("slurm", documents(found), StateOptions(), {}).snapshot)


def test_the_document_says_what_was_read() -> None:
    state = read_state("slurm", documents(texts()), StateOptions())
    found = imported("slurm", documents(texts()), StateOptions(), {})
    assert snapshot_from_document(found.snapshot) == state.snapshot()
    assert {job.id for job in found.held} == {"2_2", "2_3"}
