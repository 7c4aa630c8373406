"""A whole plan for a queue that Slurm has: a script of scontrol's commands, and the same as a list for programs."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from executor.export.plan import ExportedPlan, PlanFiles
from executor.slurm.actions import (
    NAME,
    TOP_PRIORITY,
    HoldJob,
    RankJob,
    ReleaseJob,
    Reserve,
    SlurmAction,
    SteerJob,
    StopBy,
    StopJob,
    node_list,
)
from executor.slurm.handover import HandOver, HandOverOptions, Running, Waiting, hand_over
from models.plan import Plan
from models.wording import counted
from stowplan.errors import InputError, Issue
from stowplan.files import read_text
from stowplan.records import to_document

SCRIPT, LIST = "apply.sh", "actions.json"
_FUNCTIONS = Path(__file__).with_name("scontrol.sh")
_PRIORITY = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_NAMED = 20
_HEAD = """\
#!/bin/bash
# bash apply.sh, as root, SlurmUser or an operator: hands a plan of Stowplan over to Slurm. It looks whether the jobs
# and nodes are still as they were planned, and changes nothing where they are not. What it does then:
"""


def write_scontrol(plan: ExportedPlan, options: Mapping[str, str]) -> PlanFiles:
    """Write the script, the list, and the hosts in rank order of jobs whose plan has one.

    Raises
    ------
    InputError
        When an option is wrong, jobs are none of Slurm's, run and would lose GPUs although nobody asked for that, or
        nobody says whose a reservation is.
    """
    made = hand_over(plan.plan, plan.snapshot, _options(options), plan.taken_at_s)
    files = {SCRIPT: _script(made, plan.taken_at_s), LIST: _list(made, plan.taken_at_s)}
    told = {item.job_id for item in made.actions if isinstance(item, SteerJob)}
    for job_id, hosts in _rank_orders(plan.plan):
        if job_id in told:
            files[f"hosts-{job_id}"] = "".join(f"{host}\n" for host in hosts)
    return PlanFiles(files=files, notes=made.notes)


def _options(given: Mapping[str, str]) -> HandOverOptions:
    issues: list[Issue] = []
    names: dict[str, tuple[str, ...]] = {}
    for option in ("users", "accounts"):
        names[option] = tuple(filter(None, given.get(option, "").split(",")))
        if wrong := [name for name in names[option] if not NAME.fullmatch(name)]:
            detail = f"{wrong[0]!r} is no name; letters, digits, _ . and -, with commas between names"
            issues.append(Issue(code="bad_option", pointer=f"/{option}", detail=detail))
    top = given.get("priority", str(TOP_PRIORITY))
    if top != "keep" and not (_PRIORITY.fullmatch(top) and int(top) <= TOP_PRIORITY):
        detail = f"is {top!r}; must be keep, or a number from 1 to {TOP_PRIORITY}"
        issues.append(Issue(code="bad_option", pointer="/priority", detail=detail))
    if issues:
        raise InputError("options of the export to scontrol", issues)
    return HandOverOptions(
        running=Running(given["running"]),
        waiting=Waiting(given["waiting"]),
        reserves_calendar=given["calendar"] == "reserve",
        users=names["users"],
        accounts=names["accounts"],
        top_priority=None if top == "keep" else int(top),
    )


def _script(made: HandOver, taken_at_s: float | None) -> str:
    steered = [item for item in made.actions if isinstance(item, SteerJob)]
    stopped = [item.job_id for item in made.actions if isinstance(item, StopJob)]
    waiting = dict.fromkeys(item.job_id for item in made.actions if isinstance(item, HoldJob))
    nodes = dict.fromkeys(node for item in steered if item.reservation is None for node in item.nodes)
    checks = []
    if nodes:
        checks.append(f"expect_up {shlex.quote(node_list(tuple(nodes)))}")
    if stopped:
        checks.append(shlex.join(["expect", "RUNNING", *stopped]))
    if waiting:
        checks.append(shlex.join(["expect", "PENDING", *waiting]))
    said = [f"# - {line}" for line in _summary(made.actions)] or ["# - nothing: the plan changes nothing"]
    # Details repeat names of users, which might begin a line of their own.
    said += [f"# {note.code}: {' '.join(note.detail.split())}" for note in made.notes]
    if taken_at_s is not None:
        said.append(f"# The plan is of {datetime.fromtimestamp(taken_at_s, UTC):%Y-%m-%d %H:%M:%S} UTC.")
    lines = ["\n".join(said), read_text(_FUNCTIONS).rstrip(), "\n".join(checks), *map(_line, made.actions)]
    return _HEAD + "\n".join(filter(None, lines)) + "\n"


def _summary(actions: Sequence[SlurmAction]) -> Iterator[str]:
    """What is done, in words, for whoever reads the script before running it."""
    if names := [item.name for item in actions if isinstance(item, Reserve)]:
        yield f"{counted(len(names), 'reservation')}: {_few(names)}"
    for by, words in ((StopBy.REQUEUE, "are requeued"), (StopBy.CANCEL, "are cancelled")):
        if ids := [item.job_id for item in actions if isinstance(item, StopJob) and item.by is by]:
            yield f"jobs that run {words}: {_few(ids)}"
    steered = {item.job_id: item for item in actions if isinstance(item, SteerJob)}
    if ids := [item.job_id for item in actions if isinstance(item, HoldJob) and item.job_id not in steered]:
        yield f"jobs that are held, and wait: {_few(ids)}"
    if ids := [job_id for job_id, item in steered.items() if item.reservation is None]:
        yield f"jobs that start on nodes of the plan: {_few(ids)}"
    if ids := [job_id for job_id, item in steered.items() if item.reservation is not None]:
        yield f"jobs that start in their reservation: {_few(ids)}"


def _few(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _line(action: SlurmAction) -> str:
    """An action as a call of the script's functions."""
    words: Sequence[str]
    match action:
        case StopJob():
            words = (action.by.value, action.job_id)
        case HoldJob():
            words = ("hold", action.job_id)
        case SteerJob():
            asked = ("" if number is None else str(number) for number in (action.gpus_per_node, action.num_gpus))
            words = ("steer", action.job_id, *asked, *action.updates())
        case ReleaseJob():
            words = ("release", action.job_id)
        case RankJob():
            words = ("rank", action.job_id, str(action.priority))
        case Reserve():
            words = ("reserve", "change" if action.replaces else "keep", action.name, *action.settings())
    return shlex.join(words)


def _list(made: HandOver, taken_at_s: float | None) -> str:
    kinds = {StopJob: "stop", HoldJob: "hold", SteerJob: "steer", ReleaseJob: "release", RankJob: "rank"}
    actions = [
        {"action": kinds.get(type(action), "reserve"), **to_document(action), "command": list(action.words())}
        for action in made.actions
    ]
    notes = [{"code": note.code, "pointer": note.pointer, "detail": note.detail} for note in made.notes]
    return json.dumps({"taken_at_s": taken_at_s, "actions": actions, "notes": notes}, indent=2) + "\n"


def _rank_orders(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Jobs whose plan says which rank is where, with the host of every rank."""
    for item in plan.allocations:
        if item.parallel_plan is not None:
            yield item.job_id, [host for host, _ in item.parallel_plan.gpus]
        elif plan.pretraining is not None and plan.pretraining.job_id == item.job_id:
            yield item.job_id, [part.node for part in item.gpus for _ in part.gpus]
    for later in plan.ahead:
        hosts = later.placement.hosts
        yield later.placement.job_id, [host for host in hosts for _ in range(later.parallelism.num_gpus // len(hosts))]
