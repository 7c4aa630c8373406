"""Readers of what sites have measured: output of bandwidth tests and logs of trainings. `READERS` names them, and loads
one when it reads.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType

from models.measured.base import Bandwidth, Finding, Training
from stowplan.errors import FileFormatError
from stowplan.files import read_text

__all__ = ["READERS", "Bandwidth", "Finding", "Reader", "Training", "read_measured", "read_measured_file"]

_MAX_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `function` is `module:function`, text -> Finding. `mark`: found in texts of the format alone."""

    function: str
    mark: str

    def __call__(self, text: str) -> Finding:
        """Read a text."""
        found: Finding = resolve_name(self.function)(text)
        return found


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "nccl-tests": Reader("models.measured.nccl_tests:read_nccl_tests", r"algbw\s+busbw"),
        "ib_write_bw": Reader("models.measured.ib_write_bw:read_ib_write_bw", r"BW average\["),
        "megatron": Reader("models.measured.megatron_log:read_megatron_log", r"elapsed time per iteration \(ms\):"),
        "nemo": Reader("models.measured.nemo_log:read_nemo_log", r"train_step_timing in s"),
        "torchtitan": Reader("models.measured.torchtitan_log:read_torchtitan_log", r"step: *\d+ .*\btps: *[\d,]+"),
    }
)


def read_measured_file(path: Path) -> Finding:
    """Read a file; its format is told by what is in it.

    Raises
    ------
    FileFormatError
        When the file cannot be read, is of no known format, or says too little.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FileFormatError.at(str(path), None, f"is larger than {_MAX_BYTES >> 20} MiB; give its last part")
    except OSError as error:
        raise FileFormatError.at(str(path), None, f"cannot be read: {error.strerror}") from error
    text = read_text(path)
    try:
        return read_measured(text)
    except FileFormatError as error:
        raise FileFormatError.at(str(path), None, error.detail) from error


def read_measured(text: str) -> Finding:
    """Read output of a tool; its format is told by what is in it.

    Raises
    ------
    FileFormatError
        When it is of no known format, or says too little.
    """
    for reader in READERS.values():
        if re.search(reader.mark, text):
            return reader(text)
    raise FileFormatError(f"is none of: {', '.join(READERS)} (output as the tool prints it)")
