"""Plans, clusters, comparisons, replays and deployments of a running service, from Python.

    from stowplan.client import Client

    with Client("http://localhost:8080") as client:
        plan = client.plans.solve(request)

`AsyncClient` has the same operations to be awaited. Documents are as on the wire, and typed
(`stowplan.client.documents`); `stowplan.client.records` makes rows of them. Needs httpx (extra `client`), and nothing
else of what the service needs.
"""

try:
    import httpx as httpx
except ModuleNotFoundError as error:
    from stowplan.errors import ExtraMissingError

    raise ExtraMissingError("stowplan.client needs httpx: pip install 'stowplan[client]', or httpx alone") from error

from stowplan.client.client import AsyncClient, Client
from stowplan.client.errors import ClientError, NotFinalError, ProblemError, UnreachableError
from stowplan.client.events import Event
from stowplan.client.retries import Retries

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Event",
    "NotFinalError",
    "ProblemError",
    "Retries",
    "UnreachableError",
]
