"""A variable is as it was before, whatever happens meanwhile."""

import os

import pytest

from stowplan.variables import variable


@pytest.mark.parametrize("before", [None, "old"])
def test_it_is_as_before_behind_it(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("STOWPLAN_TRIED", raising=False)
    if before is not None:
        monkeypatch.setenv("STOWPLAN_TRIED", before)
    with variable("STOWPLAN_TRIED", "new"):
        assert os.environ["STOWPLAN_TRIED"] == "new"
    with pytest.raises(KeyError), variable("STOWPLAN_TRIED", "newer"):
        raise KeyError
    assert os.environ.get("STOWPLAN_TRIED") == before
