import json
from pathlib import Path

import pytest

from executor.connected.journal import Journal
from stowplan.errors import InputError


@pytest.mark.parametrize(("is_dry", "said"), [(True, "would send: kubectl patch"), (False, "kubectl patch")])
def test_a_change_is_told_to_people_and_written(tmp_path: Path, is_dry: bool, said: str) -> None:
    lines: list[str] = []
    journal = Journal(lines.append, tmp_path / "log.jsonl", is_dry=is_dry)
    journal.note("kubectl patch", {"verb": "patch"})
    journal.note("kubectl patch", {"verb": "patch"})
    assert lines == [said, said]
    written = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert written == [{"sent": not is_dry, "verb": "patch"}] * 2
    assert journal.num_notes == 2


def test_what_cannot_be_written_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        Journal(print, tmp_path / "absent" / "log.jsonl")
