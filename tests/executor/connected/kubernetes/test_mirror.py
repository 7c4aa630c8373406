"""Lists and watches, and what may go wrong with them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.connected.kubernetes.api import NODES, PODS, ApiError, connect
from executor.connected.kubernetes.mirror import Mirror
from stowplan.errors import InputError
from tests.executor.connected.kubernetes.api_server import ApiServer, RefusedError, Request
from tests.executor.connected.kubernetes.scenes import api_of, gang, nodes, served
from tests.waiting import eventually


@contextmanager
def mirrored(server: ApiServer, *, selector: str = "", timeout_s: float = 5.0) -> Iterator[Mirror]:
    resource = PODS if selector else NODES
    mirror = Mirror(api_of(server, timeout_s), resource, threading.Condition(), selector=selector, first_pause_s=0.01)
    mirror.begin()
    try:
        yield mirror
    finally:
        mirror.close()
        server.drop_watches()


def names(mirror: Mirror) -> list[str]:
    return [item["metadata"]["name"] for item in mirror.objects()]


def watches(server: ApiServer) -> list[Request]:
    return [request for request in server.requests if request.query.get("watch") == "true"]


def lists(server: ApiServer) -> list[Request]:
    return [one for one in server.requests if one.path == "/api/v1/nodes" and "watch" not in one.query]


def test_lists_come_in_pages_and_watches_go_on_from_there() -> None:
    with served(("nodes", nodes(1201))) as server, mirrored(server) as mirror:
        assert len(names(mirror)) == 1201
        assert [request.query["limit"] for request in lists(server)] == ["500"] * 3
        server.put("nodes", {**nodes(1)[0], "metadata": {"name": "new", "labels": {}}})
        server.remove("nodes", "n0")
        eventually(lambda: "new" in names(mirror) and "n0" not in names(mirror))
        assert watches(server)[0].query["allowWatchBookmarks"] == "true"
        assert mirror.num_lists == 1


def test_a_list_that_took_too_long_begins_anew() -> None:
    late = iter([True])

    def forget(request: Request) -> None:
        if "continue" in request.query and next(late, False):
            server.forget()

    with served(("nodes", nodes(600))) as server:
        server.before = forget
        with mirrored(server) as mirror:
            assert len(names(mirror)) == 600
        assert [("continue" in request.query) for request in lists(server)] == [False, True, False, True]


def test_a_watch_whose_version_is_forgotten_lists_again() -> None:
    with served(("nodes", nodes(2))) as server, mirrored(server) as mirror:
        eventually(lambda: server.num_watches)
        # What happens while nobody watches is not told by any watch.
        with server.changed:
            server.drop_watches()
            server.events.clear()
            del server.objects["nodes"]["", "n0"]
            server.forget()
        eventually(lambda: names(mirror), lambda found: found == ["n1"])
        assert mirror.num_lists == 2
        assert mirror.fault is None


def test_bookmarks_keep_a_quiet_watch_young() -> None:
    with served(("nodes", nodes(2))) as server, mirrored(server) as mirror:
        eventually(lambda: server.num_watches)
        server.bookmark("nodes")
        mark = server.version
        eventually(lambda: mirror._version, lambda found: found == str(mark))
        # All before the bookmark is forgotten, and the connection is lost: nothing has to be listed again.
        with server.changed:
            server.oldest = mark
        server.drop_watches()
        eventually(lambda: server.num_watches > 1)
        server.remove("nodes", "n0")
        eventually(lambda: names(mirror), lambda found: found == ["n1"])
        assert watches(server)[-1].query["resourceVersion"] == str(mark)
        assert mirror.num_lists == 1


def test_a_dropped_connection_goes_on_where_it_was() -> None:
    with served(("nodes", nodes(2))) as server, mirrored(server) as mirror:
        for k in range(3):
            eventually(lambda k=k: server.num_watches > k)  # type: ignore[misc]
            server.drop_watches()
            server.put("nodes", {**nodes(1)[0], "metadata": {"name": f"new{k}", "labels": {}}})
            eventually(lambda k=k: f"new{k}" in names(mirror))  # type: ignore[misc]
        assert mirror.num_lists == 1


def test_a_server_that_does_not_answer_is_a_fault_until_it_does() -> None:
    held = threading.Event()

    def hold(request: Request) -> None:
        if request.query.get("watch") == "true" and not held.is_set():
            held.wait(5.0)

    with served(("nodes", nodes(2))) as server:
        server.before = hold
        with mirrored(server, timeout_s=0.2) as mirror:
            # The watch waits as long as it may stand still, and a bit: that is long, so it is cut.
            eventually(lambda: watches(server))
            server.drop_watches()
            held.set()
            server.remove("nodes", "n0")
            eventually(lambda: names(mirror), lambda found: found == ["n1"])


def test_a_slow_answer_ends_at_the_time_limit() -> None:
    held = threading.Event()
    with served(("nodes", nodes(2))) as server:
        server.before = lambda _request: held.wait(5.0)  # type: ignore[assignment]
        started_s = time.monotonic()
        with pytest.raises(ApiError, match="does not answer") as caught:
            api_of(server, 0.2).list_all(NODES, None, "")
        assert time.monotonic() - started_s < 4
        assert caught.value.status is None
        held.set()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, 'its role lacks the rule apiGroups: [""], resources: ["nodes"], verbs: ["list"]'),
        (401, "the credentials are not accepted"),
    ],
)
def test_what_is_refused_says_what_is_missing(status: int, says: str) -> None:
    def refuse(_request: Request) -> None:
        raise RefusedError(status, "Forbidden", 'nodes is forbidden: User "me" cannot list resource "nodes"')

    with served(("nodes", nodes(2))) as server:
        server.before = refuse
        with pytest.raises(ApiError) as caught, mirrored(server):
            pass
        assert says in caught.value.detail
        assert 'User "me" cannot list' in caught.value.detail


def test_a_watch_that_is_refused_says_so_and_goes_on_when_it_may() -> None:
    refused = [True]

    def refuse(request: Request) -> None:
        if request.query.get("watch") == "true" and refused:
            raise RefusedError(403, "Forbidden", "nodes is forbidden")

    with served(("nodes", nodes(2))) as server:
        server.before = refuse
        with mirrored(server) as mirror:
            fault = eventually(lambda: mirror.fault)
            assert fault is not None
            assert 'verbs: ["watch"]' in fault.detail
            refused.clear()
            server.remove("nodes", "n0")
            eventually(lambda: names(mirror), lambda found: found == ["n1"])
            assert mirror.fault is None


def test_pods_that_are_over_leave_the_copy() -> None:
    with (
        served(("pods", gang("train", 2))) as server,
        mirrored(server, selector="status.phase!=Succeeded,status.phase!=Failed") as mirror,
    ):
        over = server.get("pods", "train-workers-0-0-x0", "team")
        over["status"]["phase"] = "Succeeded"
        server.put("pods", over)
        eventually(lambda: names(mirror), lambda found: found == ["train-workers-0-1-x1"])


def test_a_kubeconfig_names_the_cluster(tmp_path: Path) -> None:
    with served(("nodes", nodes(1))) as server:
        file = tmp_path / "config"
        file.write_text(
            f"""
apiVersion: v1
kind: Config
current-context: one
clusters: [{{name: c, cluster: {{server: "{server.host}"}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: one, context: {{cluster: c, user: u}}}}]
"""
        )
        found, _ = connect(file).list_all(NODES, None, "")
        assert [item["metadata"]["name"] for item in found] == ["n0"]
        with pytest.raises(InputError, match=r"there is no configuration of a Kubernetes cluster.*other"):
            connect(file, "other")
    with pytest.raises(InputError, match="give --kubeconfig"):
        connect(tmp_path / "absent")
    with pytest.raises(InputError, match="no pod with a service account"):
        connect(in_cluster=True)
