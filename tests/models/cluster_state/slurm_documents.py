"""Reads what `benchmarks.workloads.slurm_documents` writes."""

from collections.abc import Mapping
from typing import Any

from benchmarks.workloads.slurm_documents import document, node
from models.cluster_state import ClusterState, SourceDocument, StateOptions, read_state

NODES = [node("n1"), node("n2"), node("n3"), node("n4")]


def read(options: StateOptions | None = None, /, **texts: str) -> ClusterState:
    """Read documents by role."""
    documents = {role: [SourceDocument(name=f"{role}.json", text=text)] for role, text in texts.items()}
    return read_state("slurm", documents, options or StateOptions())


def state_of(
    *jobs: Mapping[str, Any], nodes: Any = NODES, options: StateOptions | None = None, **texts: str
) -> ClusterState:
    """Read a queue on nodes, of the newest version."""
    return read(options, nodes=document("nodes", nodes), queue=document("jobs", jobs), **texts)
