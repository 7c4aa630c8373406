"""Requests that other processes read: the same answers, whoever reads, and an end in time."""

import asyncio
import json
import pickle
from collections.abc import Iterator
from typing import cast

import httpx
import pytest

from api.app import create_app
from api.common.errors import WorkerTimeoutError
from api.convert.plain_change import base_of
from api.plans import planning
from api.plans.near import READ_AND_PLAN
from api.plans.outcome import PLAN_TASK
from api.plans.reading import READ_PLAN, ReadPlan, read_plan
from api.reading import packed
from api.reading.packed import key_of
from api.reading.readers import Readers
from api.reading.texts import Lacking, RequestText, WantedForecasts
from api.store import texts
from api.store.texts import Body, BodyName, deflated
from api.workers import reader_pool
from models.forecast.known import KnownJob
from models.plan import PlanRequest, PlanTask
from models.policies import POLICIES
from solver.monitor import SolveMonitor
from solver.pool import QueueFullError, WorkerPool
from solver.process import LocalEngine
from solver.ticket import Ticket
from tests.api import reading_tasks
from tests.api.asking import planned, post, refused
from tests.api.conftest import SETTINGS
from tests.api.measurements import TRANSFORMER
from tests.api.requests import Json, arnold_request, changed, json_text, sia_request, table_job
from tests.api.serving import serving
from tests.growth import work


