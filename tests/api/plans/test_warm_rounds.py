"""Rounds that are told by their changes, planned by who has planned those before, and the same rounds told whole."""

import copy
import json
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

from api.convert.snapshot import snapshot_to_document
from api.plans.outcome import Planned
from api.plans.planning import planned
from api.plans.reading import ReadPlan, read_plan
from api.reading import packed
from api.reading.texts import RequestText
from api.store.texts import Body
from benchmarks.workloads.generators import SiaSize, sia_snapshot
from models.performance.goodput.rounds import forget_rounds
from models.plan import PlanTask
from solver.monitor import SolveMonitor
from solver.result import TerminationReason
from tests.api.conftest import SETTINGS
from tests.growth import work

Json = dict[str, Any]
SIZE = SiaSize(num_gpus=64, num_jobs=20, num_types=2, running=0.5)
# So many jobs are priced by the dual, and some have to move for others.
LARGER = SiaSize(num_gpus=256, num_jobs=120, num_types=2, running=0.9)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    forget_everything()
    yield
    forget_everything()


def forget_everything() -> None:
    packed.forget_all()
    forget_rounds()


def body_of(snapshot: Json, gap: float, prices: Json) -> bytes:
    options = {"relative_gap": gap, "time_limit_s": 60}
    body = {"policy": "sia", "snapshot": snapshot, "parameters": {"prices": prices}, "options": options}
    return json.dumps(body).encode()


def answered(body: bytes, **known: Body) -> tuple[ReadPlan, Planned, Json]:
    """A request, read and planned in this process as it would be by a worker."""
    asked = read_plan(RequestText(body=body, settings=SETTINGS, snapshots=known), SolveMonitor())
    assert isinstance(asked, ReadPlan)
    task = PlanTask(request=asked.request.for_worker(), validated=True)
    answer = planned(pickle.loads(pickle.dumps(task)), SolveMonitor())  # noqa: S301 - our own
    return asked, answer, json.loads(answer.document())


def start(seed: int, size: SiaSize = SIZE) -> Json:
    said: Json = json.loads(snapshot_to_document(sia_snapshot(size, seed)).model_dump_json(exclude_defaults=True))
    return said


def next_round(snapshot: Json, plan: Json, rng: random.Random, round_: int) -> tuple[Json, Json]:
    """The snapshot a round later, and what is other than it was: most jobs run where the plan has them."""
    given = {each["job_id"]: each["gpus"] for each in plan["allocations"]}
    after = copy.deepcopy(snapshot)
    changed: dict[str, Json] = {}
    for job in after["jobs"]:
        fields = {} if given.get(job["id"]) == job.get("current") else {"current": given.get(job["id"])}
        if rng.random() < 0.15:
            fields["age_s"] = job.get("age_s", 0.0) + rng.random() * 1e3
        if rng.random() < 0.05:
            fields["performance"] = rng.choice(after["jobs"])["performance"]
        if fields:
            changed[job["id"]] = fields
            job |= fields
    leaves = [job["id"] for job in after["jobs"] if rng.random() < 0.1]
    comes = [
        {**copy.deepcopy(rng.choice(after["jobs"])), "id": f"new{round_}-{k}", "current": None, "preemptible": True}
        for k in range(rng.randrange(3))
    ]
    after["jobs"] = [job for job in after["jobs"] if job["id"] not in leaves] + comes
    nodes: dict[str, Json] = {}
    if rng.random() < 0.3:
        node = rng.choice(after["cluster"]["nodes"])
        node["state"] = "drained" if node.get("state", "up") == "up" else "up"
        nodes[node["id"]] = {"state": node["state"]}
    said = {"jobs": {name: fields for name, fields in changed.items() if name not in leaves}, "remove_jobs": leaves}
    return after, said | {"add_jobs": comes, "nodes": nodes}


