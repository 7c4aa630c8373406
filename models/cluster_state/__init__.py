"""What schedulers say of a cluster and its jobs: each reader turns documents into a `ClusterState`.

`READERS` names them, says which documents they take, and loads one when it reads.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from types import MappingProxyType

from models.cluster_state.base import ClusterState, Documents, LiveSource, Note, SourceDocument, StateOptions
from stowplan.errors import ExtraMissingError, InputError
from topology.node_readers.base import with_node_facts

__all__ = [
    "READERS",
    "ClusterState",
    "DocumentRole",
    "LiveSource",
    "SourceDocument",
    "StateOptions",
    "StateReader",
    "ask_scheduler",
    "read_state",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRole:
    """What a document is for. several: more than one may be given. `summary`: for people, such as the command that
    writes it."""

    summary: str
    required: bool = False
    several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReader:
    """A scheduler.

    `function` is `module:function`, (documents by role, `StateOptions`) -> `ClusterState`. `roles`: which documents
    there may be, by name; an option `--name` of the command line is made of each. `settings`: what else the reader may
    be told, name -> for people; `StateOptions.settings` has what was said. `live`: `module:function` that asks the
    scheduler, (`LiveSource`, roles that are not asked for, settings) -> documents by role; empty where there is none.
    """

    function: str
    roles: Mapping[str, DocumentRole]
    settings: Mapping[str, str] = field(default_factory=dict)
    live: str = ""


READERS: Mapping[str, StateReader] = MappingProxyType(
    {
        "slurm": StateReader(
            function="models.cluster_state.slurm.state:read_slurm_state",
            roles={
                "nodes": DocumentRole(summary="what `scontrol show nodes --json` writes", required=True),
                "topology": DocumentRole(summary="topology.conf or topology.yaml of the cluster"),
                "partitions": DocumentRole(summary="what `scontrol show partitions --json` writes"),
                "queue": DocumentRole(summary="what `squeue --json` writes"),
                "reservations": DocumentRole(summary="what `scontrol show reservations --json` writes"),
                "accounting": DocumentRole(
                    summary="what `sacct --allusers --duplicates --json` writes: earlier runs of jobs"
                ),
            },
            settings={
                "partition": "only the nodes of this partition; jobs of others on them are work that is not planned",
                "fabric": "which topologies of a topology.yaml that has several, as in tree,blocks",
                "ends": "limit: jobs last as long as their time limit; forecast: leave it to a forecaster",
            },
        ),
        "kubernetes": StateReader(
            function="models.cluster_state.kubernetes.state:read_kubernetes_state",
            live="models.cluster_state.kubernetes.live:live_documents",
            roles={
                "nodes": DocumentRole(summary="what `kubectl get nodes -o json` writes", required=True, several=True),
                "topology": DocumentRole(
                    summary="a Topology of Kueue or KAI, HyperNodes of Volcano, or NodeFeatures of Topograph",
                    several=True,
                ),
                "pods": DocumentRole(summary="what `kubectl get pods -A -o json` writes", several=True),
                "workloads": DocumentRole(
                    summary="what `kubectl get workloads -A -o json` writes, or of `jobsets`", several=True
                ),
            },
            settings={
                "topology-labels": "gke, eks, oci, coreweave, topograph, aks, none, labels with commas between them "
                "(coarsest first), or the name of one of several topologies",
                "tolerated": "taints that jobs tolerate, by key, beside those of GPUs",
            },
        ),
    }
)


def ask_scheduler(
    format_: str, source: LiveSource, given: Collection[str], settings: Mapping[str, str]
) -> dict[str, Sequence[SourceDocument]]:
    """What a scheduler says now, but for the roles that are `given` otherwise.

    Raises
    ------
    InputError
        When it is not asked, refuses, or does not answer; says what would help.
    ExtraMissingError
        When what asks it is not installed.
    """
    if not READERS[format_].live:
        known = ", ".join(name for name, reader in READERS.items() if reader.live)
        raise InputError(f"{format_} is read from its documents alone; asked can be {known}")
    try:
        ask = resolve_name(READERS[format_].live)
    except ModuleNotFoundError as error:
        raise ExtraMissingError(
            f"asking {format_} needs the package {error.name}; install the extra: pip install -e '.[{format_}]' in a "
            "checkout"
        ) from error
    documents: dict[str, Sequence[SourceDocument]] = ask(source, given, settings)
    return documents


def read_state(format_: str, documents: Documents, options: StateOptions) -> ClusterState:
    """Read what a scheduler says.

    Raises
    ------
    FileFormatError
        Names the document, the JSON pointer or line, and what is wrong.
    InputError
        When there is no such format, or it takes other documents or settings.
    """
    if format_ not in READERS:
        raise InputError(f"there is no format {format_!r} of cluster states; the formats are {', '.join(READERS)}")
    reader = READERS[format_]
    for role, given in documents.items():
        if role not in reader.roles:
            raise InputError(f"{format_} has no document {role!r}; it takes {', '.join(reader.roles)}")
        if len(given) > 1 and not reader.roles[role].several:
            raise InputError(f"{format_} takes one document {role!r}; {len(given)} were given")
    missing = [name for name, role in reader.roles.items() if role.required and not documents.get(name)]
    if missing:
        wanted = "; ".join(f"{name}: {reader.roles[name].summary}" for name in missing)
        raise InputError(f"{format_} needs {wanted}")
    unknown = sorted(options.settings.keys() - reader.settings.keys())
    if unknown:
        known = ", ".join(reader.settings) or "none"
        raise InputError(f"{format_} has no setting {unknown[0]!r}; it has {known}")
    state: ClusterState = resolve_name(reader.function)(documents, options)
    cluster, remarks = with_node_facts(state.cluster, options.node_facts)
    notes = (Note(code=one.code, detail=one.detail, document=one.source, count=one.count) for one in remarks)
    return replace(state, cluster=cluster, notes=(*state.notes, *notes))
