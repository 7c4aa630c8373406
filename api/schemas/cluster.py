"""Clusters by name."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import Document
from api.schemas.snapshot import ClusterDoc


class ClusterLinksDoc(Document):
    """Where a cluster and what belongs to it can be found."""

    self: str
    calendar: str


class ClusterSummaryDoc(Document):
    """A cluster that the service has under a name; snapshots may name it."""

    name: str
    version: int
    """How often it was written; its ETag."""
    updated_at: datetime
    num_nodes: int
    num_gpus: int
    links: ClusterLinksDoc


class NamedClusterDoc(ClusterSummaryDoc):
    """The same with its nodes."""

    cluster: ClusterDoc


class ClusterList(Document):
    """A page of clusters by name."""

    clusters: tuple[ClusterSummaryDoc, ...]
    next: str | None
    """Link to the next page; null on the last one."""


class ClusterPageQuery(BaseModel):
    """Query parameters of the list of clusters. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Clusters per page."""
    after: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """The last name of the page before; see `next`."""


CLUSTER_EXAMPLE: dict[str, Any] = {
    "gpu_types": [
        {
            "name": "h100",
            "memory_bytes": 80_000_000_000,
            "peak_flops_per_s": 989e12,
            "intra_node_bandwidth_bytes_per_s": 450e9,
            "inter_node_bandwidth_bytes_per_s": 400e9,
        }
    ],
    "nodes": [{"id": f"n{k}", "gpu_type": "h100", "num_gpus": 8} for k in range(2)],
}
