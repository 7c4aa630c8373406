"""Who may send: the lease of a connection, on the test server."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from executor.connected.kubernetes.lease import Lease, LeaseTimes
from models.cluster_state.kubernetes.client import ApiError
from stowplan.errors import InputError
from tests.executor.connected.kubernetes.api_server import ApiServer, RefusedError, Request
from tests.executor.connected.kubernetes.scenes import api_of, connected, gang, nodes, served
from tests.waiting import eventually

PLACE = "team/stowplan"
# Renewed often, and long enough for a machine that is busy.
RENEWED = LeaseTimes(lasts_s=30.0, deadline_s=20.0, renew_s=0.02)


def lease_of(server: ApiServer, times: LeaseTimes = RENEWED, **more: Any) -> Lease:
    return Lease(api_of(server), PLACE, times=times, **more)


def spec(server: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.get("leases", "stowplan", "team")["spec"]
    return found


def test_it_is_taken_renewed_and_given_back() -> None:
    with served() as server:
        first = lease_of(server)
        first.acquire()
        taken = spec(server)
        assert (taken["holderIdentity"], taken["leaseDurationSeconds"]) == (first.identity, 30)
        eventually(lambda: spec(server)["renewTime"] > taken["renewTime"])
        first.check()
        assert spec(server)["acquireTime"] == taken["acquireTime"]
        first.release()
        assert spec(server)["holderIdentity"] == ""
        # The next one need not wait.
        second = lease_of(server)
        begun_s = time.monotonic()
        second.acquire()
        assert time.monotonic() - begun_s < RENEWED.lasts_s
        assert (spec(server)["holderIdentity"], spec(server)["leaseTransitions"]) == (second.identity, 1)
        second.release()


def test_a_second_one_is_refused_by_the_name_of_the_first() -> None:
    with served() as server:
        first = lease_of(server)
        first.acquire()
        with pytest.raises(InputError) as caught:
            lease_of(server).acquire()
        assert f"another connection, {first.identity}, holds the lease {PLACE} and renews it" in caught.value.detail
        assert "--lease" in caught.value.detail
        first.check()
        first.release()


def test_one_that_nobody_renews_is_taken_over_and_its_holder_sends_nothing_more() -> None:
    lost = threading.Event()
    with served(("nodes", nodes()), ("pods", gang("train", 2))) as server:
        first = lease_of(server, lost=lost.set)
        first.acquire()

        def stand_still(request: Request) -> None:
            if first.identity in json.dumps(request.body):
                raise RefusedError(500, "InternalError", "not now")

        server.before = stand_still
        said: list[str] = []
        second = lease_of(server, LeaseTimes(lasts_s=0.1, deadline_s=20.0, renew_s=0.05), say=said.append)
        second.acquire()
        assert said == [f"{first.identity} holds the lease {PLACE}, which is taken over if nobody renews it"]
        assert lost.wait(10.0)
        with pytest.raises(ApiError, match=f"lease {PLACE} was taken over by {second.identity}"):
            first.check()
        with connected(server, may_send=first.check) as connection, pytest.raises(ApiError, match="taken over"):
            connection.step()
        assert server.writes() == []
        first.release()
        assert spec(server)["holderIdentity"] == second.identity
        second.release()


def refusing(status: int) -> Callable[[Request], None]:
    def refuse(request: Request) -> None:
        if request.method in ("PATCH", "POST"):
            raise RefusedError(status, "Forbidden", "leases is forbidden")

    return refuse


def test_one_that_cannot_be_renewed_is_lost_before_others_may_take_it() -> None:
    lost = threading.Event()
    with served() as server:
        lease = lease_of(server, LeaseTimes(lasts_s=30.0, deadline_s=0.3, renew_s=0.02), lost=lost.set)
        lease.acquire()
        server.before = refusing(500)
        assert lost.wait(10.0)
        with pytest.raises(ApiError, match=r"could not be renewed for \d+ s, .* nothing more is sent"):
            lease.check()
        lease.release()


def test_a_right_that_is_missing_is_told() -> None:
    with served() as server:
        server.before = refusing(403)
        rule = r'apiGroups: \["coordination.k8s.io"\], resources: \["leases"\], verbs: \["create"\]'
        with pytest.raises(ApiError, match=rule):
            lease_of(server).acquire()


@pytest.mark.parametrize("place", ["stowplan", "/stowplan", "team/", "a/b/c"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with served() as server, pytest.raises(InputError, match="must be NAMESPACE/NAME"):
        Lease(api_of(server), place)
