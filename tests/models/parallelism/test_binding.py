import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.binding import bind_plan
from models.workload import NodeGpus
from stowplan.errors import InputError
from tests.models.parallelism.scenes import performance_model, plan


def test_stages_go_node_by_node_onto_the_free_indices() -> None:
    # Virtual node 0 is full (4 of 4), virtual node 1 half (2 of 4); so are "b" and "a".
    of = plan(3, 1, 2, layers=(2, 1, 1))
    bound = bind_plan(of, [NodeGpus(node="a", gpus=(1, 3)), NodeGpus(node="b", gpus=(0, 1, 2, 3))])
    assert bound.gpus == (("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 1), ("a", 3))
    assert [stage.num_layers for stage in bound.stages] == [2, 1, 1]


def test_nodes_of_one_size_keep_their_order() -> None:
    bound = bind_plan(plan(2, 1, 4), [NodeGpus(node=name, gpus=(4, 5, 6, 7)) for name in ("z", "a")])
    assert [stage.replicas[0].node for stage in bound.stages] == ["z", "a"]


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([NodeGpus(node="a", gpus=(0, 1, 2)), NodeGpus(node="b", gpus=(0,))], "given are 3 \\+ 1"),
        ([], "given are none"),
        ([NodeGpus(node="a", gpus=(0, 1)), NodeGpus(node="a", gpus=(2, 3))], "listed twice"),
    ],
)
def test_other_shapes_are_refused(gpus: list[NodeGpus], said: str) -> None:
    with pytest.raises(InputError, match=said):
        bind_plan(plan(2, 1, 2), gpus)


@given(st.permutations(range(4)), st.sampled_from([(2, 4, 1), (2, 2, 4), (4, 1, 4), (1, 4, 4)]))
@settings(max_examples=20, deadline=None)
def test_binding_changes_neither_time_nor_memory(order: list[int], degrees: tuple[int, int, int]) -> None:
    of = plan(*degrees)
    model = performance_model()
    nodes = order[: of.num_gpus // 4]
    bound = bind_plan(of, [NodeGpus(node=str(k), gpus=(0, 1, 2, 3)) for k in nodes])
    assert model.iteration(bound) == model.iteration(of)
    assert model.memory(bound) == model.memory(of)
