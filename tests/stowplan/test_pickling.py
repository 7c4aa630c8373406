"""Quick pickling gives back what was pickled, and leaves frozen what is frozen."""

import pickle
from dataclasses import FrozenInstanceError, dataclass

import pytest

from models.workload import Job, NodeGpus
from stowplan.pickling import quickly_pickled
from topology.cluster import Node


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    first: int
    second: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "value",
    [
        Pair(first=1, second=("a", "b")),
        NodeGpus(node="n", gpus=(0, 3)),
        Node(id="n", gpu_type="a", num_gpus=4, path=("pod", "leaf")),
        Job(id="j", current=(NodeGpus(node="n", gpus=(0,)),), weight=2.0),
    ],
)
def test_it_comes_back_as_it_went(value: object) -> None:
    again = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301 - made here
    assert again == value
    assert type(again) is type(value)


def test_it_stays_frozen() -> None:
    again = pickle.loads(pickle.dumps(Pair(first=1)))  # noqa: S301 - made here
    with pytest.raises(FrozenInstanceError):
        again.first = 2
