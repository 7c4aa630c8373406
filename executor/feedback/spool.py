"""The buffer between ranks and the service: the metrics files themselves, and a cursor that says what has arrived.

    <folder>/[runs/<n>/][metrics/]metrics-rank<r>.jsonl     what ranks write, see `executor.metrics`
    <folder>/[runs/<n>/]metrics/own-rank0.jsonl             what a program of the user's own tells, see
                                                            `executor.own_steps`; its launch is the start of its first
                                                            step, and of a step only what we know is sent
    <folder>/feedback-<target>.json                         cursor: file -> bytes that the service has acknowledged
    <folder>/refused-<target>.jsonl                         records that the service refused, with its reasons

The cursor is written after the service has answered. When the sender dies in between, records are sent again; the
service knows them by (launch, rank, step) and keeps one.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from executor.own_steps import first_own_step, own_steps_path, parsed_own_step
from executor.records import write_text
from stowplan.errors import InputError

_OWN = own_steps_path(Path(), 0)
_PATTERNS = (
    *("metrics-rank*.jsonl", "metrics/metrics-rank*.jsonl", "runs/*/metrics/metrics-rank*.jsonl"),
    *(str(_OWN), f"runs/*/{_OWN}"),
)
_logger = logging.getLogger("stowplan.executor.feedback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of `file`, which has been read up to `end` then; `launch` None: it is no record."""

    file: str
    end: int
    launch: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one launch of one run, whose folder is `run`; `whole_steps`: as programs of users tell of them."""

    run: Path
    launch: int
    lines: tuple[Line, ...]
    whole_steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a record is not sent again: the answer's status (0: it is no record) and words, and the errors in it."""

    line: Line
    status: int
    detail: str
    errors: tuple[Any, ...] = ()


class Spool:
    """Records below `folder` that `target` has not acknowledged.

    Raises
    ------
    InputError
        When the folder cannot be read, or its cursor is broken.
    """

    def __init__(self, folder: Path, target: str) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder; give that of a run or of a deployment")
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        self.folder = folder
        self.refused = folder / f"refused-{digest}.jsonl"
        self._cursor = folder / f"feedback-{digest}.json"
        self._target = target
        self._offsets = self._read_cursor()

    def next_batch(self, max_records: int, max_bytes: int) -> Batch | None:
        """Records of the oldest launch that is not done with, a few of every rank; None when all have arrived."""
        for run, files in self._files():
            heads = {file: launch for file in files if (launch := self._next_launch(file)) is not None}
            if heads:
                launch = min(heads.values())
                share, room = max(1, max_records // len(heads)), max_bytes // len(heads)
                lines = [line for file in heads for line in self._some(file, launch, share, room)]
                own = any(_is_own(line.file) for line in lines)
                return Batch(run=run, launch=launch, lines=tuple(lines[:max_records]), whole_steps=own)
        return None

    def acknowledge(self, batch: Batch) -> None:
        """Never give these records again."""
        for line in batch.lines:
            self._offsets[line.file] = line.end
        self._write_cursor()

    def set_aside(self, refusals: Iterable[Refusal]) -> None:
        """Keep records where a person finds them, with the reasons."""
        with self.refused.open("a", encoding="utf-8") as file:
            for refusal in refusals:
                _logger.error("%s: refused: %s", refusal.line.file, refusal.errors or refusal.detail)
                entry = {"at_s": time.time(), "target": self._target, **asdict(refusal)}
                file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _files(self) -> Iterator[tuple[Path, list[str]]]:
        """Runs by name, each with its metrics files."""
        runs: dict[Path, list[str]] = {}
        for path in sorted(path for pattern in _PATTERNS for path in self.folder.glob(pattern)):
            run = path.parent.parent if path.parent.name == "metrics" else path.parent
            runs.setdefault(run, []).append(str(path.relative_to(self.folder)))
        yield from sorted(runs.items())

    def _next_launch(self, file: str) -> int | None:
        """Launch of the next record of a file; what stands before it and is none is set aside."""
        for line in self._lines(file):
            if line.launch is not None:
                return line.launch
            self.set_aside([Refusal(line=line, status=0, detail="is no record")])
            self._offsets[file] = line.end
            self._write_cursor()
        return None

    def _some(self, file: str, launch: int, max_records: int, max_bytes: int) -> Iterator[Line]:
        """The next records of a file as long as they are of a launch: at most so many, one however long it is."""
        num_bytes = 0
        for k, line in enumerate(self._lines(file)):
            num_bytes += len(line.text)
            if line.launch != launch or k == max_records or (k and num_bytes > max_bytes):
                return
            yield line

    def _lines(self, file: str) -> Iterator[Line]:
        """Complete lines that have not arrived."""
        offset = self._offset(file)
        first = first_own_step(self.folder / file) if _is_own(file) else None
        with (self.folder / file).open("rb") as source:
            source.seek(offset)
            for raw in source:
                if not raw.endswith(b"\n"):
                    return
                offset += len(raw)
                text = raw.decode(errors="replace").strip()
                if not _is_own(file):
                    yield Line(file=file, end=offset, launch=_launch_of(text), text=text)
                else:
                    yield _own_line(file, offset, None if first is None else first.started_at_s, raw)

    def _offset(self, file: str) -> int:
        """Bytes of a file that have arrived; 0 when another file has taken its place."""
        offset = self._offsets.get(file, 0)
        if offset:
            with (self.folder / file).open("rb") as source:
                source.seek(offset - 1)
                if source.read(1) != b"\n":
                    _logger.warning("%s is not the file that was sent before; it is sent from the beginning", file)
                    return 0
        return offset

    def _read_cursor(self) -> dict[str, int]:
        if not self._cursor.exists():
            return {}
        try:
            return {str(file): int(offset) for file, offset in json.loads(self._cursor.read_text())["offsets"].items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{self._cursor} cannot be read: {error}; remove it to send everything again") from error

    def _write_cursor(self) -> None:
        write_text(self._cursor, json.dumps({"target": self._target, "offsets": self._offsets}, indent=1) + "\n")


def _is_own(file: str) -> bool:
    return Path(file).name == _OWN.name


def _own_line(file: str, end: int, launched_at_s: float | None, raw: bytes) -> Line:
    """A line of a program of the user's own, as the service takes it."""
    step = parsed_own_step(raw)
    if step is None or launched_at_s is None or step.step_s <= 0:
        return Line(file=file, end=end, launch=None, text=raw.decode(errors="replace").strip())
    launch = int(launched_at_s * 1e3)
    return Line(file=file, end=end, launch=launch, text=json.dumps({"launch": launch, **asdict(step)}))


def _launch_of(text: str) -> int | None:
    """Launch of a record; None for what is none."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    launch = document.get("launch") if isinstance(document, dict) else None
    return launch if isinstance(launch, int) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
