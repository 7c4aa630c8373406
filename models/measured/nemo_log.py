"""Logs of NeMo: `train_step_timing in s`, from its logger or its progress bar, which prints a step more than once."""

import re

from models.measured.base import Training, settled

_LINE = re.compile(r"train_step_timing in s[:=]\s*(-?[\d.]+(?:[eE][+-]?\d+)?)")
_BATCH = re.compile(r"global_batch_size[:=]\s*(\d+)")
_STEP = re.compile(r"global_step[:=]\s*([\d.]+)")


def read_nemo_log(text: str) -> Training:
    """Read a log.

    Raises
    ------
    FileFormatError
        When it has too few iterations.
    """
    rows: dict[object, tuple[float, int | None]] = {}
    for line in re.split(r"[\r\n]+", text):
        if (found := _LINE.search(line)) is not None:
            batch, step = _BATCH.search(line), _STEP.search(line)
            # Progress bars print a step again and again, the last time with its own time.
            rows[len(rows) if step is None else step[1]] = (float(found[1]), None if batch is None else int(batch[1]))
    seconds, count, size = settled([time for time, _ in rows.values()], [batch for _, batch in rows.values()])
    return Training(num_iterations=count, iteration_s=seconds, global_batch=size)
