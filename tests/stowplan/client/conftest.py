"""The service that tests of the interface share, and clients for it."""

from collections.abc import Iterator

import httpx
import pytest

from stowplan.client import Client, Retries
from tests.api.conftest import client as service
from tests.api.conftest import pool
from tests.api.serving import NO_CERTIFICATES

__all__ = ["pool", "service"]

QUICK = Retries(attempts=5, first_pause_s=0.001, longest_pause_s=0.002, total_s=60.0)


@pytest.fixture(scope="session")
def url(service: httpx.Client) -> str:
    """Where the service is."""
    return str(service.base_url)


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    """A client that tests share."""
    with Client(url, retries=QUICK, verify=NO_CERTIFICATES) as shared:
        yield shared
