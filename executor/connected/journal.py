"""What is sent to a scheduler, or would be: written down before it is sent."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stowplan.errors import InputError


class Journal:
    """Tells what is done in two forms: a line that a person could type, and JSON, a line each, in a file.

    is_dry: nothing is sent; whoever acts asks. `say` gets the lines for people. num_notes: how many there were.
    """

    def __init__(self, say: Callable[[str], None], file: Path | None = None, *, is_dry: bool = False) -> None:
        self._say = say
        self._file = file
        self.is_dry = is_dry
        self.num_notes = 0
        if file is not None:
            self._write("")

    def note(self, line: str, document: Mapping[str, Any]) -> None:
        """Note one change before it is sent.

        Raises
        ------
        InputError
            When it cannot be written; then nothing is to be sent either.
        """
        self.num_notes += 1
        self._say(f"would send: {line}" if self.is_dry else line)
        if self._file is not None:
            self._write(json.dumps({"sent": not self.is_dry, **document}, sort_keys=True) + "\n")

    def _write(self, text: str) -> None:
        try:
            with self._file.open("a", encoding="utf-8") as out:  # type: ignore[union-attr]  # asked by the caller
                out.write(text)
        except OSError as error:
            raise InputError(f"{self._file}: cannot be written: {error.strerror}") from error
