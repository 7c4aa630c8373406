"""What a rank measures in one step, as JSON lines: one file per rank, one line per step.

A line is `StepMetrics` as a JSON object. A file only grows; when a killed run left half a line, the next run of that
rank removes it. Steps that are run again after a restart occur again, with another `launch`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from stowplan.errors import InputError
from stowplan.records import from_document, to_json

# More than two lines of any rank.
_TAIL_BYTES = 16_384
# More than a line of most.
_LINE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One step of one rank.

    Identity: (launch, rank, step) occurs once. `launch`: start of the run in ms since 1970, the same on all ranks.
    `step` counts from 1 and goes on after a restart. `started_at_s`: seconds since 1970.

    Times in seconds. `forward_s`, `backward_s`, `send_s`, `receive_s`, `load_s` (data) are sums over the
    micro-batches; `receive_s` contains the wait for the neighbour, so the bubble of the pipeline. The all-reduces of
    tensor parallelism are in forward and backward. `reduction_s`: gradients, over replicas and tied embeddings.
    `optimizer_s`: clipping, update and all-gather of the weights. `step_s`: the whole step.

    `tokens`: of the step, over all ranks. `peak_memory_bytes`: on CUDA allocated by tensors in this step, on CPU the
    process's peak so far. `host`: where the rank ran.

    Gradient noise: `small_gradient_square` is the squared norm of the gradient over `small_batch` sequences (one
    replica's), averaged over the replicas; `large_gradient_square` that over `large_batch` sequences, before
    clipping. Equal batches (a stage with one replica) say nothing about the noise. The native engine leaves out
    parameters that two stages share: no rank has the whole gradient of one replica for them. `validation_loss`: of the
    evaluation behind the step, None where there was none.
    """

    launch: int
    rank: int
    step: int
    pipe: int
    data: int
    tensor: int
    host: str
    started_at_s: float
    step_s: float
    forward_s: float
    backward_s: float
    send_s: float
    receive_s: float
    load_s: float
    reduction_s: float
    optimizer_s: float
    num_micro_batches: int
    tokens: int
    tokens_per_s: float
    peak_memory_bytes: int
    loss: float
    learning_rate: float
    small_batch: int
    small_gradient_square: float
    large_batch: int
    large_gradient_square: float
    validation_loss: float | None = None


def metrics_path(folder: Path, rank: int) -> Path:
    """Where rank `rank` writes."""
    return folder / f"metrics-rank{rank}.jsonl"


class MetricsWriter:
    """Appends lines; every line is handed to the operating system before the next step begins."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_half_line(path)
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, metrics: StepMetrics) -> None:
        """Append one line."""
        self._file.write(to_json(metrics) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> Iterator[StepMetrics]:
    """Read the lines of a rank's file that are complete; raise InputError, which names the line, at a wrong one."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                document = json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: is no JSON: {error}") from error
            yield from_document(StepMetrics, document, f"line {number} of {path}")


def first_metrics(path: Path) -> StepMetrics | None:
    """Read the first step of a rank's file; None where there is none yet."""
    return next(read_metrics(path), None) if path.exists() else None


def last_metrics(path: Path) -> StepMetrics | None:
    """Read the last complete line of a rank's file, without reading what stands before; None where there is none."""
    lines = _last_lines(path, _TAIL_BYTES)
    return _parsed(lines[-1], path) if lines else None


def newest_metrics(path: Path, num_steps: int) -> list[StepMetrics]:
    """Read the last lines of a rank's file, at most so many, without reading what stands before; none without one."""
    lines = _last_lines(path, _TAIL_BYTES + num_steps * _LINE_BYTES)
    return [_parsed(line, path) for line in lines[-num_steps:]]


def _last_lines(path: Path, num_bytes: int) -> list[bytes]:
    """The complete lines in the last bytes of a file."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - num_bytes)
        file.seek(start)
        lines = file.read().rpartition(b"\n")[0].splitlines()
    # The first one lacks its beginning.
    return lines[1:] if start else lines


def _parsed(line: bytes, path: Path) -> StepMetrics:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise InputError(f"one of the last lines of {path} is no JSON: {error}") from error
    return from_document(StepMetrics, document, f"last lines of {path}")


def _drop_half_line(path: Path) -> None:
    """Cut off what stands behind the last newline."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
