"""Data that a user describes: what is none is refused where it stands."""

from typing import Any

import pytest

from executor.data.sources import Data, Source
from stowplan.errors import InputError

_ONE = (Source(path="a"),)


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"sources": (Source(path="a"), Source(path="b", weight=-1.0))}, ["/sources/1/weight"]),
        ({"sources": (Source(path="a", weight=0.0),)}, ["/sources/0/weight"]),
        ({"sources": _ONE, "validation_share": 1.0}, ["/validation_share"]),
        ({"sources": _ONE, "evaluation_interval": 5}, ["/validation_share"]),
        ({"validation_share": 0.1}, ["/sources"]),
        ({"sources": _ONE, "eod_token": 3}, ["/eod_token"]),
        ({"sources": _ONE, "document_mask": True, "eod_token": -1}, ["/eod_token"]),
        ({"evaluation_interval": -1, "evaluation_batches": 0}, ["/evaluation_interval", "/evaluation_batches"]),
    ],
)
def test_data_that_are_none_are_refused(changes: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        Data(**changes)
    assert [issue.pointer for issue in refused.value.issues] == pointers
