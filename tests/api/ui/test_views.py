"""Every view in a real browser, on a real service with a token: what it shows, and that nobody is kept out of it.

One browser and one service for all; what is looked at was planned, replayed and measured by the service itself.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from api.app import create_app
from api.common.examples import example
from api.openapi import PATH
from api.schemas.replay import REPLAY_EXAMPLE
from api.schemas.reservation import CALENDAR_EXAMPLE
from executor.deployment import LaunchOptions
from executor.launch.local import LocalBackend
from solver.pool import WorkerPool
from tests.api.asking import JSON, planned, post, until, waited
from tests.api.conftest import SETTINGS
from tests.api.forecast_requests import forecaster_request
from tests.api.measurements import batch_of
from tests.api.requests import Json, hard_request, json_text, sia_request, table_job
from tests.api.serving import NO_CERTIFICATES, serving
from tests.api.ui.browsing import Visit, browsing
from tests.api.ui.scenes import DRAINED, LEAF_SIZE, NUM_BUSY, PODS, fabric_request
from tests.paths import PRETEND_TRAINER, ROOT

pytestmark = pytest.mark.slow

TOKEN = "operators-own"  # noqa: S105 - of this service alone
WIDTH = 1280
DEPLOYED: Json = {
    "job_id": "tiny",
    "job": {
        "num_layers": 4,
        "hidden_size": 128,
        "vocabulary_size": 100,
        "sequence_length": 32,
        "global_batch": 8,
    },
    "plan": {
        "stages": [
            {"num_layers": 4, "replicas": [{"node": "a", "gpu_type": "cpu", "gpus": [0], "local_batch": 8}]},
        ],
        "num_micro_batches": 1,
    },
    "training": {"device": "cpu", "num_steps": 3},
    "launch": {"grace_s": 1.0},
}

H100: Json = {
    "memory_bytes": 80_000_000_000,
    "peak_flops_per_s": 989e12,
    "intra_node_bandwidth_bytes_per_s": 4.5e11,
    "inter_node_bandwidth_bytes_per_s": 4e11,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "deployments"


@pytest.fixture(scope="module")
def service(pool: WorkerPool, folder: Path) -> Iterator[httpx.Client]:
    """A service that deploys, and wants a token."""
    settings = SETTINGS.model_copy(update={"token": TOKEN, "deployments": str(folder)})
    pretending = partial(LaunchOptions, command=(sys.executable, str(PRETEND_TRAINER)))
    with pytest.MonkeyPatch.context() as patched, serving(create_app(settings, pool=pool)) as client:
        patched.setattr("api.deployments.choice.LaunchOptions", pretending)
        patched.setenv("PYTHONPATH", str(ROOT))
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client
    for run in folder.glob("deployment-*/runs/*"):
        LocalBackend().stop(run, grace_s=1.0)


@pytest.fixture(scope="module")
def plans(service: httpx.Client) -> Mapping[str, str]:
    """Plans by name: of Sia with twenty jobs, of Sia with one that waits, and of Arnold on 847 hosts."""
    big = table_job("big", min_gpus=4, max_gpus=4, gpu_types=["a"])
    crowded = [table_job(f"j{k}", current={f"n{k // 4}": [k % 4]}, preemptible=False) for k in range(8)]
    made = {
        "sia": planned(service, example("sia-heterogeneous-64").request),
        "waits": planned(service, sia_request([*crowded, big])),
        "arnold": planned(service, fabric_request()),
    }
    return {name: plan["id"] for name, plan in made.items()}


@pytest.fixture
def visit(browser: Browser, service: httpx.Client) -> Iterator[Visit]:
    """A tab whose token is known; in the end the browser must have had nothing to complain of."""
    context = browser.new_context(viewport={"width": WIDTH, "height": 900})
    context.add_init_script(f"sessionStorage.setItem('stowplan.token', '{TOKEN}')")
    visited = Visit(context.new_page(), str(service.base_url).rstrip("/"))
    yield visited
    context.close()
    assert visited.complaints == []


def test_a_token_is_asked_for_once(browser: Browser, service: httpx.Client, plans: Mapping[str, str]) -> None:
    context = browser.new_context()
    visit = Visit(context.new_page(), str(service.base_url).rstrip("/"))
    page = visit.go("plans")
    dialog = page.get_by_role("dialog", name="This service asks for a token")
    dialog.wait_for()
    assert visit.accessible() == ""
    for wrong, told in (("wrong", True), (TOKEN, False)):
        dialog.get_by_label("Token").fill(wrong)
        page.keyboard.press("Enter")
        if told:
            dialog.get_by_role("alert").wait_for()
    page.get_by_role("link", name=plans["sia"]).wait_for()
    page.reload()
    page.get_by_role("link", name=plans["sia"]).wait_for()
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    page.get_by_role("button", name="Forget token").click()
    dialog.wait_for()
    context.close()
    assert visit.complaints == []


def test_plans_and_a_plan(visit: Visit, service: httpx.Client, plans: Mapping[str, str]) -> None:
    page = visit.go("plans", title="Plans")
    rows = page.get_by_role("row")
    rows.nth(3).wait_for()
    assert visit.accessible() == ""
    page.get_by_role("link", name=plans["sia"]).click()
    plan = service.get(f"/v1/plans/{plans['sia']}").json()
    placed, left = len(plan["allocations"]), len(plan["unplaced"])
    assert placed + left == 20
    expect(page.get_by_text(re.compile(rf"^{placed} jobs with \d+ GPUs, {left} jobs? without\.$"))).to_be_visible()
    expect(page.get_by_role("region", name="Allocations").get_by_role("row")).to_have_count(1 + placed)
    # All terms, of which the objective is the sum.
    terms = page.get_by_role("region", name="Objective by term")
    terms.get_by_role("row", name="Together").wait_for()
    expect(page.get_by_role("main")).to_be_focused()
    assert page.title().startswith(plans["sia"])
    assert visit.accessible() == ""


def test_why_a_job_waits_and_what_would_make_it_fit(visit: Visit, plans: Mapping[str, str]) -> None:
    page = visit.go("plans", plans["waits"])
    waiting = page.get_by_role("region", name="Why these jobs wait")
    waiting.get_by_role("heading", name="big").wait_for()
    expect(waiting.get_by_text("What would help:")).to_be_visible()
    assert visit.accessible() == ""
    waiting.get_by_role("link", name="Try what would make it fit").click()
    page.get_by_label("Unit (pod)").fill("pod0")
    page.get_by_role("button", name="Add variant").click()
    page.get_by_role("button", name="Ask", exact=True).click()
    found = page.get_by_role("region", name="Variant 1 more a")
    # The job that waited has the four GPUs of the new node.
    expect(found.get_by_role("row", name="big started")).to_contain_text(re.compile("4 . a"))
    assert visit.accessible() == ""


def test_a_request_is_checked_and_planned(visit: Visit) -> None:
    page = visit.go("plans", "new", title="New plan")
    request = page.get_by_label("Request (JSON)")
    request.fill("{")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The request is no JSON")
    wrong = sia_request([table_job("j0", min_gpus=0)])
    request.fill(json_text(wrong).decode())
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("/snapshot/jobs/0/min_gpus")
    visit.complaints = [said for said in visit.complaints if "422" not in said]
    page.get_by_role("button", name=re.compile("^Plan .")).first.wait_for()
    # Nothing makes the page wider than the window.
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
    assert visit.accessible() == ""
    request.fill(json_text(sia_request()).decode())
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("region", name="Allocations").wait_for()


def test_a_solve_is_followed_and_stopped(visit: Visit, service: httpx.Client) -> None:
    path = post(service, "/v1/plans", hard_request()).headers["location"]
    page = visit.go("plans", path.rpartition("/")[2])
    live = page.get_by_role("region", name="Solving")
    # Incumbents and bounds as they come, without a reload.
    live.get_by_role("img", name=re.compile("Objective of the best plan and bound over time")).wait_for()
    assert visit.accessible() == ""
    page.get_by_role("button", name="Stop, and keep the best plan").click()
    page.get_by_role("region", name="Placement of llm").wait_for()
    expect(page.get_by_text("canceled").first).to_be_visible()
    assert service.get(path).json()["status"] == "canceled"


def test_the_map_by_mouse_keys_and_table(visit: Visit, service: httpx.Client, plans: Mapping[str, str]) -> None:
    hosts = service.get(f"/v1/plans/{plans['arnold']}").json()["communication"]["hosts"]
    assert len(hosts) == 512
    page = visit.go("plans", plans["arnold"], "map")
    canvas = page.get_by_role("application", name="Map of the cluster: 847 nodes.")
    expect(canvas).to_have_attribute("data-drawn", "true")
    told = page.locator("#map-node")
    # Who has the GPUs of all hosts; those of drained ones are not free.
    who = page.get_by_role("region", name="Who has GPUs").get_by_role("listitem")
    gpus = {"llm": 8 * 512, "runs": 8 * NUM_BUSY, "drained or down": 8 * DRAINED}
    for owner, many in (gpus | {"free": 8 * 847 - sum(gpus.values())}).items():
        expect(who.filter(has_text=owner)).to_have_text(re.compile(f"{owner} *{many:,} GPUs"))
    canvas.focus()
    last = f"P12-{PODS['P12'] - 1}"
    for key, node in (("Home", "P8-0"), ("ArrowRight", "P8-1"), ("ArrowLeft", "P8-0"), ("End", last)):
        page.keyboard.press(key)
        has = "llm" if node in hosts else "runs" if node.startswith("P8") else "free"
        expect(told).to_have_text(re.compile(rf"^{node}, a, in {node.partition('-')[0]}/S\d+: 8 GPUs {has}$"))
    page.keyboard.press("Escape")
    expect(told).to_have_text("No node is chosen.")
    # Somewhere lies a node of the job; the same one is free now.
    box = canvas.bounding_box()
    assert box is not None
    places = [(x / 32, y / 32) for y in range(10, 24) for x in range(3, 30)]
    for x, y in places:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        if "8 GPUs llm" in told.inner_text():
            break
    page.mouse.down()
    page.mouse.up()
    node = told.inner_text()
    # Keys zoom in on what is chosen: it stays under the mouse.
    for _ in range(5):
        page.keyboard.press("+")
    page.mouse.move(box["x"] + x * box["width"] + 1, box["y"] + y * box["height"])
    expect(told).to_have_text(node)
    page.get_by_role("button", name="Now").click()
    expect(told).to_contain_text("8 GPUs free")
    page.get_by_role("button", name="As a table").click()
    page.get_by_role("button", name="P8/S22").click()
    rows = page.get_by_role("table", name="Nodes of P8/S22").get_by_role("row")
    expect(rows).to_have_count(1 + PODS["P8"] % LEAF_SIZE)
    expect(rows.last).to_contain_text("drained: memory errors")
    assert visit.accessible() == ""


def test_the_figure_of_a_plan_is_asked_for_with_the_token(visit: Visit, plans: Mapping[str, str]) -> None:
    page = visit.go("plans", plans["sia"], "figure")
    picture = page.get_by_role("img", name=re.compile("coloured by job"))
    picture.wait_for()
    assert picture.evaluate("it => it.decode().then(() => it.naturalWidth)") > 100
    assert visit.accessible() == ""


def test_a_calendar(visit: Visit, service: httpx.Client) -> None:
    service.put("/v1/clusters/main", content=json_text(CALENDAR_EXAMPLE["cluster"]), headers=JSON)
    answer = service.put("/v1/clusters/main/calendar", content=json_text(CALENDAR_EXAMPLE), headers=JSON)
    assert answer.status_code in {200, 201}, answer.text
    page = visit.go("calendars")
    page.get_by_role("link", name="main 4 nodes").click()
    page.get_by_role("img", name="1 entry on 2 minipods over time").wait_for()
    expect(page.get_by_role("row", name="switches of pod1")).to_contain_text("2 nodes of pod1")
    assert visit.accessible() == ""


def test_a_plan_in_three_dimensions(visit: Visit) -> None:
    page = visit.go("parallel", title="3D plan of one job")
    page.get_by_label("Model of the catalogue").fill("gpt2-350m")
    page.get_by_label("To GPUs").fill("8")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("heading", name=re.compile("^Best: ")).wait_for()
    page.get_by_role("img", name=re.compile("^Pipeline schedule and memory")).wait_for()
    assert visit.accessible() == ""


def test_a_deployment_its_step_times_and_output(visit: Visit, service: httpx.Client, folder: Path) -> None:
    made = post(service, "/v1/deployments", DEPLOYED)
    assert made.status_code == 201, made.text
    path = made.headers["location"]
    until(service, path, lambda it: it["phase"] == "finished")
    assert post(service, "/v1/jobs/tiny/metrics", batch_of(num_steps=8)).status_code == 200
    # The stand-in for the trainer has nothing to say.
    [log] = folder.rglob("rank-0.log")
    log.write_text("rank 0 was here\n", encoding="utf-8")
    page = visit.go("deployments", title="Deployments")
    page.get_by_role("link", name=path.rpartition("/")[2]).click()
    # The prediction stands beside what was measured.
    page.get_by_role(
        "img", name=re.compile(r"^Time of the newest 8 steps, .* by data sheets [\d.]+ .*s, calibrated")
    ).wait_for()
    page.get_by_role("region", name="Predicted against measured").get_by_role("row").nth(1).wait_for()
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_label("Output of rank 0")).to_contain_text("was here")
    assert visit.accessible() == ""
    assert service.post(f"{path}:stop").status_code in {202, 409}


def test_a_plan_is_deployed_and_stopped_by_buttons(visit: Visit, service: httpx.Client) -> None:
    """Each asks first; nothing happens when it is not agreed to."""
    nodes = [{"id": "a", "gpu_type": "h100", "num_gpus": 1}]
    cluster = {"gpu_types": [{"name": "h100", **H100}], "nodes": nodes}
    job = {"id": "small", "min_gpus": 1, "max_gpus": 1, "transformer": DEPLOYED["job"]}
    made = planned(service, {"policy": "arena", "snapshot": {"cluster": cluster, "jobs": [job]}})
    page = visit.go("plans", made["id"], "deploy")
    page.get_by_label("Ranks compute on").select_option("cpu")
    page.get_by_label("Steps").fill("7000")
    before = len(service.get("/v1/deployments").json()["deployments"])
    page.get_by_role("button", name="Deploy small").click()
    dialog = page.get_by_role("dialog", name="Start the training of small?")
    expect(dialog).to_contain_text("1 GPU of a")
    assert visit.accessible() == ""
    dialog.get_by_role("button", name="Cancel").click()
    assert len(service.get("/v1/deployments").json()["deployments"]) == before
    page.get_by_role("button", name="Deploy small").click()
    dialog.get_by_role("button", name="Start it").click()
    page.get_by_role("region", name="Runs").wait_for()
    deployment = page.url.rpartition("/")[2]
    assert service.get(f"/v1/deployments/{deployment}").json()["num_steps"] == 7000
    # The job trains now: its plan can be moved, and is not started twice.
    page.goto(f"{visit.url}/ui/#/plans/{made['id']}/deploy")
    page.get_by_role("button", name="Move it to this plan").wait_for()
    page.get_by_role("link", name=deployment).click()
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("dialog", name="Stop small?").get_by_role("button", name="Stop it").click()
    until(service, f"/v1/deployments/{deployment}", lambda it: it["phase"] == "stopped")
    # Nothing was measured of the job, and the view asks for it as long as it is shown.
    visit.go("plans", title="Plans")
    visit.complaints = [said for said in visit.complaints if "404" not in said]


def test_solvers_are_compared_on_a_plan(visit: Visit, service: httpx.Client, plans: Mapping[str, str]) -> None:
    page = visit.go("plans", plans["waits"], "input")
    page.get_by_role("button", name="Compare solvers on it").click()
    page.get_by_role("heading", name=re.compile("^comparison-")).wait_for()
    comparison = page.url.rpartition("/")[2]
    until(service, f"/v1/solver-comparisons/{comparison}", lambda it: it["status"] == "succeeded")
    runs = page.get_by_role("region", name="What each solver made of it")
    for solver in ("auto", "highs", "scip"):
        expect(runs.get_by_role("row", name=re.compile(f"^{solver} "))).to_contain_text("proven")
    expect(page.get_by_text("agree", exact=False).first).to_be_visible()
    page.get_by_role("img", name=re.compile("^Gap of every solver")).wait_for()
    assert visit.accessible() == ""
    visit.go("comparisons", title="Comparisons of solvers").get_by_role("link", name=comparison).wait_for()


def test_a_forecaster_and_how_good_it_is(visit: Visit, service: httpx.Client) -> None:
    made = post(service, "/v1/forecasters", forecaster_request("site", time_limit_s=60.0))
    assert made.status_code in {200, 202}, made.text
    until(service, "/v1/forecasters/site", lambda it: it["status"] == "succeeded")
    page = visit.go("forecasters")
    page.get_by_role("link", name="site").click()
    report = page.get_by_role("region", name="How good it is")
    expect(report.get_by_role("row")).not_to_have_count(1)
    page.get_by_role("img", name=re.compile("^How often jobs ended")).wait_for()
    assert visit.accessible() == ""


def test_tokens_and_who_changed_what(visit: Visit, plans: Mapping[str, str]) -> None:
    page = visit.go("access", title="Access")
    changes = page.get_by_role("region", name="What was changed")
    expect(changes.get_by_role("cell", name=plans["sia"])).to_be_visible()
    tokens = page.get_by_role("region", name="Tokens")
    tokens.get_by_label("Client").fill("nightly")
    tokens.get_by_label("Role").select_option("planner")
    tokens.get_by_role("button", name="Make a token").click()
    made = tokens.get_by_role("status").get_by_role("code").inner_text()
    with httpx.Client(
        base_url=visit.url, headers={"Authorization": f"Bearer {made}"}, verify=NO_CERTIFICATES
    ) as nightly:
        assert nightly.get("/v1/plans").status_code == 200
        assert visit.accessible() == ""
        row = tokens.get_by_role("row", name="nightly")
        row.get_by_role("button", name="Revoke").click()
        page.get_by_role("dialog", name="Revoke the token of nightly?").get_by_role("button", name="Revoke it").click()
        expect(row.get_by_role("button", name="Revoke …")).to_have_count(0)
        assert nightly.get("/v1/plans").status_code == 401
    changes.get_by_label("Client").fill("nobody")
    changes.get_by_role("button", name="Show").click()
    expect(changes).to_contain_text("Nothing by nobody.")


def test_older_changes_follow(visit: Visit, service: httpx.Client) -> None:
    """More than a page holds, of one request id, as clients may send it."""
    for _ in range(55):
        made = service.post("/v1/tokens", json={"client": "many", "role": "viewer"}, headers={"X-Request-Id": "again"})
        assert made.is_success
    changes = visit.go("access", title="Access").get_by_role("region", name="What was changed")
    rows = changes.get_by_role("row")
    expect(rows).to_have_count(51)
    changes.get_by_role("button", name="Older ones").click()
    expect(rows.nth(54)).to_be_visible()


def test_a_role_that_is_not_enough_is_told(browser: Browser, service: httpx.Client) -> None:
    """A viewer sees plans; what needs more says so, and what is shown stays."""
    made = post(service, "/v1/tokens", {"client": "guest", "role": "viewer"})
    assert made.status_code == 201, made.text
    context = browser.new_context()
    context.add_init_script(f"sessionStorage.setItem('stowplan.token', '{made.json()['token']}')")
    visit = Visit(context.new_page(), str(service.base_url).rstrip("/"))
    page = visit.go("access", title="Access")
    expect(page.get_by_role("alert").first).to_contain_text("guest has the role viewer")
    context.close()
    assert [said for said in visit.complaints if "403" not in said] == []


def test_replays(visit: Visit, service: httpx.Client) -> None:
    replayed = waited(service, post(service, "/v1/replays", REPLAY_EXAMPLE)).json()
    page = visit.go("replays")
    page.get_by_role("link", name=replayed["id"]).click()
    table = page.get_by_role("region", name="What the policies made of it")
    expect(table.get_by_role("row", name="gang")).to_have_count(2)
    expect(table.get_by_role("row").nth(1)).to_contain_text("4 of 4")
    page.get_by_role("img", name=re.compile("^Completion times")).wait_for()
    assert visit.accessible() == ""


def test_what_is_not_there_is_said(visit: Visit) -> None:
    page = visit.go("plans", "plan-none")
    expect(page.get_by_role("alert")).to_contain_text("plan-none")
    visit.complaints = [said for said in visit.complaints if "404" not in said]
    visit.go("nowhere", title="Not found")


def test_documentation_is_there_without_a_network(visit: Visit) -> None:
    # The service makes its document at the first request, which takes longer than all else here; a test holds it to
    # this file.
    visit.page.route("**/openapi.json", lambda route: route.fulfill(path=PATH))
    visit.page.goto(f"{visit.url}/docs")
    visit.page.get_by_role("link", name="solver comparisons").wait_for()
