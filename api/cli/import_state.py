"""`stowplan import` of what a scheduler says: documents by option, a snapshot with jobs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import from_json

from api.cli.busy import busy
from api.cli.console import errors
from api.cli.gpu_facts import GpuFacts, GpuNames, gpu_facts, gpu_types_in
from api.cli.options import readable
from api.convert.cluster_state import imported
from api.schemas.cluster_state import ImportedSnapshotDoc
from models.cluster_state import READERS, LiveSource, SourceDocument, StateOptions, ask_scheduler
from stowplan.collection import without_collection
from stowplan.errors import InputError
from stowplan.files import read_text
from topology.gpu_catalogue import known_product
from topology.node_readers import NodeFacts

_SHOWN = 20


def takes_documents(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each document that some reader takes, and for each of its settings; the command is
    called with them as further keywords."""
    summaries: dict[str, list[str]] = {}
    metavars: dict[str, str] = {}
    for format_, reader in READERS.items():
        for name, summary in {
            **{role: known.summary for role, known in reader.roles.items()},
            **reader.settings,
        }.items():
            summaries.setdefault(name, []).append(f"{format_}: {summary}")
            metavars.setdefault(name, "FILE" if name in reader.roles else "TEXT")
    signature = inspect.signature(function, eval_str=True)
    own = [known for known in signature.parameters.values() if known.kind is not known.VAR_KEYWORD]
    options = [_option(name, metavars[name], "; ".join(said)) for name, said in summaries.items()]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return function


def state_options(
    names: GpuNames,
    facts: GpuFacts,
    num_gpus: int | None,
    library: Path | None,
    minipod_tier: str | None,
    taken_at: str | None,
    node_facts: Mapping[str, NodeFacts],
) -> StateOptions:
    """What was said beside the documents.

    Raises
    ------
    InputError
        When it cannot be read, or does not go together.
    """
    kinds = () if library is None else gpu_types_in(library)
    if any(text is not None for text in facts.options.values()):
        if names.default is None:
            raise InputError("facts of a GPU are given, and --gpu-type does not say of which")
        product = known_product(names.default)
        usual = None if product is None else product.gpus_per_node
        kind = gpu_facts(names.default, num_gpus or usual or 8, facts, (), None)
        kinds = (*(other for other in kinds if other.name != kind.name), kind)
    return StateOptions(
        gpu_type=names.default,
        gpu_types=kinds,
        gpu_products=names.products,
        minipod_tier=minipod_tier,
        taken_at_s=None if taken_at is None else _moment_s(taken_at),
        node_facts=node_facts,
    )


def job_changes(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read `7={"parallelism": {"tp": 8, "pp": 2, "dp": 4}}`: fields of jobs by id.

    Raises
    ------
    InputError
        When one is not written so.
    """
    changes: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, fields = text.partition("=")
        try:
            value = from_json(fields)
        except ValueError as error:
            raise InputError(f"--job is {text!r}: what stands behind = is not JSON: {error}") from error
        if not name or not isinstance(value, dict):
            raise InputError(f"--job is {text!r}; must be ID={{...}} with fields of the job")
        changes.setdefault(name, {}).update(value)
    return changes


def import_state(
    format_: str,
    given: Mapping[str, Sequence[str] | None],
    options: StateOptions,
    changes: Mapping[str, Mapping[str, Any]],
    source: LiveSource | None = None,
) -> Any:
    """JSON of the snapshot; what was left out or assumed is printed beside it.

    Parameters
    ----------
    given
        Keyword -> what was given for it, of the options of `takes_documents`.
    changes
        Job id -> fields of it that no scheduler knows.
    source
        Where the scheduler is asked for what was not given; None: nowhere.

    Raises
    ------
    InputError
        When there is no such format, or a document is wrong: names it, and the place in it.
    """
    if format_ not in READERS:
        raise InputError(f"FILE is missing; without one the formats are {', '.join(READERS)}")
    reader = READERS[format_]
    said = {name.replace("_", "-"): texts for name, texts in given.items() if texts}
    settings = {name: texts[-1] for name, texts in said.items() if name in reader.settings}
    documents: dict[str, Sequence[SourceDocument]] = {
        name: [SourceDocument(name=path, text=read_text(readable(Path(path)))) for path in texts]
        for name, texts in said.items()
        if name not in settings
    }
    if source is not None:
        documents |= ask_scheduler(format_, source, documents.keys(), settings)
    with busy("reading what the scheduler says"), without_collection():
        found = imported(format_, documents, replace(options, settings=settings), changes)
        # What is as if nobody had said it is left out, but for the size of a job.
        document: dict[str, Any] = found.snapshot.model_dump(mode="json", exclude_defaults=True)
    _tell(found)
    document.setdefault("jobs", [])
    for job in document["jobs"]:
        job.setdefault("min_gpus", 1)
    return document


def _option(name: str, metavar: str, summary: str) -> inspect.Parameter:
    option = typer.Option(f"--{name}", metavar=metavar, help=f"{summary[0].upper()}{summary[1:]}.")
    annotation = Annotated[list[str] | None, option]
    return inspect.Parameter(
        name.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _tell(found: ImportedSnapshotDoc) -> None:
    """A summary, and a line for each kind of thing that was left out or assumed."""
    console, snapshot = errors(), found.snapshot
    gpus = sum(node.num_gpus for node in snapshot.cluster.nodes)
    running = sum(job.current is not None for job in snapshot.jobs)
    entries = len(snapshot.calendar) if isinstance(snapshot.calendar, tuple) else 0
    console.print(
        f"{len(snapshot.cluster.nodes)} nodes with {gpus} GPUs; {running} jobs run, {len(snapshot.jobs) - running} may "
        f"start, {len(found.held)} are held; {entries} entries of the calendar; as of {snapshot.taken_at}",
        soft_wrap=True,
    )
    for note in found.notes[:_SHOWN]:
        more = f" (and {note.count - 1} more)" if note.count > 1 else ""
        place = f"{note.document}: {note.pointer}" if note.pointer else note.document
        console.print(f"{place}: {note.detail}{more}", soft_wrap=True, markup=False, style="yellow")


def _moment_s(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--taken-at is {text!r}; must be a moment such as 2026-12-07T09:00:00Z") from error
    if moment.tzinfo is None:
        raise InputError(f"--taken-at is {text!r}, without a time zone; write 2026-12-07T09:00:00Z")
    return moment.timestamp()
