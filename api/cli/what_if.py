"""`stowplan what-if`: a plan beside those of variants of its request, without a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import from_json, to_json

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.files import PlanFile, load_request
from api.cli.json_files import read_json
from api.cli.local_worker import LocalPlanDoc, LocalPlanner, local_document
from api.cli.options import File, ForecasterOption, Json, Output, Policy, given, picture_format, print_document
from api.cli.paths import Catalogue, readable, write
from api.cli.plan import outcome_code
from api.cli.progress import progress_line
from api.cli.what_if_console import print_what_if
from api.convert.difference import answer_fields, as_asked
from api.convert.located import located
from api.convert.reading import read_document
from api.convert.what_if import CheckedVariant, check_variant
from api.figures.request import DifferenceFigure
from api.schemas.base import Document
from api.schemas.what_if import WHAT_IF_BODY, VariantAnswer
from models.plan import PlanRequest
from models.what_if.difference import Planned
from stowplan.errors import InputError, pointer_of


class LocalVariantDoc(VariantAnswer):
    """A variant and its plan."""

    plan: LocalPlanDoc | None


class LocalWhatIfDoc(Document):
    """Variants beside the plan that they are variants of, made without a service."""

    base: LocalPlanDoc
    variants: tuple[LocalVariantDoc, ...]


@command("what-if", epilog=EPILOG)
def what_if_command(
    file: File,
    policy: Policy = None,
    drain: Annotated[list[str] | None, typer.Option(help="Node, or unit of the fabric by path; repeatable.")] = None,
    down: Annotated[list[str] | None, typer.Option(help="The same: nothing runs there any more.")] = None,
    remove_job: Annotated[list[str] | None, typer.Option(help="Job that is left out; repeatable.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Anything else of the variant, such as jobs/llm/priority=1, policy=arena, parameters/alpha=0.3, "
            'place={"job": "llm", "nodes": {"n1": [0, 1]}}; repeatable.',
        ),
    ] = None,
    variants: Annotated[
        Path | None, typer.Option(help="JSON file with several, as in the body of POST /v1/plans/{id}:what-if.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for each solve.")] = None,
    forecaster: ForecasterOption = None,
    json_: Json = False,
    figure: Annotated[Path | None, typer.Option(help="Draw what differs into this .svg or .png file.")] = None,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Plan a request and variants of it, and print what differs: nodes drained, jobs changed, another policy.

    The options make one variant, --variants adds others. Ctrl-C stops the solve that runs and keeps its best plan.
    """
    picture = picture_format(figure)
    asked = load_request(readable(file), policy, None, given({"time_limit_s": time_limit}), forecaster)
    own = {"drain": drain, "down": down, "remove_jobs": remove_job}
    checked = checked_variants(asked, given(own), set_ or [], variants)
    console.print_warnings(asked.warnings)
    with LocalPlanner() as planner:
        base = _planned(planner, "base", asked.request)
        others = [_planned_variant(planner, base, each) for each in checked]
        result = LocalWhatIfDoc(
            base=local_document(base.request, base.outcome),
            variants=tuple(_answer(base, each, other) for each, other in zip(checked, others, strict=True)),
        )
        try:
            if output is not None:
                write(output, (result.model_dump_json(indent=2) + "\n").encode())
            if figure is not None and picture is not None:
                named = zip((each.document.name for each in checked), others, strict=True)
                plans = tuple((name, other) for name, other in named if other is not None)
                with busy(f"drawing {figure}"):
                    write(figure, planner.draw_difference(DifferenceFigure(base=base, others=plans, format=picture)))
        finally:
            if json_:
                print_document(result)
            else:
                print_what_if(console.output(), result.base, [(each, each.plan) for each in result.variants])
    raise typer.Exit(outcome_code(base.outcome))


def checked_variants(
    asked: PlanFile, own: dict[str, Any], settings: Sequence[str], file: Path | None
) -> list[CheckedVariant]:
    """Read and check the variants: that of the options, where there are any, and those of a file.

    Raises
    ------
    InputError
        When one is wrong, or there is none.
    """
    documents = []
    words = [f"{name.replace('_', ' ')} {', '.join(names)}" for name, names in own.items()] + list(settings)
    if words:
        document = dict(own)
        for setting in settings:
            _set(document, setting)
        documents.append({"name": "; ".join(words)[:200], **document})
    if file is not None:
        found = read_json(file)
        found = found.get("variants") if isinstance(found, dict) else found
        if not isinstance(found, list):
            raise InputError(f"{file}: must be a list of variants, or an object with `variants`")
        documents += found
    if not documents:
        raise InputError("names no change: give --drain, --down, --remove-job, --set or --variants")
    read = read_document(WHAT_IF_BODY, to_json({"variants": documents}, inf_nan_mode="constants"))
    checked = []
    for k, variant in enumerate(read.variants):
        with located(pointer_of("variants", k)):
            checked.append(check_variant(variant, asked.body, asked.request))
    return checked


def _set(document: dict[str, Any], setting: str) -> None:
    """Set what `jobs/llm/priority=1` says; the value is JSON, or text where it is none."""
    path, equals, text = setting.partition("=")
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in path.strip("/").split("/"))
    if not equals or not last:
        raise InputError(f"--set is {setting!r}; must be PATH=VALUE such as jobs/llm/priority=1")
    try:
        value = from_json(text)
    except ValueError:
        value = text
    for parent in parents:
        document = document.setdefault(parent, {})
        if not isinstance(document, dict):
            raise InputError(f"--set is {setting!r}; {parent!r} has no fields")
    document[last] = value


def _planned(planner: LocalPlanner, name: str, request: PlanRequest) -> Planned:
    with progress_line(f"{name}: ") as watcher:
        return Planned(request=request, outcome=planner.plan(request, watcher))


def _planned_variant(planner: LocalPlanner, base: Planned, checked: CheckedVariant) -> Planned | None:
    if checked.request is None:
        return None
    return as_asked(checked.document, base, _planned(planner, checked.document.name, checked.request))


def _answer(base: Planned, checked: CheckedVariant, other: Planned | None) -> LocalVariantDoc:
    return LocalVariantDoc(
        **answer_fields(checked.document, base, other, checked.forbidden),
        plan=None if other is None else local_document(other.request, other.outcome),
    )
