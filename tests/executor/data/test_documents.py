"""Texts become tokens: whatever the file, the same ones; what cannot be read is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.errors import InputError

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install -e '.[data]' in a checkout")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install -e '.[data]' in a checkout")

from executor.data.documents import TextTokenizer, texts_of  # noqa: E402 - needs both

pytestmark = pytest.mark.slow

TEXTS = ["a b", "b", "c a a"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A folder with a tokenizer of four words."""
    return write_tokenizer(tmp_path / "tokenizer")


def write_tokenizer(folder: Path) -> Path:
    folder.mkdir()
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "c": 2, "<end>": 3}, unk_token="c")  # noqa: S106 - a word
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    return folder


def _json_lines(path: Path) -> Path:
    file = path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text, "id": k}) + "\n" for k, text in enumerate(TEXTS)))
    return file


def _parquet(path: Path) -> Path:
    datasets.Dataset.from_dict({"text": TEXTS}).to_parquet(str(path / "texts.parquet"))
    return path / "texts.parquet"


def _lines(path: Path) -> Path:
    (path / "texts.txt").write_text("\n".join(TEXTS))
    return path / "texts.txt"


def _folder(path: Path) -> Path:
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(path / "texts"))
    return path / "texts"


@pytest.mark.parametrize("write", [_json_lines, _parquet, _lines, _folder])
def test_texts_are_the_same_from_every_file(write: Callable[[Path], Path], tokenizer: Path, tmp_path: Path) -> None:
    reader = TextTokenizer(tokenizer)
    assert list(reader.documents(texts_of(write(tmp_path), "text"))) == [[0, 1, 3], [1, 3], [2, 0, 0, 3]]
    assert reader.vocabulary_size == 4


def test_token_behind_documents_may_be_named(tokenizer: Path) -> None:
    (tokenizer / "tokenizer_config.json").unlink()
    assert list(TextTokenizer(tokenizer / "tokenizer.json", "c").documents(iter(["b"]))) == [[1, 2]]
    with pytest.raises(InputError, match="does not say which token stands behind a document"):
        TextTokenizer(tokenizer)
    with pytest.raises(InputError, match="has no token '<eos>'"):
        TextTokenizer(tokenizer, "<eos>")


def test_wrong_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot be read as a tokenizer"):
        TextTokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "column", "detail"),
    [
        ("a.jsonl", '{"text": 3}\n', "text", "text of row 0 is int; must be text"),
        ("a.jsonl", '{"text": "a"}\n', "body", "body of row 0 is missing; there are text"),
        ("a.jsonl", '{"text"', "text", r"a\.jsonl: cannot be read"),
        ("a.doc", "", "text", r"is of no known kind; known are \.jsonl"),
        ("a.txt", None, "text", "there is no such file"),
    ],
)
def test_files_that_have_no_texts_are_refused(
    name: str, content: Any, column: str, detail: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=detail):
        list(texts_of(tmp_path / name, column))


def test_folders_that_are_no_dataset_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no dataset of save_to_disk"):
        list(texts_of(tmp_path, "text"))
    both = datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": TEXTS}))
    both.save_to_disk(str(tmp_path / "both"))
    with pytest.raises(InputError, match="has the splits train; name the folder"):
        list(texts_of(tmp_path / "both", "text"))