@pytest.fixture(scope="module")
def elsewhere(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that reads nothing itself."""
    with serving(create_app(SETTINGS.model_copy(update={"small_body_bytes": 1}), pool=pool)) as client:
        yield client


@pytest.mark.slow
def test_answers_do_not_depend_on_who_reads(elsewhere: httpx.Client, client: httpx.Client) -> None:
    request = sia_request()
    here, there = planned(client, request), planned(elsewhere, request)
    for name in ("input_hash", "allocations", "objective", "status", "verified", "warnings"):
        assert there[name] == here[name]
    assert elsewhere.get(there["links"]["input"]).json() == client.get(here["links"]["input"]).json()
    assert elsewhere.get(there["links"]["figure"]).text.startswith("<?xml")
    assert "ROWS" in elsewhere.get(there["links"]["model"]).text

    stored = post(elsewhere, "/v1/snapshots", request["snapshot"])
    assert stored.status_code == 201
    by_id = {**request, "snapshot": {"snapshot_id": stored.json()["id"]}}
    assert planned(elsewhere, by_id)["input_hash"] == here["input_hash"]
    assert post(elsewhere, "/v1/plans:validate", by_id).json() == {"valid": True, "issues": []}
    placement = {"snapshot": request["snapshot"], "allocations": []}
    answers = [post(asked, "/v1/placements:verify", placement).json() for asked in (elsewhere, client)]
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_faults_are_told_whoever_reads(elsewhere: httpx.Client, client: httpx.Client) -> None:
    unknown: Json = {**sia_request(), "snapshot": {"snapshot_id": "snapshot-0"}}
    for wrong in (changed(sia_request(), "/policy", "best"), unknown, arnold_request() | {"snapshot": []}):
        assert refused(elsewhere, wrong) == refused(client, wrong)
    no_json = [
        asked.post("/v1/plans", content=b"{", headers={"Content-Type": "application/json"}).json()
        for asked in (elsewhere, client)
    ]
    ids = {problem.pop("request_id") for problem in no_json}
    assert len(ids) == 2
    assert no_json[0] == no_json[1]


@pytest.mark.slow
def test_reading_ends_in_time() -> None:
    readers = Readers(reader_pool(SETTINGS, LocalEngine()), 0.2, small_bytes=1)
    try:
        with pytest.raises(WorkerTimeoutError, match=r"not done within 0\.2 s"):
            asyncio.run(readers.read(f"{reading_tasks.__name__}:endless", b"", 2))
    finally:
        readers.close()


@pytest.mark.parametrize("limit_s", [0.01, 60.0])
def test_what_is_small_is_read_here_where_a_worker_hangs(limit_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.reading.readers.NEAR_S", 0.02)
    pool = reader_pool(SETTINGS, LocalEngine())
    monkeypatch.setattr(pool, "is_kept", bool)
    monkeypatch.setattr(pool, "submit", lambda task, *_, **__: Ticket(1, task, b"", limit_s, None, None))
    readers = Readers(pool, limit_s, small_bytes=2, workers=pool)
    assert asyncio.run(readers.read(f"{reading_tasks.__name__}:echoed", b"[]", 2, wants="its base")) == b"[]"


@pytest.mark.slow
def test_an_idle_worker_reads_and_plans_what_it_has_read(
    elsewhere: httpx.Client, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[tuple[str, str | None, bool]] = []
    submit = pool.submit

    def watched(task: str, *arguments: object, **options: object) -> Ticket:
        submitted.append((task, cast("str | None", options.get("wants")), bool(options.get("at_once"))))
        return submit(task, *arguments, **options)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(pool, "submit", watched)
    planned(elsewhere, sia_request())
    (read, _, at_once), (plan, key, waits_not) = submitted
    assert (read, at_once, plan, waits_not) == (READ_PLAN, True, PLAN_TASK, False)
    assert any(key in worker.keeps for worker in pool._workers)


@pytest.mark.slow
def test_changes_go_to_the_worker_that_keeps_their_base(
    elsewhere: httpx.Client, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = planned(elsewhere, sia_request())
    wanted: list[tuple[str, object]] = []
    submit = pool.submit

    def watched(task: str, *arguments: object, **options: object) -> Ticket:
        wanted.append((task, options.get("wants")))
        return submit(task, *arguments, **options)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(pool, "submit", watched)
    request = {**sia_request(), "snapshot": {"base": base["id"], "jobs": {"j0": {"age_s": 5}}}}
    after = planned(elsewhere, request)
    # What it says, then with the base, which the worker knows that has planned it.
    (first, nothing), (second, kept), (plan, own) = wanted
    assert (first, nothing, second, plan) == (READ_PLAN, None, READ_PLAN, PLAN_TASK)
    keepers = [worker for worker in pool._workers if kept in worker.keeps]
    assert keepers
    assert any(own in worker.keeps for worker in keepers)
    whole = planned(elsewhere, changed(sia_request(), "/snapshot/jobs/0/age_s", 5))
    assert (after["input_hash"], after["allocations"]) == (whole["input_hash"], whole["allocations"])


@pytest.mark.slow
@pytest.mark.parametrize("is_busy", [False, True])
def test_small_changes_go_by_name_to_the_idle_worker_that_planned_their_base(
    client: httpx.Client, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    # Read by the service: whoever plans it has it as text, and keeps it.
    base = planned(client, changed(sia_request(), "/snapshot/jobs/1/age_s", 17 + is_busy))
    sent_texts: list[RequestText] = []
    submit = pool.submit

    def watched(task: str, argument: object, *arguments: object, **options: object) -> Ticket:
        if task in (READ_PLAN, READ_AND_PLAN):
            assert isinstance(argument, RequestText)
            sent_texts.append(argument)
            if is_busy:
                raise QueueFullError("it has another task since")
        return submit(task, argument, *arguments, **options)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(pool, "submit", watched)
    request = {**sia_request(), "snapshot": {"base": base["id"], "jobs": {"j0": {"age_s": 5}}}}
    after = planned(client, request)
    # The service, which reads it where none is idle any more, keeps the base as well.
    # Whoever is asked next is told the base.
    first, *others = (type(text.snapshots[base["id"]]) for text in sent_texts)
    assert (first, set(others) <= {Body}) == (BodyName, True)
    whole = changed(sia_request(), "/snapshot/jobs/1/age_s", 17 + is_busy)
    same = planned(client, changed(whole, "/snapshot/jobs/0/age_s", 5))
    assert (after["input_hash"], after["allocations"]) == (same["input_hash"], same["allocations"])
    assert client.delete(f"/v1/plans/{base['id']}").status_code == 204
    assert refused(client, request) == (422, [("unknown_snapshot", "/snapshot/base")])


@pytest.mark.slow
def test_others_read_while_all_workers_solve(
    elsewhere: httpx.Client, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> Ticket:
        raise QueueFullError("all workers solve")

    monkeypatch.setattr(pool, "submit", busy)
    assert post(elsewhere, "/v1/plans:validate", sia_request()).json()["valid"]


@pytest.fixture
def _nothing_kept() -> Iterator[None]:
    packed.forget_all()
    yield
    packed.forget_all()


def read(request: Json, **known: BodyName) -> tuple[ReadPlan, tuple[str, ...]]:
    """Read a request here, which may refer to snapshots that are `known`; also the names of what is kept then."""
    names: list[tuple[str, ...]] = []
    monitor = SolveMonitor(keeps=lambda kept: names.append(tuple(kept)))
    asked = read_plan(RequestText(body=json_text(request), settings=SETTINGS, snapshots=known), monitor)
    assert isinstance(asked, ReadPlan)
    return asked, names[-1]


def sent(asked: ReadPlan) -> PlanRequest:
    """The request as a worker gets it."""
    found: PlanRequest = pickle.loads(pickle.dumps(asked.request.for_worker()))  # noqa: S301 - our own
    return found


@pytest.mark.usefixtures("_nothing_kept")
def test_a_snapshot_that_nobody_kept_is_read_again() -> None:
    asked, names = read(sia_request())
    assert names == (asked.input.snapshot.hash,) == (key_of(asked.request.for_worker()),)
    kept, same = sent(asked), sent(asked)
    assert kept.snapshot is same.snapshot
    packed.forget_all()
    again = sent(asked)
    assert again.snapshot is not kept.snapshot
    assert again.snapshot == kept.snapshot
    assert key_of(again) is None
    # From here on it is kept, and said so with the plan.
    assert sent(asked).snapshot is again.snapshot
    told: list[tuple[str, ...]] = []
    planning.planned(PlanTask(request=again, validated=True), SolveMonitor(keeps=lambda kept: told.append(tuple(kept))))
    assert told == [names]


@pytest.mark.usefixtures("_nothing_kept")
@pytest.mark.parametrize("forgets", [False, True])
def test_changes_are_read_by_who_kept_the_base_and_by_any_other(forgets: bool) -> None:
    base, _ = read(sia_request())
    before = sent(base).snapshot
    if forgets:
        packed.forget_all()
    request = {**sia_request(), "snapshot": {"base": "b", "jobs": {"j1": {"age_s": 5}}}}
    asked, names = read(request, b=base.input.snapshot)
    assert names[-1] == asked.input.snapshot.hash
    assert (sent(asked).snapshot.jobs[0] is before.jobs[0]) is not forgets
    whole, _ = read(changed(sia_request(), "/snapshot/jobs/1/age_s", 5))
    assert asked.input.text == whole.input.text
    assert asked.input.snapshot.hash == whole.input.snapshot.hash
    assert asked.input_hash == whole.input_hash


@pytest.mark.usefixtures("_nothing_kept")
def test_who_has_but_the_name_of_a_base_lacks_it_unless_it_is_kept() -> None:
    base, _ = read(sia_request())
    request = {**sia_request(), "snapshot": {"base": "b", "jobs": {"j1": {"age_s": 5}}}}
    by_name, _ = read(request, b=base.input.snapshot.name)
    assert by_name.input.text == read(request, b=base.input.snapshot)[0].input.text
    # What is wrong is said by who has the text.
    wrong = changed(request, "/snapshot/jobs", {"none": {"age_s": 5}})
    packed.forget_all()
    for asked in (request, wrong):
        text = RequestText(body=json_text(asked), settings=SETTINGS, snapshots={"b": base.input.snapshot.name})
        assert read_plan(text, SolveMonitor()) == Lacking(snapshot_id="b")


@pytest.mark.parametrize(
    ("text", "base"),
    [
        (b'{"snapshot": {"base": "plan-1", "jobs": {}}, "policy": "sia"}', "plan-1"),
        (b'{"snapshot": {"cluster": {}, "jobs": [{"base": "plan-1"}]}}', None),
        (b'{"snapshot": {"base": 1}}', None),
        (b'{"snapshot": {"base": "\xff"}}', None),
        (b'{"snapshot": []}', None),
        (b'{"base": "plan-1"}', None),
        (b'{"snapshot": {"base": "plan-1"', None),
        (b"[" * 100_000, None),
    ],
)
def test_the_base_of_a_text_is_known_before_it_is_read(text: bytes, base: str | None) -> None:
    assert base_of(text) == base


@pytest.mark.usefixtures("_nothing_kept")
def test_few_snapshots_are_kept_and_large_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [read(changed(sia_request(), "/snapshot/jobs/1/age_s", k)) for k in range(6)]
    hashes = [each.input.snapshot.hash for each, _ in asked]
    assert asked[-1][1] == tuple(hashes[-4:])
    monkeypatch.setattr(packed, "_KEPT_BYTES", asked[0][0].input.snapshot.num_bytes - 1)
    large, names = read(changed(sia_request(), "/snapshot/jobs/1/age_s", 7))
    assert names == (large.input.snapshot.hash,)
    # Until it is planned.
    task = PlanTask(request=sent(large), validated=True)
    assert not packed._kept
    # Nobody is sent to it for what it has dropped, and it says so once.
    told: list[tuple[str, ...]] = []
    for _ in range(2):
        planning.planned(task, SolveMonitor(keeps=lambda names: told.append(tuple(names))))
    assert told == [()]


def test_readers_say_what_they_lack() -> None:
    reference = {**sia_request(), "snapshot": {"snapshot_id": "snapshot-0"}}
    text = RequestText(body=json_text(reference), settings=SETTINGS)
    assert read_plan(text, SolveMonitor()) == Lacking(snapshot_id="snapshot-0")
    known = frozenset({"j1", "elsewhere"})
    named = changed(sia_request(), "/snapshot/calendar", {"cluster": "main"})
    text = RequestText(body=json_text(named), settings=SETTINGS)
    assert read_plan(text, SolveMonitor()) == Lacking(calendar="main")
    forecast = changed(sia_request(), "/snapshot/forecaster", "site")
    forecast["snapshot"] |= {"taken_at": "1970-01-02T00:00:00Z"}
    forecast["snapshot"]["jobs"][0]["remaining_s"] = 60.0
    wanted = WantedForecasts(
        forecaster="site", jobs=(KnownJob(id="j1", num_gpus=1, age_s=0.0, running_s=0.0),), at_s=86_400.0
    )
    text = RequestText(body=json_text(forecast), settings=SETTINGS)
    assert read_plan(text, SolveMonitor()) == Lacking(forecasts=wanted)
    text = RequestText(body=json_text(sia_request()), settings=SETTINGS, measured_jobs=known)
    assert read_plan(text, SolveMonitor()) == Lacking(jobs=frozenset({"j1"}))


def sized(policy: str, size: int) -> Json:
    """As many jobs as nodes; half of the jobs run on a node each."""
    is_placed = policy in ("arnold", "ahead")
    request = arnold_request() if is_placed else sia_request()
    node = request["snapshot"]["cluster"]["nodes"][0]
    nodes = [{**node, "id": f"n{k}"} for k in range(size)]
    trained = {"transformer": TRANSFORMER} if policy.startswith("suika") else {}
    jobs = [
        {**table_job(f"j{k}"), **trained, "current": {f"n{k}": [0]} if k % 2 or is_placed else None}
        for k in range(size)
    ]
    waiting = request["snapshot"]["jobs"] if is_placed else []
    cluster = {**request["snapshot"]["cluster"], "nodes": nodes}
    return {**request, "policy": policy, "snapshot": {"cluster": cluster, "jobs": [*waiting, *jobs]}}


@pytest.mark.parametrize("policy", POLICIES)
def test_reading_grows_with_the_size(policy: str) -> None:
    def cost(size: int) -> int:
        text = RequestText(body=json_text(sized(policy, size)), settings=SETTINGS)
        assert not isinstance(read_plan(text, SolveMonitor()), Lacking)
        return work(lambda: read_plan(text, SolveMonitor()))

    assert cost(200) <= 2.3 * cost(100)


@pytest.mark.usefixtures("_nothing_kept")
def test_parts_are_stored_as_the_whole_would_be_and_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [table_job(f"j{k}") for k in range(100)]
    base, _ = read(sia_request(jobs))
    sizes: list[int] = []

    def watched(data: bytes) -> bytes:
        sizes.append(len(data))
        return deflated(data)

    monkeypatch.setattr(texts, "deflated", watched)
    stored, compressed = base.input.snapshot, []
    older: list[Json] = [{"jobs": {"j40": {"age_s": k}}} for k in (1, 2)]
    for round_, said in enumerate([*older, {"remove_jobs": [f"j{k}" for k in range(100)]}]):
        sizes.clear()
        asked, _ = read({**sia_request(), "snapshot": {"base": f"b{round_}", **said}}, **{f"b{round_}": stored})
        stored = asked.input.snapshot
        compressed.append(sum(sizes))
        assert stored.hash == Body.of(stored.text).hash
        assert stored.num_bytes == len(stored.text.encode())
    assert json.loads(stored.text)["jobs"] == []
    # The first one has nothing in common with any.
    assert compressed[1] < compressed[0] / 4
