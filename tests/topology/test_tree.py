"""Groupings that are stated beside the tree become a tier exactly where they nest."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import FileFormatError
from topology.readers.tree import Paths, SwitchForest

units = st.sampled_from(["a", "b"])


def _forest(paths: Paths) -> SwitchForest:
    forest = SwitchForest("file")
    for line, node in enumerate(paths, start=1):
        forest.put_node(node, None, line)
    return forest


def _refines(finer: Sequence[tuple[str, ...]], coarser: Sequence[tuple[str, ...]]) -> bool:
    """Whether nodes that share a finer unit always share the coarser one."""
    return len(set(zip(finer, coarser, strict=True))) == len(set(finer))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(units, units, st.sampled_from(["x", "y", "z"])), min_size=1, max_size=6))
def test_a_grouping_is_inserted_if_and_only_if_it_nests(nodes: list[tuple[str, str, str]]) -> None:
    paths: Paths = {f"n{k}": (pod, leaf) for k, (pod, leaf, _) in enumerate(nodes)}
    group_of = {f"n{k}": (group,) for k, (_, _, group) in enumerate(nodes)}
    groups = list(group_of.values())
    prefixes = [[path[:k] for path in paths.values()] for k in range(3)]
    nests = [k for k in range(3) if _refines(groups, prefixes[k]) and (k == 2 or _refines(prefixes[k + 1], groups))]
    try:
        extended, position = _forest(paths).insert_tier(paths, group_of, "group")
    except FileFormatError:
        assert not nests
        return
    assert position == max(nests)
    assert {node: (*path[:position], *path[position + 1 :]) for node, path in extended.items()} == paths
    levels = [[path[:k] for path in extended.values()] for k in range(4)]
    assert all(_refines(finer, coarser) for coarser, finer in pairwise(levels))
    assert _refines(levels[position + 1], groups)
    assert _refines(groups, levels[position + 1])
