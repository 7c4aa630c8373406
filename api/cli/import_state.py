"""`stowplan import` of what a scheduler says: documents by option, a snapshot with jobs."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from api.cli.busy import busy
from api.cli.console import errors
from api.cli.gpu_facts import GpuFacts, GpuNames, gpu_facts
from api.cli.paths import readable
from api.convert.plain_snapshot import plain_snapshot
from models.cluster_state import (
    READERS,
    ClusterState,
    LiveSource,
    SourceDocument,
    StateOptions,
    ask_scheduler,
    read_state,
)
from stowplan.collection import without_collection
from stowplan.errors import InputError
from stowplan.files import read_text
from topology.cluster import GpuType
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
    kinds: tuple[GpuType, ...] = ()
    if library is not None:
        # Only now: it loads the documents of requests.
        from api.cli.gpu_library import gpu_types_in

        kinds = gpu_types_in(library)
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
            value = msgspec.json.decode(fields)
        except (ValueError, RecursionError) as error:
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
        state = read_state(format_, documents, replace(options, settings=settings))
        document = None if changes else plain_snapshot(state)
        if document is None:
            document = _by_documents(state, changes)
    _tell(state, document, changes)
    return document


def _option(name: str, metavar: str, summary: str) -> inspect.Parameter:
    option = typer.Option(f"--{name}", metavar=metavar, help=f"{summary[0].upper()}{summary[1:]}.")
    annotation = Annotated[list[str] | None, option]
    return inspect.Parameter(
        name.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _by_documents(state: ClusterState, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same with fields of jobs that others say, or an error that says what is out of range."""
    # Only now: the documents of requests take half a second to load.
    from api.convert.cluster_state import imported_state

    # What is as if nobody had said it is left out, but for the size of a job.
    document = imported_state(state, changes).snapshot.model_dump(mode="json", exclude_defaults=True)
    for job in document["jobs"]:
        job.setdefault("min_gpus", 1)
    return document


def _tell(state: ClusterState, document: Mapping[str, Any], changes: Collection[str]) -> None:
    """A summary, and a line for each kind of thing that was left out or assumed."""
    console = errors()
    nodes, jobs = document["cluster"]["nodes"], document["jobs"]
    gpus = sum(node["num_gpus"] for node in nodes)
    running = sum("current" in job for job in jobs)
    console.print(
        f"{len(nodes)} nodes with {gpus} GPUs; {running} jobs run, {len(jobs) - running} may start, "
        f"{len(state.held(changes))} are held; {len(state.calendar)} entries of the calendar; "
        f"as of {datetime.fromtimestamp(state.taken_at_s, UTC)}",
        soft_wrap=True,
    )
    for note in state.notes[:_SHOWN]:
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
