"""Clusters whose nodes are known from inside."""

from dataclasses import replace

import pytest

from stowplan.errors import InputError
from tests.topology.instances import golden_cluster
from topology.node_readers import READERS, NodeFacts, Remark, read_node_facts
from topology.node_readers.base import with_node_facts

FACTS = NodeFacts(source="topo.xml", num_gpus=8, intra_node_bandwidth_bytes_per_s=123.0)


def test_types_have_what_is_known_and_keep_the_rest() -> None:
    cluster = golden_cluster()
    found, remarks = with_node_facts(cluster, {"h800": FACTS})
    h800, l20 = found.gpu_types
    assert h800 == replace(cluster.gpu_types[0], intra_node_bandwidth_bytes_per_s=123.0)
    assert l20 == cluster.gpu_types[1]
    assert remarks == ()
    assert with_node_facts(cluster, {}) == (cluster, ())


def test_nodes_of_another_size_are_told() -> None:
    own = Remark(code="own", detail="of the reader", source="topo.xml")
    _, remarks = with_node_facts(golden_cluster(), {"l20": replace(FACTS, remarks=(own,))})
    assert [(remark.code, remark.count) for remark in remarks] == [("own", 1), ("node_topology_differs", 2)]
    assert remarks[1].detail == "is a node with 8 GPUs; node 'n2' of the type 'l20' has 4"


def test_a_type_that_no_node_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"topo\.xml: no node has GPUs of the type 'b200'; there are 'h800', 'l20'"):
        with_node_facts(golden_cluster(), {"b200": FACTS})


def test_every_reader_can_be_loaded_and_texts_have_a_limit() -> None:
    for reader in READERS.values():
        with pytest.raises(InputError):
            reader("empty", "", None)
    with pytest.raises(InputError, match="has 16777217 characters; at most 16777216"):
        read_node_facts("large", "x" * (2**24 + 1))
