from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from stowplan.files import read_text


def test_texts_are_read_with_any_ends_of_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n\xc3\xa9\r\r\n")
    assert read_text(file) == file.read_text(encoding="utf-8-sig") == "a\nb\nc\n\u00e9\n\n"


def test_what_is_not_utf_8_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"ab\xff")
    with pytest.raises(FileFormatError, match="is not UTF-8: invalid start byte at byte 2"):
        read_text(file)
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_text(tmp_path / "absent")
