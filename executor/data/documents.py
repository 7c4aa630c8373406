"""Documents of Hugging Face's datasets, by its tokenizers: what a dataset of Megatron-LM is written from.

Needs the extra `data`; whoever imports this has asked whether it is there.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
from tokenizers import Tokenizer

from stowplan.errors import FileFormatError, InputError

# Endings of files -> builder of datasets.
_BUILDERS = {
    **dict.fromkeys((".jsonl", ".json"), "json"),
    ".parquet": "parquet",
    ".csv": "csv",
    ".txt": "text",
    ".arrow": "arrow",
}
_TEXTS_AT_ONCE = 1000


class TextTokenizer:
    """A `tokenizer.json`, or the folder with it.

    Parameters
    ----------
    end
        Token behind every document; None: the `eos_token` of `tokenizer_config.json` beside it.

    Raises
    ------
    InputError
        When it cannot be read, or does not know the token behind documents.
    """

    def __init__(self, path: Path, end: str | None = None) -> None:
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            # The library has no type of its own for what is wrong with a file.
            raise FileFormatError.at(str(file), None, f"cannot be read as a tokenizer: {error}") from error
        word = end if end is not None else _usual_end(file.with_name("tokenizer_config.json"))
        if word is None:
            raise InputError(f"{file} does not say which token stands behind a document; name it")
        number = self._tokenizer.token_to_id(word)
        if number is None:
            raise InputError(f"{file} has no token {word!r} to put behind documents")
        self._end: int = number
        self.vocabulary_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)

    def documents(self, texts: Iterator[str]) -> Iterator[list[int]]:
        """Tokens of every text, and the one behind it."""
        while some := list(islice(texts, _TEXTS_AT_ONCE)):
            for encoded in self._tokenizer.encode_batch(some, add_special_tokens=False):
                yield [*encoded.ids, self._end]


def texts_of(source: Path, column: str) -> Iterator[str]:
    """Texts in a column of a dataset: a file of rows, or a folder of `Dataset.save_to_disk`.

    Raises
    ------
    InputError
        When it cannot be read, or has no such column of text.
    """
    for number, row in enumerate(_rows(source)):
        text = row.get(column)
        if not isinstance(text, str):
            what = f"is {type(text).__name__}" if column in row else f"is missing; there are {', '.join(row)}"
            raise InputError(f"{source}: {column} of row {number} {what}; must be text")
        yield text


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    if source.is_dir():
        try:
            found = datasets.load_from_disk(str(source))
        except (OSError, ValueError) as error:
            raise FileFormatError.at(str(source), None, f"is no dataset of save_to_disk: {error}") from error
        if isinstance(found, datasets.DatasetDict):
            raise InputError(f"{source} has the splits {', '.join(found)}; name the folder of one of them")
        yield from found
        return
    if source.suffix not in _BUILDERS:
        raise FileFormatError.at(str(source), None, f"is of no known kind; known are {', '.join(_BUILDERS)}")
    if not source.is_file():
        raise FileFormatError.at(str(source), None, "cannot be read: there is no such file")
    try:
        # As a stream nothing of it is copied to a cache.
        yield from datasets.load_dataset(
            _BUILDERS[source.suffix], data_files=str(source), split="train", streaming=True
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise FileFormatError.at(str(source), None, f"cannot be read: {error}") from error


def _usual_end(config: Path) -> str | None:
    """The `eos_token` of a tokenizer, which is a word, or an object with its `content`."""
    try:
        end = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise FileFormatError.at(str(config), None, f"cannot be read: {error}") from error
    word = end.get("content") if isinstance(end, dict) else end
    return word if isinstance(word, str) else None
