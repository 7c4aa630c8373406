"""Requests for replays: what is wrong has a code, a pointer, and what would be right; what reading costs."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from api.common.settings import Settings
from api.reading.texts import Lacking, RequestText
from api.replays.reading import ReadReplays, read_replays
from api.store.stored_calendar import StoredCalendar
from executor.simulation.replay import Replay
from solver.monitor import SolveMonitor
from stowplan.errors import InputError
from tests.api.conftest import SETTINGS
from tests.api.replay_requests import (
    measured_request,
    modelled_request,
    replay_request,
    reserved_request,
    setups_of,
    tabled_request,
)
from tests.api.requests import Json, changed, json_text
from tests.growth import work
from tests.paths import ROOT

GANG, TABLE, MODELLED, MEASURED = replay_request(), tabled_request(), modelled_request(), measured_request()
RESERVED = reserved_request()
_ROW = TABLE["throughputs"][0]
_M = MEASURED["applications"][0]


def read(request: Json, settings: Settings = SETTINGS) -> ReadReplays:
    found = read_replays(RequestText(body=json_text(request), settings=settings), SolveMonitor())
    assert isinstance(found, ReadReplays)
    return found


CASES: list[tuple[str, Json, str, Any, str, str, str]] = [
    # name, request, where it is changed, to what, expected code, pointer ("": where it was changed), words
    ("unknown policy", GANG, "/policies/0/policy", "best", "unknown_value", "", "must be one of 'sia'"),
    ("policy missing", GANG, "/policies/0", {}, "missing_field", "/policies/0/policy", "is missing"),
    ("no policy", GANG, "/policies", [], "wrong_length", "", "at least 1 item"),
    (
        "more than sizes",
        GANG,
        "/policies/1",
        {"policy": "sia"},
        "policy_not_replayed",
        "/policies/1/policy",
        "more of jobs than their sizes; give `throughputs`, and jobs with `application`, `global_batch` and "
        "`iterations`; choose of gang, gang-ilp",
    ),
    (
        "more than sizes and throughputs",
        GANG,
        "/policies/1",
        {"policy": "arnold"},
        "policy_not_replayed",
        "/policies/1/policy",
        "places single jobs, and does not choose among those that come and go; choose of gang",
    ),
    (
        "more than throughputs",
        TABLE,
        "/policies/1",
        {"policy": "suika"},
        "policy_not_replayed",
        "/policies/1/policy",
        "goes by more than throughputs; set `modelled`, and give jobs a model of the catalogue as `application`, and "
        "`global_batch`; choose of sia, arena, arena-ilp, gang, gang-ilp",
    ),
    (
        "a model that is not in the catalogue",
        MODELLED,
        "/trace/jobs/1/application",
        "gpt2-351m",
        "unknown_model",
        "",
        "did you mean 'gpt2-350m'",
    ),
    ("throughputs of models", MODELLED, "/throughputs", [_ROW], "invalid_entry", "/modelled", "give one of them"),
    (
        "models without batches",
        MODELLED,
        "/trace/jobs/0/global_batch",
        None,
        "nothing_replayed",
        "/trace/jobs",
        "none of the 2 jobs of 'two' has GPUs, a model, a global batch, and iterations or a duration",
    ),
    (
        "more than goodput",
        MEASURED,
        "/policies/0",
        {"policy": "suika"},
        "policy_not_replayed",
        "/policies/0/policy",
        "goes by more than throughputs; set `modelled`",
    ),
    ("throughputs of measured", MEASURED, "/throughputs", [_ROW], "invalid_entry", "/applications", "give one of them"),
    ("models of measured", MEASURED, "/modelled", True, "invalid_entry", "", "`applications` and `modelled`; give one"),
    ("application twice", MEASURED, "/applications/1", _M, "listed_twice", "/applications/1/application", "once"),
    ("no applications", MEASURED, "/applications", [], "wrong_length", "", "at least 1 item"),
    (
        "type twice",
        MEASURED,
        "/applications/0/types/1",
        _M["types"][0],
        "listed_twice",
        "/applications/0/types/1/gpu_type",
        "list it once",
    ),
    ("local batches", MEASURED, "/applications/0/types/0/max_local_batch", 4, "invalid_entry", "", "is 4; must be at"),
    (
        "no placement",
        MEASURED,
        "/applications/0/types/0/steps",
        [{**_M["types"][0]["steps"][0], "gpus": None}],
        "invalid_entry",
        "",
        "has none with `gpus`",
    ),
    (
        "sync",
        MEASURED,
        "/applications/0/types/0/steps/0/sync_time_s",
        0.5,
        "invalid_entry",
        "",
        "is 0.5; must be below",
    ),
    ("placement", MEASURED, "/applications/0/types/0/steps/0/gpus", [1, 1], "invalid_entry", "", "are 2 on 2 nodes"),
    (
        "nodes without replicas",
        MEASURED,
        "/applications/0/types/0/steps/15/num_nodes",
        13,
        "invalid_entry",
        "/applications/0/types/0/steps/15/num_replicas",
        "is 12; must be at least num_nodes, which is 13",
    ),
    ("batches", MEASURED, "/applications/0/validations/1/batch", 10, "invalid_entry", "", "must be above that of the"),
    (
        "epochs",
        MEASURED,
        "/applications/0/validations/1/epochs",
        _M["validations"][1]["epochs"][:1],
        "invalid_entry",
        "",
        "has 1 epochs, the first validation 2",
    ),
    (
        "progress",
        MEASURED,
        "/applications/0/validations/0/epochs/1/progress",
        100.0,
        "invalid_entry",
        "",
        "must be above that of the epoch before",
    ),
    (
        "variance",
        MEASURED,
        "/applications/0/validations/0/epochs/1/variance",
        0.0,
        "out_of_range",
        "",
        "at least 1e-100",
    ),
    ("field of a step", MEASURED, "/applications/0/types/0/steps/0/nodes", 1, "unknown_field", "", "'num_nodes'"),
    ("what is told", MEASURED, "/profiling", "all", "unknown_value", "", "must be 'one_gpu' or 'released'"),
    (
        "nothing was measured here",
        MEASURED,
        "/applications/0/types/0/gpu_type",
        "b",
        "nothing_replayed",
        "/trace/jobs",
        "has GPUs and an application that was measured on this cluster; these were: m",
    ),
    (
        "unknown parameter",
        GANG,
        "/policies/1/parameters",
        {"backfil": "none"},
        "unknown_field",
        "/policies/1/parameters/backfil",
        "did you mean 'backfill'?",
    ),
    (
        "value of a parameter",
        GANG,
        "/policies/1/parameters/backfill",
        "some",
        "unknown_value",
        "",
        "must be 'none' or 'easy'",
    ),
    ("policy twice", GANG, "/policies/1", {"policy": "gang"}, "listed_twice", "", "list it once"),
    (
        "prices",
        TABLE,
        "/policies/0",
        {"policy": "sia", "parameters": {"prices": {"capacity[a100]": -1.0}}},
        "negative",
        "/policies/0/parameters/prices/capacity[a100]",
        "",
    ),
    ("no jobs", GANG, "/trace/jobs", [], "wrong_length", "", "at least 1 item"),
    ("not sorted", GANG, "/trace/jobs/3/submit_s", 1.0, "invalid_entry", "", "sort by submission"),
    ("job twice", GANG, "/trace/jobs/3/id", "a", "invalid_entry", "", "job ids must be unique"),
    ("negative duration", GANG, "/trace/jobs/3/duration_s", -1.0, "negative", "", "at least 0"),
    ("part of a GPU", GANG, "/trace/jobs/3/num_gpus", 0.5, "wrong_type", "", "must be a valid integer"),
    ("unknown field of a job", GANG, "/trace/jobs/3/gpus", 4, "unknown_field", "", "did you mean 'num_gpus'?"),
    ("name with space around", GANG, "/trace/jobs/3/id", " d", "invalid_entry", "", "a text without space around"),
    (
        "nothing is known of durations",
        GANG,
        "/trace/jobs",
        [{"id": "a", "submit_s": 0, "num_gpus": 4, "iterations": 5}],
        "nothing_replayed",
        "",
        "none of the 1 jobs of 'four' has GPUs and a duration",
    ),
    (
        "an application that is not in the table",
        TABLE,
        "/trace/jobs/0/application",
        "other",
        "nothing_replayed",
        "/trace/jobs",
        "it has m at 10 on a100",
    ),
    ("row twice", TABLE, "/throughputs/1", _ROW, "listed_twice", "", "give it once"),
    ("no rows", TABLE, "/throughputs", [], "wrong_length", "", "at least 1 item"),
    ("speed", TABLE, "/throughputs/0/samples_per_s", 0, "out_of_range", "", "at least 1e-09"),
    ("time without end", GANG, "/trace/jobs/3/duration_s", 1e300, "out_of_range", "", "at most 100000000000.0"),
    ("seed twice", GANG, "/seeds", [4, 4], "listed_twice", "/seeds/1", "list it once"),
    ("negative seed", GANG, "/seeds", [-1], "negative", "/seeds/0", "at least 0"),
    ("many replays", GANG, "/seeds", list(range(60)), "out_of_range", "/policies", "120 replays; this service allows"),
    ("time limit", GANG, "/time_limit_s", 5000.0, "out_of_range", "", "this service allows at most 3600"),
    ("failures for ever", GANG, "/failures", {"mtbf_s": 9.0}, "missing_field", "/horizon_s", "until a horizon"),
    (
        "failures without number",
        replay_request(horizon_s=1e9),
        "/failures",
        {"mtbf_s": 1e-3, "repair_s": 1e-3},
        "out_of_range",
        "/failures/mtbf_s",
        "makes some 5e+11 failures until the horizon; at most 1,000,000 are drawn",
    ),
    ("horizon", GANG, "/horizon_s", 0.0, "not_positive", "", "above 0"),
    ("round", GANG, "/round_s", -1.0, "not_positive", "", "above 0"),
    ("noise", GANG, "/noise", -0.5, "negative", "", "at least 0"),
    ("elasticity", GANG, "/elasticity", 0.5, "out_of_range", "", "at least 1"),
    ("estimates", GANG, "/estimates", "good", "unknown_value", "", "must be 'exact', 'limit' or 'none'"),
    ("nan", GANG, "/start_s", float("nan"), "not_finite", "", "must be a finite number"),
    (
        "node of another cluster",
        RESERVED,
        "/calendar/0/nodes",
        ["a100-0", "h100-0"],
        "unknown_node",
        "/calendar/0/nodes/1",
        "'for d' names node 'h100-0', which the cluster does not have",
    ),
    ("no time zero", RESERVED, "/trace/origin_s", None, "missing_field", "", "when time zero of the trace was"),
    (
        "another time zero",
        RESERVED,
        "/trace/origin_s",
        1_796_734_000,
        "calendar_elsewhere",
        "/calendar",
        "begins 2026-12-08T12:46:40+00:00; see origin_s",
    ),
    (
        "behind the horizon",
        {**RESERVED, "horizon_s": 150.0},
        "/seeds",
        [0],
        "calendar_elsewhere",
        "/calendar",
        "and ends 2026-12-07T09:02:30+00:00",
    ),
    ("far away", RESERVED, "/trace/origin_s", 0.0, "beyond_horizon", "/calendar/0/from_time", "20794 days away"),
    (
        "job of another reservation",
        RESERVED,
        "/trace/jobs/1/calendar_entry",
        "for b",
        "unknown_reservation",
        "",
        "the calendar of the replay has no reservation of that name",
    ),
    (
        "job of a reservation without a calendar",
        GANG,
        "/trace/jobs/1/calendar_entry",
        "for b",
        "unknown_reservation",
        "",
        "no reservation",
    ),
    ("from after until", RESERVED, "/calendar/0/until_time", "2026-12-07T09:00:00Z", "from_after_until", "", "150 s"),
    ("unknown field of an entry", RESERVED, "/calendar/0/node", [], "unknown_field", "", "did you mean 'nodes'?"),
    (
        "time without a zone",
        RESERVED,
        "/calendar/0/from_time",
        "2026-12-07T09:00:00",
        "missing_time_zone",
        "",
        "Z or an offset",
    ),
    ("known before the trace", RESERVED, "/calendar_known_s", -1, "negative", "", "at least 0"),
    ("cluster in words", GANG, "/cluster", "a100:1x8", "wrong_type", "", "must be an object"),
    ("type of a node", GANG, "/cluster/nodes/0/gpu_type", "h", "unknown_gpu_type", "", "the cluster knows ['a100']"),
    ("unknown field of the cluster", GANG, "/cluster/node", [], "unknown_field", "", "did you mean 'nodes'?"),
    ("empty cluster", GANG, "/cluster/nodes", [], "empty_cluster", "", "give at least one"),
]


@pytest.mark.parametrize(
    ("request_", "pointer", "value", "code", "expected", "words"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_is_refused(request_: Json, pointer: str, value: Any, code: str, expected: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read(changed(request_, pointer, value))
    details = [
        issue.detail for issue in error.value.issues if (issue.code, issue.pointer) == (code, expected or pointer)
    ]
    assert details, error.value.issues
    assert words in details[0]


def test_a_named_calendar_is_asked_for_and_judged_by_the_cluster() -> None:
    request = reserved_request(calendar={"cluster": "floor"})
    text = RequestText(body=json_text(request), settings=SETTINGS)
    assert read_replays(text, SolveMonitor()) == Lacking(calendar="floor")

    def known(*nodes: str) -> RequestText:
        (entry,) = reserved_request()["calendar"]
        entries = json_text([{**entry, "nodes": list(nodes)}]).decode()
        stored = StoredCalendar(
            name="floor", at_s=0.0, version=1, updated_at_s=0.0, cluster="", entries=entries, reservations=()
        )
        return replace(text, calendars={"floor": stored})

    found, inline = read_replays(known("a100-0"), SolveMonitor()), read(RESERVED)
    assert isinstance(found, ReadReplays)
    assert found.packed == inline.packed
    for calendars, pointer, words in (
        ({"floor": None}, "/calendar/cluster", "there is no calendar of that name"),
        (
            known("x").calendars,
            "/calendar/cluster",
            "'floor', which does not go with the cluster of the replay: 'for d' names node 'x'",
        ),
    ):
        with pytest.raises(InputError) as error:
            read_replays(replace(text, calendars=calendars), SolveMonitor())
        (issue,) = error.value.issues
        assert issue.pointer == pointer
        assert words in issue.detail


def test_a_trace_above_the_limit_is_refused() -> None:
    with pytest.raises(InputError) as error:
        read(GANG, SETTINGS.model_copy(update={"max_replay_jobs": 3}))
    (issue,) = error.value.issues
    assert (issue.code, issue.pointer) == ("out_of_range", "/trace/jobs")
    assert issue.detail == "has 4 jobs; this service allows at most 3"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = changed(changed(GANG, "/policies/0/policy", "sia"), "/trace/jobs/3/id", "a")
    with pytest.raises(InputError) as error:
        read(changed(wrong, "/seeds", [1, 1]))
    assert [issue.code for issue in error.value.issues] == [
        "listed_twice",
        "policy_not_replayed",
        "invalid_entry",
        "invalid_entry",
    ]


def test_every_policy_is_replayed_with_every_seed() -> None:
    asked = read(replay_request(seeds=[5, 2]))
    assert [(row.parameters, row.seed) for row in asked.rows] == [
        ({}, 5),
        ({}, 2),
        ({"backfill": "none"}, 5),
        ({"backfill": "none"}, 2),
    ]
    assert [seed for _, seed in asked.packed.replays] == [5, 2, 5, 2]
    assert asked.time_limit_s == SETTINGS.replay_time_limit_s
    # Defaults are filled in before.
    assert asked.input_hash == read(replay_request(seeds=[5, 2], noise=0.0)).input_hash
    assert asked.input_hash != read(replay_request(seeds=[2, 5])).input_hash


def growing(num_jobs: int) -> Json:
    """So many jobs, each of which ends before the next one but one comes."""
    jobs = [{"id": f"j{k}", "submit_s": 10.0 * k, "num_gpus": 4, "duration_s": 15.0} for k in range(num_jobs)]
    return replay_request(trace={"name": "many", "jobs": jobs}, policies=[{"policy": "gang"}])


@pytest.mark.slow
def test_reading_grows_with_the_jobs_and_is_little_beside_the_replay() -> None:
    few, many = growing(200), growing(400)
    costs = [work(partial(read, request)) for request in (few, many)]
    assert costs[1] <= 2.3 * costs[0]
    (setup,) = setups_of(few)
    assert costs[0] < 0.2 * work(Replay(setup).run)


def test_more_policies_than_are_allowed_are_refused_before_they_are_compared() -> None:
    def refuse(num_policies: int) -> None:
        policies = [{"policy": "gang", "parameters": {"default_remaining_s": 1.0 + k}} for k in range(num_policies)]
        with pytest.raises(InputError) as error:
            read(replay_request(policies=policies))
        (issue,) = error.value.issues
        assert issue.detail == f"times seeds are {num_policies} replays; this service allows at most 100"

    refuse(101)
    assert work(partial(refuse, 1000)) <= 2.3 * work(partial(refuse, 500))


def test_modelled_jobs_are_counted_without_a_plan() -> None:
    """Whether 175 billion parameters fit four GPUs, which they do not, is for the replay to find out."""
    asked = read(changed(MODELLED, "/trace/jobs/0", {**MODELLED["trace"]["jobs"][0], "application": "gpt2-175b"}))
    assert (asked.num_jobs, asked.num_left_out) == (1, 1)


def test_an_unknown_model_is_said_once_for_all_its_jobs() -> None:
    jobs = [{**MODELLED["trace"]["jobs"][0], "id": name, "application": "mine"} for name in "abc"]
    with pytest.raises(InputError) as error:
        read(changed(MODELLED, "/trace/jobs", jobs))
    assert [issue.pointer for issue in error.value.issues] == ["/trace/jobs/0/application"]


def test_policies_are_compared_by_their_values_and_in_linear_time() -> None:
    """Quotas have no order; many policies and seeds take as much more as they are more."""
    quotas = [{"policy": "gang", "parameters": {"quotas": quota}} for quota in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    with pytest.raises(InputError) as error:
        read(replay_request(policies=quotas))
    assert [(issue.code, issue.pointer) for issue in error.value.issues] == [("listed_twice", "/policies/1")]
    allowing = SETTINGS.model_copy(update={"max_replays": 10_000})

    def accept(num_policies: int) -> None:
        policies = [{"policy": "gang", "parameters": {"default_remaining_s": 1.0 + k}} for k in range(num_policies)]
        setups_of(replay_request(policies=policies), allowing)

    assert work(partial(accept, 400)) <= 2.3 * work(partial(accept, 200))


_READING = """
import sys
from api.common.settings import Settings
from api.reading.texts import RequestText
from api.replays.reading import read_replays
from solver.monitor import SolveMonitor
read = read_replays(RequestText(body=sys.stdin.buffer.read(), settings=Settings()), SolveMonitor())
print(read.num_jobs, read.num_left_out, {"scipy", "executor.simulation.application"} & set(sys.modules))
"""


@pytest.mark.slow
def test_measured_jobs_are_counted_without_numerics() -> None:
    """The process that serves reads small requests itself."""
    done = subprocess.run(
        [sys.executable, "-c", _READING], input=json_text(MEASURED), capture_output=True, check=False, cwd=ROOT
    )
    assert done.stdout.decode() == "2 1 set()\n", done.stderr.decode()


def test_reading_grows_with_what_was_measured() -> None:
    def request(num_steps: int) -> Json:
        measured = _M["types"][0]
        steps = [{**measured["steps"][0], "local_batch": 5 + k} for k in range(num_steps)]
        return changed(MEASURED, "/applications/0/types/0", {**measured, "steps": steps})

    few, many = request(1000), request(2000)
    assert work(partial(read, many)) <= 2.3 * work(partial(read, few))
