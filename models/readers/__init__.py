"""Readers of models that other tools describe: each turns text into a `ForeignModel`. `READERS` names them, and loads
one when it reads.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType

from models.catalogue import is_model_name
from models.readers.base import FilePlan, ForeignModel, Note
from stowplan.errors import FileFormatError, InputError
from stowplan.files import read_text

__all__ = ["READERS", "FilePlan", "ForeignModel", "Note", "Reader", "is_file_name", "read_model_file"]

# Far above every description, far below weights that are taken for one.
_MAX_BYTES = 2**20
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `function` is `module:function`, text -> ForeignModel; its errors point into the document.

    suffixes: how names of such files end. A file of any other name is taken for arguments of Megatron-LM.
    """

    function: str
    suffixes: tuple[str, ...] = ()

    def __call__(self, text: str) -> ForeignModel:
        """Read a text."""
        model: ForeignModel = resolve_name(self.function)(text)
        return model


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "hugging-face": Reader("models.readers.hugging_face:read_hugging_face", (".json",)),
        "nemo": Reader("models.readers.nemo:read_nemo", (".yaml", ".yml")),
        "torchtitan": Reader("models.readers.torchtitan:read_torchtitan", (".toml",)),
        "megatron": Reader(
            "models.readers.megatron:read_megatron", (".sh", ".bash", ".slurm", ".sbatch", ".txt", ".log")
        ),
    }
)


def is_file_name(name: str) -> bool:
    """Whether what stands for a model is a file rather than a name of the catalogue."""
    if is_model_name(name):
        return False
    suffixes = [suffix for reader in READERS.values() for suffix in reader.suffixes]
    return "/" in name or name.lower().endswith(tuple(suffixes)) or os.path.exists(name)


def read_model_file(path: Path) -> ForeignModel:
    """Read the description of a model; its format is told by the name of the file, `config.json` of a folder.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not of its format.
    InputError
        When it is no description of a model that can be planned; pointers lead into the file.
    """
    if path.is_dir():
        path = path / _CONFIG
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FileFormatError.at(str(path), None, "is too large for a description of a model; are these weights?")
    except OSError as error:
        known = f"; the catalogue has {path.name!r}" if is_model_name(path.name) else ""
        raise FileFormatError.at(str(path), None, f"cannot be read: {error.strerror}{known}") from error
    text = read_text(path)
    if not text.strip():
        raise FileFormatError.at(str(path), None, f"is empty; {_wanted()}")
    try:
        return _reader(path)(text)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error.detail}") from error
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def _reader(path: Path) -> Reader:
    for reader in READERS.values():
        if path.name.lower().endswith(reader.suffixes):
            return reader
    return READERS["megatron"]


def _wanted() -> str:
    return "give a config.json of Hugging Face, arguments of Megatron-LM, a TOML of torchtitan or a YAML of NeMo"