@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_answered_as_if_nothing_had_been_kept(seed: int) -> None:
    """At gap 0 the optimum is unique, weights and models being drawn: the texts are the same."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    snapshot = start(seed)
    asked, _, plan = answered(body_of(snapshot, 0.0, {}))
    rounds = []
    for round_ in range(6):
        snapshot, said = next_round(snapshot, plan, rng, round_)
        asked, answer, plan = answered(body_of({"base": "b", **said}, 0.0, {}), b=asked.input.snapshot)
        assert plan["verified"]
        rounds.append((snapshot, asked, answer))
    for whole, warm, answer in rounds:
        forget_everything()
        cold, anew, _ = answered(body_of(whole, 0.0, {}))
        assert warm.input.text == cold.input.text
        assert warm.input_hash == cold.input_hash
        assert [note.code for note in warm.notes] == [note.code for note in cold.notes]
        # Pointers are into the request, which says no more than what has changed.
        assert all(told.detail.endswith(note.detail) for told, note in zip(warm.notes, cold.notes, strict=True))
        assert answer.document() == anew.document()


@pytest.mark.parametrize(("seed", "size"), [(0, SIZE), (1, SIZE), (2, LARGER)])
def test_rounds_that_start_from_prices_are_as_good_within_the_gap(seed: int, size: SiaSize) -> None:
    gap = 1e-3
    rng = random.Random(seed)  # noqa: S311 - no secret
    snapshot = start(seed, size)
    asked, answer, plan = answered(body_of(snapshot, gap, {}))
    rounds = []
    for round_ in range(4):
        snapshot, said = next_round(snapshot, plan, rng, round_)
        # What is said of rows that have no price yet is wrong.
        prices = {f"capacity[{kind['name']}]": 0.1 for kind in snapshot["cluster"]["gpu_types"]} | plan["prices"]
        asked, answer, plan = answered(body_of({"base": "b", **said}, gap, prices), b=asked.input.snapshot)
        rounds.append((body_of(snapshot, gap, prices), answer))
        _, anew, _ = answered(body_of(snapshot, gap, {}))
        for each in (answer, anew):
            assert each.termination is TerminationReason.OPTIMAL
            assert each.relative_gap is not None
            assert each.relative_gap <= gap
        assert answer.objective == pytest.approx(anew.objective, rel=2 * gap)
    # The same prices give the same plan, whatever is kept.
    for body, answer in rounds:
        forget_everything()
        _, anew, _ = answered(body)
        assert answer.document() == anew.document()


def test_a_base_that_was_lost_on_the_way_is_read_from_its_text() -> None:
    """The worker that kept it died, or another one is asked: the answer is the same."""
    snapshot = start(0)
    asked, _, plan = answered(body_of(snapshot, 0.0, {}))
    _, said = next_round(snapshot, plan, random.Random(1), 0)  # noqa: S311 - no secret
    body = body_of({"base": "b", **said}, 0.0, {})
    _, kept, _ = answered(body, b=asked.input.snapshot)
    forget_everything()
    _, lost, _ = answered(body, b=asked.input.snapshot)
    assert lost.document() == kept.document()


def test_a_round_in_which_little_changed_is_less_work_and_hardly_grows_with_its_jobs() -> None:
    def costs(num_jobs: int) -> tuple[int, int]:
        """Lines that a cold round takes, and one in which two jobs changed."""
        forget_everything()
        size = SiaSize(num_gpus=4 * num_jobs, num_jobs=num_jobs, num_types=2, running=1.0)
        whole = json.loads(snapshot_to_document(sia_snapshot(size, 1)).model_dump_json(exclude_defaults=True))
        asked, _, plan = answered(body_of(whole, 0.05, {}))
        cold = work(lambda: answered(body_of({**whole, "jobs": _renamed(whole["jobs"])}, 0.05, {})))
        given = {each["job_id"]: each["gpus"] for each in plan["allocations"]}
        runs = {job["id"]: {"current": given.get(job["id"])} for job in whole["jobs"]}
        first, second = ({job["id"]: {"age_s": age_s} for job in whole["jobs"][:2]} for age_s in (5e4, 6e4))
        for jobs in (runs, first):
            asked, _, _ = answered(body_of({"base": "b", "jobs": jobs}, 0.05, {}), b=asked.input.snapshot)
        warm = work(lambda: answered(body_of({"base": "b", "jobs": second}, 0.05, {}), b=asked.input.snapshot))
        return cold, warm

    costs(20)
    (cold, warm), (cold_twice, warm_twice) = costs(60), costs(120)
    assert cold_twice <= 2.3 * cold
    # The jobs that are as they were are hardly looked at.
    assert warm_twice - warm < 0.05 * (cold_twice - cold)
    assert warm_twice < 0.25 * cold_twice


def _renamed(jobs: list[Json]) -> list[Json]:
    return [{**job, "id": f"{job['id']}-again"} for job in jobs]
