"""Documents about the service itself: snapshots, policies, examples, health."""

from datetime import datetime
from typing import Any

from pydantic import Field

from api.schemas.base import Document


class SnapshotLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str


class SnapshotReceiptDoc(Document):
    """A stored snapshot. Its id is derived from its content: the same snapshot has the same id."""

    id: str = Field(examples=["snapshot-5f0c"])
    created_at: datetime
    num_nodes: int
    num_gpus: int
    num_jobs: int
    links: SnapshotLinksDoc


class PolicyDoc(Document):
    """What a policy is for, what it needs and what it gives."""

    name: str
    title: str
    source: str
    """The paper it comes from."""
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    parameters: dict[str, Any]
    """JSON schema of `parameters`."""


class PolicyListDoc(Document):
    """All policies."""

    policies: tuple[PolicyDoc, ...]


class ExampleDoc(Document):
    """A plan request that can be posted as it is."""

    id: str
    title: str
    description: str
    policy: str
    num_nodes: int
    num_gpus: int
    num_jobs: int
    href: str
    """Path of the request itself."""


class ExampleListDoc(Document):
    """All examples."""

    examples: tuple[ExampleDoc, ...]


class IndexLinksDoc(Document):
    """Where to go from here (paths)."""

    page: str = "/ui"
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    policies: str = "/v1/policies"
    examples: str = "/v1/examples"
    plans: str = "/v1/plans"
    solver_comparisons: str = "/v1/solver-comparisons"
    reservations: str = "/v1/reservations"
    health: str = "/healthz"
    readiness: str = "/readyz"
    metrics: str = "/metrics"


class IndexDoc(Document):
    """What answers here."""

    name: str = Field(examples=["stowplan"])
    version: str
    links: IndexLinksDoc = IndexLinksDoc()


class HealthDoc(Document):
    """Whether the service lives, or can plan."""

    status: str = Field(examples=["ok"])
    version: str
