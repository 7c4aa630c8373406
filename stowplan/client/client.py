"""The two clients: one that blocks, one to be awaited, with the same operations."""

import ssl
from typing import Generic, Self

import httpx

from stowplan.client.clusters import Calendars, Clusters, Reservations, Snapshots
from stowplan.client.deployments import Deployments, Jobs, Service, Tokens
from stowplan.client.drivers import AsyncDriver, SyncDriver
from stowplan.client.group import Kind
from stowplan.client.plans import Plans
from stowplan.client.retries import Retries
from stowplan.client.solving import Calibrations, Comparisons, Forecasters, ParallelPlans, Replays

_URL = "http://127.0.0.1:8080"


class _Operations(Generic[Kind]):
    """Every operation of the service, by kind of resource."""

    def __init__(self, driver: Kind, retries: Retries | None) -> None:
        kept = retries or Retries()
        self.plans = Plans(driver, kept)
        self.snapshots = Snapshots(driver, kept)
        self.clusters = Clusters(driver, kept)
        self.calendars = Calendars(driver, kept)
        self.reservations = Reservations(driver, kept)
        self.comparisons = Comparisons(driver, kept)
        self.parallel_plans = ParallelPlans(driver, kept)
        self.calibrations = Calibrations(driver, kept)
        self.replays = Replays(driver, kept)
        self.forecasters = Forecasters(driver, kept)
        self.deployments = Deployments(driver, kept)
        self.jobs = Jobs(driver, kept)
        self.service = Service(driver, kept)
        self.tokens = Tokens(driver, kept)


class Client(_Operations[SyncDriver]):
    """A service, whose operations block.

    Parameters
    ----------
    url
        Where it is, such as `https://planner.example.org`.
    token
        Sent as `Authorization: Bearer`.
    retries
        How often and how long requests are tried.
    verify
        Certificates of the service: those of the system, a context, or False for none.
    transport
        How requests travel, in place of connections of its own.
    """

    def __init__(
        self,
        url: str = _URL,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(base_url=url, headers=_headers(token), verify=verify, transport=transport)
        super().__init__(SyncDriver(self._http), retries)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self.close()


class AsyncClient(_Operations[AsyncDriver]):
    """A service, whose operations are awaited; parameters as for `Client`."""

    def __init__(
        self,
        url: str = _URL,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(token), verify=verify, transport=transport)
        super().__init__(AsyncDriver(self._http), retries)

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Give itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close its connections."""
        await self.close()


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}
