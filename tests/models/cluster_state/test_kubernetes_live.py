"""A cluster that is asked: the official client against an API that was recorded."""

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.cluster_state import LiveSource, StateOptions, ask_scheduler, read_state
from models.cluster_state.kubernetes import client, live
from stowplan.errors import ExtraMissingError, InputError
from tests.growth import work
from tests.models.cluster_state.kubernetes_documents import node, pod, workload
from tests.models.cluster_state.kubernetes_server import RecordedApi, kubeconfig, serving, status

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
KUEUE, KAI, VOLCANO = (
    "/apis/kueue.x-k8s.io/v1beta1",
    "/apis/kai.scheduler/v1alpha1",
    "/apis/topology.volcano.sh/v1alpha1",
)
ROW = {"row": "w1"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def cluster(lists: Mapping[str, Sequence[Mapping[str, Any]]] | None = None, num_nodes: int = 5) -> RecordedApi:
    nodes = [node(f"n{k}", ROW) for k in range(num_nodes)]
    pods = [pod("r-0", "r", node="n0"), pod("w-0", "w")]
    return RecordedApi(lists={NODES: nodes, PODS: pods, **(lists or {})})


def topology(name: str, version: str = "kueue.x-k8s.io/v1beta1") -> dict[str, Any]:
    levels = [{"nodeLabel": name}]
    return {"apiVersion": version, "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}


def ask(config: Path, given: Sequence[str] = (), **settings: str) -> Any:
    source = LiveSource(configuration=str(config), context="test")
    return ask_scheduler("kubernetes", source, given, {name.replace("_", "-"): text for name, text in settings.items()})


def read(config: Path, **settings: str) -> Any:
    named = {name.replace("_", "-"): text for name, text in settings.items()}
    return read_state("kubernetes", ask(config, **settings), StateOptions(settings=named))


def test_lists_come_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    api = cluster()
    with serving(api, tmp_path) as config:
        state = read(config)
    assert [one.id for one in state.cluster.nodes] == [f"n{k}" for k in range(5)]
    assert {item.job.id: item.job.current is not None for item in state.jobs} == {"team/r": True, "team/w": False}
    assert [query.get("continue") for path, query in api.asked if path == NODES] == [None, "2", "4"]
    assert {query.get("fieldSelector") for path, query in api.asked if path == PODS} == {
        "status.phase!=Succeeded,status.phase!=Failed"
    }


def test_a_place_is_told_by_address_page_and_pointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    api = cluster()
    api.lists = {**api.lists, NODES: [*api.lists[NODES][:3], api.lists[NODES][0]]}
    with serving(api, tmp_path) as config, pytest.raises(InputError) as caught:
        read(config)
    assert "/api/v1/nodes (page 2): /items/1/metadata/name: node 'n0' stands there twice" in caught.value.detail


def test_a_list_that_the_server_forgot_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    gone = status(410, "The provided continue parameter is too old")
    api = cluster()
    first = api.answer(NODES, {"limit": "2"}, "Bearer secret-of-the-test")
    api.answers = {NODES: [first, gone]}
    with serving(api, tmp_path) as config:
        assert len(read(config).cluster.nodes) == 5
    always = cluster()
    always.answers = {NODES: [first, gone] * 5}
    with serving(always, tmp_path) as config, pytest.raises(InputError, match=r"nodes \(page 2\): 410 .* 3 times: ask"):
        read(config)


def test_workloads_of_kueue_where_they_are_served(tmp_path: Path) -> None:
    with serving(cluster(), tmp_path) as config:
        assert ask(config)["workloads"] == []
    with serving(cluster({f"{KUEUE}/workloads": [workload("large", pods=2)]}), tmp_path) as config:
        assert {item.job.id for item in read(config).jobs} == {"team/r", "team/w", "team/large"}


def test_topologies_count_unless_labels_are_named(tmp_path: Path) -> None:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {"nodeLabels": ROW, "topologyName": "row"},
    }
    api = cluster({f"{KUEUE}/topologies": [topology("rack"), topology("row")], f"{KUEUE}/resourceflavors": [flavor]})
    with serving(api, tmp_path) as config:
        assert [tier.name for tier in read(config).cluster.tiers] == ["row"]
        assert [tier.name for tier in read(config, topology_labels="row").cluster.tiers] == ["row"]
        assert read(config, topology_labels="none").cluster.tiers == ()
    with serving(cluster({f"{KAI}/topologies": [topology("row", "kai.scheduler/v1alpha1")]}), tmp_path) as config:
        assert [tier.name for tier in read(config).cluster.tiers] == ["row"]


def test_hypernodes_of_volcano(tmp_path: Path) -> None:
    members = [{"type": "Node", "selector": {"regexMatch": {"pattern": "n[0-9]"}}}]
    hypernode = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "s0"},
        "spec": {"tier": 1, "members": members},
    }
    with serving(cluster({f"{VOLCANO}/hypernodes": [hypernode]}), tmp_path) as config:
        assert {one.path for one in read(config).cluster.nodes} == {("s0",)}


