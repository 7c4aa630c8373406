"""Which reader reads a file, and files that are none."""

from pathlib import Path

import pytest

from models.readers import READERS, is_file_name, read_model_file
from stowplan.errors import InputError


@pytest.mark.parametrize(
    ("name", "is_file"),
    [
        ("llama2-13b", False),
        ("LLaMA 2 13B", False),
        ("llama9-13b", False),
        ("config.json", True),
        ("models/llama", True),
        ("TRAIN.SH", True),
        ("x" * 5000, False),
        ("", False),
    ],
)
def test_names_and_files(name: str, is_file: bool) -> None:
    assert is_file_name(name) is is_file


def test_a_file_that_is_there_needs_no_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_file_name("arguments")
    Path("arguments").write_text(
        "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 4 --vocab-size 100", encoding="utf-8"
    )
    assert is_file_name("arguments")
    assert read_model_file(Path("arguments")).transformer().hidden_size == 8
    Path("llama2-13b").mkdir()
    assert not is_file_name("llama2-13b")


@pytest.mark.parametrize("suffix", [suffix for reader in READERS.values() for suffix in reader.suffixes])
@pytest.mark.parametrize("content", [b"", b" \n", b"\x89PNG\r\n", b"{", b"--", b"model:\n", b"\x00" * 100, b"1e999"])
def test_no_content_is_an_accident(suffix: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_model_file(file)
    assert str(file) in raised.value.detail


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: cannot be read: No such file"):
        read_model_file(tmp_path)
    with pytest.raises(InputError, match=r"No such file or directory; the catalogue has 'Llama-3\.1-8B'"):
        read_model_file(Path("meta-llama/Llama-3.1-8B"))
    weights = tmp_path / "model.json"
    with weights.open("wb") as file:
        file.truncate(2**21)
    with pytest.raises(InputError, match="are these weights"):
        read_model_file(weights)
