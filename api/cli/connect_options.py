"""What the commands below `stowplan connect` share: the policy, the calendar, the loop, what is printed."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.json_files import read_json
from api.cli.options import json_object
from api.cli.paths import readable
from api.cli.replay_calendar import calendar_entries
from api.convert.calendar import entry_from_document
from api.convert.reading import read_document
from api.schemas.calendar import CalendarEntryDoc
from api.schemas.parameters import PARAMETERS
from executor.connected.planning import PlacedByArnold
from executor.control.actions import Place
from executor.control.controller import Planner, Step
from executor.control.events import Arrival, Completion, Failure, NodeChange
from executor.control.options import ControlOptions
from models.allocation.gang.parameters import GangParameters
from models.placement.arnold.parameters import ArnoldParameters
from models.planning import load, plan
from models.policies import POLICIES
from models.policy import Parameters
from solver.options import SolveOptions
from stowplan.errors import InputError
from topology.calendar import CalendarEntry

_ENTRIES: TypeAdapter[tuple[CalendarEntryDoc, ...]] = TypeAdapter(tuple[CalendarEntryDoc, ...])
_TOKEN = "STOWPLAN_TOKEN"  # noqa: S105 - the name of a variable
_ANSWER_S = 10.0
_MAX_ANSWER_BYTES = 64 * 2**20
_MAX_PROBLEM_BYTES = 2**16
_SHOWN = 8

Send = Annotated[bool, typer.Option("--send", help="Send what is decided; without it, it is only written down.")]
Once = Annotated[bool, typer.Option("--once", help="Decide once on what there is, and end.")]
PolicyName = Annotated[
    str, typer.Option("--policy", help="gang or gang-ilp: policies that know of jobs no more than a scheduler does.")
]
PolicyParameters = Annotated[
    str | None, typer.Option("--parameters", metavar="{...}", help="Its parameters, as JSON: order, quotas, backfill.")
]
Arnold = Annotated[
    str | None,
    typer.Option(
        metavar="{...}", help="Have Arnold place the jobs that say their degrees, with these parameters, as JSON."
    ),
]
CalendarSource = Annotated[
    str | None,
    typer.Option(
        "--calendar",
        metavar="FILE|URL",
        help=f"Calendar in a file, or of a service: http://planner:8080/v1/clusters/NAME/calendar (token: {_TOKEN}).",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", help="Append every change to this file, a JSON object a line, before it is sent."),
]
TimeLimit = Annotated[float, typer.Option(min=0.1, help="Seconds that a plan may take.")]


def control_options(policy: str, parameters: str | None, time_limit_s: float) -> ControlOptions:
    """How is decided.

    Raises
    ------
    InputError
        When the policy needs to know more of jobs than a scheduler says, or its parameters are wrong.
    """
    if policy not in POLICIES or POLICIES[policy].parameters is not GangParameters:
        fit = ", ".join(name for name, known in POLICIES.items() if known.parameters is GangParameters)
        raise InputError(f"--policy is {policy!r}; a scheduler says of jobs what these need: {fit}")
    return ControlOptions(parameters=_parameters(policy, parameters), options=SolveOptions(time_limit_s=time_limit_s))


def planner_of(arnold: str | None, options: ControlOptions, say: Callable[[str], None], *, loads: bool) -> Planner:
    """What plans: the policy, and Arnold behind it where his parameters are given. `loads`: all that plans need, so
    that the first job that is seen does not wait for it."""
    parameters = None if arnold is None else _parameters("arnold", arnold)
    if loads:
        load(options.parameters, options.options)
    if loads and parameters is not None:
        # He answers most requests without a model, and loads it for the first other one.
        load(parameters, options.options, declared=True)
    if parameters is None:
        return plan
    assert isinstance(parameters, ArnoldParameters)  # noqa: S101 - those of that policy
    return PlacedByArnold(parameters, say)


class ConnectedCalendar:
    """A calendar in a file or of a service, which is looked at again and again."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: object = None

    def news(self, now: datetime) -> tuple[CalendarEntry, ...] | None:
        """Its entries in seconds from now; None where they are those of the last time.

        Raises
        ------
        InputError
            When it cannot be had, or is wrong.
        """
        is_url = self._source.startswith(("http://", "https://"))
        document = self._fetched() if is_url else read_json(readable(Path(self._source)))
        entries = calendar_entries(document, self._source)
        if entries == self._known:
            return None
        try:
            documents = read_document(_ENTRIES, to_json(entries, inf_nan_mode="constants"), "calendar")
        except InputError as error:
            raise InputError(f"{self._source}: {error.detail}", error.issues) from error
        self._known = entries
        return tuple(entry_from_document(one, now) for one in documents)

    def _fetched(self) -> Any:
        token = os.environ.get(_TOKEN)
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        request = urllib.request.Request(self._source, headers=headers)  # noqa: S310 - http or https
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                text = answer.read(_MAX_ANSWER_BYTES)
            return json.loads(text)
        except urllib.error.HTTPError as error:
            # A service of ours says why.
            said = error.read(_MAX_PROBLEM_BYTES).decode(errors="replace")
            raise InputError(f"--calendar {self._source}: {error}{_detail_of(said)}") from error
        except (OSError, ValueError) as error:
            raise InputError(f"--calendar {self._source}: {error}") from error


def _detail_of(problem: str) -> str:
    """What problem details say, behind a colon."""
    try:
        return f": {json.loads(problem)['detail']}"
    except (ValueError, KeyError, TypeError):
        return ""


@contextmanager
def closed_by_signals(close: Callable[[], None]) -> Iterator[None]:
    """Have the loop end in order when somebody asks this process to end."""
    before = {number: signal.signal(number, lambda *_: close()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def step_words(step: Step, at: datetime) -> str | None:
    """A step in a line; None where nothing was decided that changes anything, and nobody came or went."""
    kinds = {Arrival: "arrived", Completion: "over", Failure: "broke", NodeChange: "nodes changed"}
    counts = {word: sum(isinstance(event, kind) for event in step.events) for kind, word in kinds.items()}
    said = [f"{count} {word}" for word, count in counts.items() if count]
    actions = () if step.decision is None else step.decision.actions
    for action in actions[:_SHOWN]:
        if isinstance(action, Place):
            nodes = [part.node for part in action.allocation.gpus]
            more = f" and {len(nodes) - 2} more" if len(nodes) > 2 else ""
            said.append(f"{action.allocation.job_id} on {', '.join(nodes[:2])}{more}")
        else:
            said.append(f"{action.job_id} gives its GPUs back")
    if len(actions) > _SHOWN:
        said.append(f"and {len(actions) - _SHOWN} more")
    return f"{at.astimezone(UTC):%H:%M:%SZ} {'; '.join(said)}" if said else None


def _parameters(policy: str, text: str | None) -> Parameters:
    adapter: TypeAdapter[Any] = TypeAdapter(PARAMETERS[policy])
    document = read_document(adapter, to_json(json_object(text)), f"parameter object of {policy}")
    found: Parameters = document.parameters_for(POLICIES[policy])
    return found