def test_what_is_given_is_not_asked_for(tmp_path: Path) -> None:
    api = cluster()
    with serving(api, tmp_path) as config:
        assert set(ask(config, ("pods", "workloads", "topology"))) == {"nodes"}
    assert [path for path, _ in api.asked] == [NODES]


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        (NODES, status(401, "Unauthorized"), "nodes: 401 Unauthorized; the credentials are not accepted: renew them"),
        (
            PODS,
            status(403, "pods is forbidden"),
            '403 pods is forbidden; its role lacks the rule apiGroups: [""], resources: ["pods"], '
            'verbs: ["list"], or give --pods FILE',
        ),
        (
            f"{KUEUE}/workloads",
            status(403, "no"),
            'apiGroups: ["kueue.x-k8s.io"], resources: ["workloads"], verbs: ["list"], or give --workloads FILE',
        ),
        (KUEUE, status(503, "overloaded"), "/apis/kueue.x-k8s.io/v1beta1: 503 overloaded"),
        (NODES, (500, "<html>"), "nodes: 500 Internal Server Error"),
        (NODES, (200, "<html>"), "nodes: answers what is no JSON: Expecting value"),
        (NODES, (200, "[]"), "nodes: answers what is no JSON object"),
        (NODES, (200, '{"kind": "PodList", "items": [{}]}'), "/items/0/kind: is of kind 'Pod'; must be Node"),
    ],
)
def test_what_the_api_refuses_is_told(tmp_path: Path, path: str, answer: tuple[int, str], said: str) -> None:
    api = cluster({f"{KUEUE}/workloads": [workload("w", pods=1)]})
    api.answers = {path: [answer]}
    with serving(api, tmp_path) as config, pytest.raises(InputError) as caught:
        read(config)
    assert said in str(caught.value)


def test_an_api_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TIMEOUT_S", 0.2)
    api = cluster()
    api.answers = {NODES: [None]}
    with serving(api, tmp_path) as config, pytest.raises(InputError, match=r"nodes: does not answer within 0\.2 s"):
        ask(config)


def test_an_api_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config = kubeconfig(tmp_path, free.getsockname()[1])
        with pytest.raises(InputError, match=r"/api/v1/nodes: cannot be reached: .*refused"):
            ask(config)


def test_other_credentials_are_refused(tmp_path: Path) -> None:
    with serving(cluster(), tmp_path) as config:
        other = kubeconfig(tmp_path, int(config.name.rpartition("-")[2]), "another")
        with pytest.raises(InputError, match="401 Unauthorized; the credentials are not accepted"):
            ask(other)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give --kubeconfig or --context"),
        ("[", "give --kubeconfig or --context"),
        ("clusters: []\n", "give --kubeconfig or --context"),
        ("- a\n", "give --kubeconfig or --context"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        ask(path)
    assert str(path) in caught.value.detail
    assert said in caught.value.detail


def test_a_context_that_there_is_not(tmp_path: Path) -> None:
    source = LiveSource(configuration=str(kubeconfig(tmp_path, 1)), context="other")
    with pytest.raises(InputError, match="other"):
        ask_scheduler("kubernetes", source, (), {})


def test_who_has_no_client_is_told_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, live.__name__)
    monkeypatch.delitem(sys.modules, client.__name__)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ExtraMissingError, match=r"asking kubernetes needs the package kubernetes; .*\[kubernetes\]"):
        ask_scheduler("kubernetes", LiveSource(), (), {})


def test_slurm_is_not_asked() -> None:
    with pytest.raises(InputError, match="slurm is read from its documents alone; asked can be kubernetes"):
        ask_scheduler("slurm", LiveSource(), (), {})


def test_asking_grows_with_the_cluster(tmp_path: Path) -> None:
    def effort(size: int) -> int:
        with serving(cluster(num_nodes=size), tmp_path) as config:
            return work(lambda: ask(config))

    # Of each page, not of each object.
    assert effort(4 * client.PAGE) <= 2.3 * effort(2 * client.PAGE)
