"""From the API of a cluster to patches of its pods, and back."""

from executor.control.events import Arrival, Completion, Tick
from tests.executor.connected.kubernetes.scenes import connected, gang, nodes, served, where


def test_a_gang_that_waits_gets_nodes_in_rank_order() -> None:
    with served(("nodes", nodes()), ("pods", gang("train", 3))) as server, connected(server) as connection:
        server.binds = True
        step = connection.step()
        assert step is not None
        assert [type(event) for event in step.events] == [Tick]
        assert where(server, "train") == ["n0", "n1", "n2"]
        step = None
        for name in list(server.objects["pods"]):
            server.remove("pods", name[1], "team")
        while step is None or not any(isinstance(event, Completion) for event in step.events):
            step = connection.step()
        assert [event for event in step.events if not isinstance(event, Completion)] == []
        server.objects["pods"].clear()
        for item in gang("next", 4):
            server.put("pods", item)
        arrived = []
        while not arrived:
            step = connection.step()
            assert step is not None
            arrived = [event for event in step.events if isinstance(event, Arrival)]
        assert where(server, "next") == ["n0", "n1", "n2", "n3"]
