"""`stowplan demo`: a service of our own, every packaged example posted to it, answers and pictures in a folder."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.console import output
from api.cli.exit_codes import ExitCode
from api.cli.plan_console import print_outcome
from api.cli.what_if_console import print_what_if
from api.common.examples import Example, examples
from api.convert.outcome import outcome_from_document
from api.schemas.plan import PlanDoc, PlanStatus
from api.schemas.what_if import WhatIfDoc
from models.policies import POLICIES
from models.wording import counted
from stowplan.errors import WorkerError

_START_LIMIT_S = 60.0
_ANSWER_LIMIT_S = 120.0
_STOP_LIMIT_S = 15.0
_POLL_S = 0.2
# What examples demonstrate: all but these have a plan.
_INFEASIBLE_PREFIX = "infeasible-"
# Example -> variants of it, one of which rules forbid: in 30 days is later than the job may start.
_DAY_S = 86_400.0
_VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "ahead-two-weeks": (
        {"name": "drain minipod-3", "drain": ["minipod-3"]},
        {"name": "in 16 days", "place": {"job": "pretrain-175b", "start_s": 16 * _DAY_S}},
        {"name": "in 30 days", "place": {"job": "pretrain-175b", "start_s": 30 * _DAY_S}},
    )
}


@command("demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for answers and pictures.")] = Path("out"),
) -> None:
    """Start a service, post every example and what if, print and draw the answers, write them, stop the service."""
    if not run_demo(folder, output()):
        raise typer.Exit(ExitCode.OUR_FAULT)


def run_demo(folder: Path, console: Console) -> bool:
    """Run it; returns whether everything was as it should be.

    Raises
    ------
    WorkerError
        When the service does not start, or does not stop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with _service() as port:
        console.print(f"service ready on http://127.0.0.1:{port}")
        faults = [
            fault for k, example in enumerate(examples(), start=1) for fault in _show(example, k, port, folder, console)
        ]
    console.print()
    for fault in faults:
        console.print(f"[bold red]unexpected:[/] {escape(fault)}")
    took_s = time.monotonic() - began_s
    console.print(f"{len(examples())} examples in {took_s:.0f} s, answers and pictures in {escape(str(folder))}")
    return not faults


def _show(example: Example, number: int, port: int, folder: Path, console: Console) -> Iterator[str]:
    """Post one example, print and write the answer; yields what is unexpected."""
    console.print()
    title = f"{number}/{len(examples())} [bold]{escape(example.id)}[/]: {escape(example.title)}"
    console.rule(title, align="left")
    posted = json.dumps(example.request).encode()
    with busy(f"planning {example.id}"):
        status, body = _call(port, "POST", "/v1/plans", posted, {"Prefer": f"wait={_ANSWER_LIMIT_S:.0f}"})
    if status not in (200, 202):
        yield f"{example.id}: POST answered {status}: {body.decode(errors='replace')}"
        return
    plan = _final(port, PlanDoc.model_validate_json(body))
    (folder / f"{example.id}.json").write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
    expected = PlanStatus.INFEASIBLE if example.id.startswith(_INFEASIBLE_PREFIX) else PlanStatus.SUCCEEDED
    if plan.status is not expected:
        yield f"{example.id}: ended as {plan.status}, not {expected}: {plan.failure}"
    if plan.status not in (PlanStatus.INFEASIBLE, PlanStatus.SUCCEEDED):
        return
    # The answer of a heuristic is as good as its gap says; all others are proven optimal.
    expected_proof = plan.proven_optimal or POLICIES[plan.policy].is_heuristic
    if plan.status is PlanStatus.SUCCEEDED and not (plan.verified and expected_proof):
        yield f"{example.id}: verified {plan.verified}, proven optimal {plan.proven_optimal}"
    outcome = outcome_from_document(plan, plan.timings)
    print_outcome(console, plan.policy, outcome)
    request = folder / f"{example.id}.request.json"
    request.write_bytes(posted)
    for ending in ("svg", "png"):
        with busy(f"drawing {example.id}.{ending}"):
            status, picture = _call(port, "GET", f"/v1/plans/{plan.id}/figure.{ending}")
        if status != http.client.OK:
            yield f"{example.id}: the picture figure.{ending} was answered with {status}"
        else:
            (folder / f"{example.id}.{ending}").write_bytes(picture)
    if example.id in _VARIANTS:
        yield from _compare(plan, example.id, port, folder, console)


def _compare(plan: PlanDoc, name: str, port: int, folder: Path, console: Console) -> Iterator[str]:
    """Ask what would be if, print and write what differs, with a picture of every variant that has a plan; yields what
    is unexpected."""
    asked = json.dumps({"variants": _VARIANTS[name]}, indent=2).encode()
    (folder / f"{name}.variants.json").write_bytes(asked)
    wait = {"Prefer": f"wait={_ANSWER_LIMIT_S:.0f}"}
    with busy(f"planning {counted(len(_VARIANTS[name]), 'variant')} of {name}"):
        status, body = _call(port, "POST", f"{plan.links.self}:what-if", asked, wait)
    if status != http.client.OK:
        yield f"{name}: what-if answered {status}: {body.decode(errors='replace')}"
        return
    found = WhatIfDoc.model_validate_json(body)
    (folder / f"{name}.what-if.json").write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    console.print()
    print_what_if(console, found.base, [(each, each.plan) for each in found.variants])
    if all(each.plan is not None for each in found.variants):
        yield f"{name}: none of the variants is forbidden"
    for k, each in enumerate(found.variants):
        if each.plan is None:
            continue
        if each.plan.status is not PlanStatus.SUCCEEDED or not each.plan.verified:
            yield f"{name}, {each.variant.name}: ended as {each.plan.status}, verified {each.plan.verified}"
        status, picture = _call(port, "GET", each.figure or "")
        if status != http.client.OK:
            yield f"{name}, {each.variant.name}: there is no picture of what differs ({status})"
        (folder / f"{name}.what-if-{k}.svg").write_bytes(picture)


def _final(port: int, plan: PlanDoc) -> PlanDoc:
    """Follow a plan until it is final."""
    limit_s = time.monotonic() + _ANSWER_LIMIT_S
    while not plan.status.final and time.monotonic() < limit_s:
        time.sleep(_POLL_S)
        plan = PlanDoc.model_validate_json(_call(port, "GET", plan.links.self)[1])
    return plan


@contextmanager
def _service() -> Iterator[int]:
    """A service on a free port, with a database in memory; gives the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "api.cli.main", "serve", "--port", str(port), "--database", ":memory:"]
    with subprocess.Popen(command) as process:  # noqa: S603 - our own interpreter and code
        try:
            with busy("starting the service"):
                _wait_until_ready(port, process)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise WorkerError(f"the service did not stop within {_STOP_LIMIT_S:.0f} s") from error


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    limit_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < limit_s and process.poll() is None:
        try:
            if _call(port, "GET", "/readyz")[0] == http.client.OK:
                return
        except OSError:
            pass
        time.sleep(_POLL_S / 4)
    raise WorkerError(f"the service was not ready after {_START_LIMIT_S:.0f} s, or ended ({process.poll()})")


def _call(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, Any] | None = None
) -> tuple[int, bytes]:
    """One request; status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_LIMIT_S + _STOP_LIMIT_S)
    try:
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, {**kind, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
