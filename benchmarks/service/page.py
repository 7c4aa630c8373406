"""How soon the page shows a large cluster, in a real browser: `python -m benchmarks page --nodes 10000`.

A queue of gang on a cluster under leaves, planned by a service of its own; each run is a browser context of its own,
without a cache. From the start of the navigation: the first paint, and the map as it is drawn. Then how long drawings
of the map take while it is zoomed, from the whole cluster down to single GPUs.
"""

import json
import shutil
from typing import Annotated

import typer
from playwright.sync_api import Browser, sync_playwright

from api.convert.snapshot import snapshot_to_document
from benchmarks.rows import Row, median, show
from benchmarks.service.process import running_service
from benchmarks.workloads.gang_queue import queue_snapshot

_GPUS_PER_NODE, _WAITING, _SEED = 8, 20, 1
_WAIT_S, _LIMIT_MS = 60, 60_000
_ZOOMS = 12
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint').map(it => it.startTime)[0]"
_DRAWN = "performance.getEntriesByName('map-drawn').map(it => [it.startTime, it.duration])"


def main(
    nodes: Annotated[list[int] | None, typer.Option(help="Nodes of 8 GPUs; several are measured in turn.")] = None,
    runs: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Measure when the page shows a cluster of up to 10,000 nodes, and how long a drawing of it takes."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise typer.BadParameter("there is no Chromium here (Debian: apt install chromium)")
    rows = []
    with running_service() as service, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for num_nodes in nodes or (1_000, 10_000):
            snapshot = queue_snapshot(num_nodes * _GPUS_PER_NODE, _WAITING, _SEED)
            body = {"policy": "gang", "snapshot": snapshot_to_document(snapshot).model_dump(mode="json")}
            plan = service.call("POST", "/v1/plans", json.dumps(body).encode(), wait_s=_WAIT_S).body
            if plan["status"] != "succeeded":
                raise typer.BadParameter(f"the plan of {num_nodes} nodes is {plan['status']}")
            url = f"http://127.0.0.1:{service.port}/ui/#/plans/{plan['id']}/map"
            rows.append(_row(num_nodes, [_looked_at(browser, url) for _ in range(runs)]))
        browser.close()
    show(f"the page in {program}, medians of {runs} runs, ms (longest: of all)", rows)


def _row(num_nodes: int, found: list[tuple[float, float, list[float]]]) -> Row:
    drawings = [drawing for *_, of_run in found for drawing in of_run]
    return {
        "nodes": num_nodes,
        "first paint": median([paint for paint, _, _ in found]),
        "map drawn": median([drawn for _, drawn, _ in found]),
        "a drawing": median(drawings),
        "longest": max(drawings),
    }


def _looked_at(browser: Browser, url: str) -> tuple[float, float, list[float]]:
    """Milliseconds to the first paint, to the first map, and of the drawings while it is zoomed."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(_LIMIT_MS)
    page.goto(url)
    canvas = page.locator("canvas[data-drawn]")
    canvas.wait_for()
    start_ms, first_ms = page.evaluate(_DRAWN)[0]
    canvas.focus()
    for _ in range(_ZOOMS):
        page.keyboard.press("+")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawings_ms = [duration for _, duration in page.evaluate(_DRAWN)]
    paint_ms = float(page.evaluate(_FIRST_PAINT))
    context.close()
    return paint_ms, start_ms + first_ms, drawings_ms
