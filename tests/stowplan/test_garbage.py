import gc

import pytest

from stowplan.garbage import collected_later


def test_it_is_as_before_behind_it_whatever_happens() -> None:
    with collected_later():
        assert not gc.isenabled()
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collected_later():
        raise KeyError
    assert gc.isenabled()
