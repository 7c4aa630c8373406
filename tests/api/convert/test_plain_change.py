"""Changes of a snapshot that is known: what comes out is what the documents make of them."""

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from api.convert.changed_snapshot import changed_snapshot
from api.convert.plain_change import SnapshotInParts, plain_change
from api.convert.snapshot import snapshot_from_document
from api.reading.packed import body_of
from api.schemas.snapshot import SNAPSHOT, ChangedSnapshot
from api.store.texts import Body
from stowplan.errors import InputError
from tests.api.requests import Json, sia_request, table_job
from tests.growth import work

NAMES = [f"n{k}" for k in range(4)]


def snapshot_json(num_jobs: int, num_nodes: int = 4) -> Json:
    """Jobs that wait, but for the first ones, which have a GPU each of their own."""
    whole: Json = copy.deepcopy(sia_request()["snapshot"])
    whole["cluster"]["nodes"] = [
        {"id": f"n{k}", "gpu_type": "a", "num_gpus": 4, "path": [f"pod{k % 2}"]} for k in range(num_nodes)
    ]
    whole["jobs"] = [
        table_job(f"j{k}", **({"current": {f"n{k // 4}": [k % 4]}} if k < 2 * num_nodes else {}))
        for k in range(num_jobs)
    ]
    return whole


def parts(whole: Json) -> SnapshotInParts:
    found = SnapshotInParts.read(SNAPSHOT.validate_json(json.dumps(whole)).model_dump_json())
    assert found is not None
    return found


def change(**said: Any) -> ChangedSnapshot:
    return ChangedSnapshot.model_validate_json(json.dumps({"base": "base", **said}))


def random_change(base: SnapshotInParts, rng: random.Random, new_id: int) -> ChangedSnapshot:
    ids = [job.id for job in base.snapshot.jobs]
    chosen = rng.sample(ids, min(3, len(ids)))
    fields: list[Json] = [
        {"age_s": rng.random() * 1e21},
        {"weight": rng.randint(1, 5)},
        {"current": None},
        {"max_gpus": rng.choice([None, 2, 4])},
        {"gpu_types": ["a"], "min_gpus": 1},
        table_job("", priority=2) | {"lasting": {"probabilities": [1], "seconds": [5]}},
    ]
    for each in fields:
        each.pop("id", None)
    nodes: list[Json] = [
        {"state": rng.choice(["up", "drained", "down"])},
        {"state_reason": "läuft heiß"},
        {"gpus_in_use": rng.choice([1, [3], []])},
    ]
    return change(
        jobs={name: rng.choice(fields) for name in chosen[:2]},
        remove_jobs=[] if rng.random() < 0.5 else chosen[2:],
        add_jobs=[] if rng.random() < 0.5 else [table_job(f"new{new_id}", weight=2.5)],
        nodes={} if rng.random() < 0.5 else {rng.choice(NAMES): rng.choice(nodes)},
    )


