import gc

import pytest

from stowplan.collection import without_collection


def test_it_is_as_before_behind_it_whatever_happens() -> None:
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        raise KeyError
    assert gc.isenabled()