@pytest.mark.parametrize("seed", range(5))
def test_rounds_of_changes_are_what_the_documents_make_of_them(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    base = parts(snapshot_json(12))
    assert base.are_written
    num_plain = 0
    for round_ in range(30):
        source = random_change(base, rng, round_)
        expected = changed_snapshot(source, SNAPSHOT.validate_json(body_of(base).text))
        found = plain_change(source, base)
        try:
            whole = snapshot_from_document(expected)
        except InputError:
            # A node in use that a job has.
            assert found is None
            continue
        assert found is not None
        assert body_of(found) == replace(Body.of(expected.model_dump_json()), data=body_of(found).data)
        assert body_of(found).text == expected.model_dump_json()
        assert found.snapshot == whole
        num_plain += 1
        base = found
    assert num_plain > 10


def test_a_job_of_an_earlier_version_that_changes_gets_the_fields_that_it_lacks() -> None:
    whole = SNAPSHOT.validate_json(json.dumps(snapshot_json(3))).model_dump_json()
    earlier = whole.replace(',"running_s":null', "")
    base = SnapshotInParts.read(earlier)
    assert earlier != whole
    assert base is not None
    assert not base.are_written
    for _ in range(2):
        source = change(jobs={"j1": {"age_s": 5}})
        base = plain_change(source, base)
        assert base is not None
        assert base.snapshot == snapshot_from_document(changed_snapshot(source, SNAPSHOT.validate_json(whole)))
        texts = [json.loads(text) for text in base.jobs[0].texts]
        assert ["running_s" in text for text in texts] == [False, True, False]


def test_what_has_not_changed_is_not_built_again() -> None:
    base = parts(snapshot_json(5))
    source = change(jobs={"j1": {"age_s": 5}}, remove_jobs=["j0"], nodes={"n3": {"state": "drained"}})
    found = plain_change(source, base)
    assert found is not None
    assert [job.id for job in found.snapshot.jobs] == ["j1", "j2", "j3", "j4"]
    assert all(job is before for job, before in zip(found.snapshot.jobs[1:], base.snapshot.jobs[2:], strict=True))
    assert all(
        node is before
        for node, before in zip(found.snapshot.cluster.nodes[:3], base.snapshot.cluster.nodes[:3], strict=True)
    )
    assert found.snapshot.jobs[0].performance is base.snapshot.jobs[1].performance
    same = plain_change(change(remove_jobs=["j0"]), base)
    assert same is not None
    assert same.snapshot.cluster is base.snapshot.cluster


@pytest.mark.parametrize(
    "said",
    [
        {"jobs": {"j9": {}}},
        {"jobs": {"j0": {"id": "j5"}}},
        {"jobs": {"j0": {"colour": 1}}},
        {"jobs": {"j0": {"min_gpus": -1}}},
        {"jobs": {"j0": {"age_s": "1"}}},
        {"jobs": {"j0": {"current": {"n9": [0]}}}},
        # j1 has it.
        {"jobs": {"j4": {"current": {"n0": [1]}}}},
        {"jobs": {"j0": {"age_s": 1}}, "remove_jobs": ["j0"]},
        {"remove_jobs": ["j9"]},
        {"add_jobs": [table_job("j0")]},
        {"add_jobs": [table_job("new", gpu_types=["b"])]},
        {"nodes": {"n9": {"state": "up"}}},
        {"nodes": {"n0": {"gpus_in_use": [0]}}},
        {"taken_at": "2026-12-01T06:00:00Z"},
        {"calendar": []},
    ],
)
def test_what_is_wrong_or_not_plain_is_left_to_the_documents(said: Json) -> None:
    base = parts(snapshot_json(5))
    assert plain_change(change(**said), base) is None


def test_only_texts_as_they_are_written_here_are_taken_apart() -> None:
    whole = SNAPSHOT.validate_json(json.dumps(snapshot_json(3)))
    snapshot, text = snapshot_from_document(whole), whole.model_dump_json()
    known = SnapshotInParts.of(snapshot, text, is_written=False)
    assert known is not None
    assert body_of(known).text == text
    assert SnapshotInParts.of(snapshot, json.dumps(json.loads(text)), is_written=False) is None
    assert SnapshotInParts.of(snapshot, text[:-1], is_written=False) is None
    dated = whole.model_copy(update={"taken_at": "2026-12-01T06:00:00Z"}).model_dump_json(warnings=False)
    assert SnapshotInParts.read(dated) is None


def test_the_cost_of_a_change_grows_with_the_snapshot_at_most() -> None:
    def cost(num_jobs: int) -> int:
        base = parts(snapshot_json(num_jobs, num_nodes=num_jobs // 4))
        source = change(jobs={f"j{k}": {"age_s": 5} for k in range(num_jobs // 50)})
        return work(lambda: plain_change(source, base))

    cost(100)
    assert cost(400) <= 2.3 * cost(200)
