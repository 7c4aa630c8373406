"""Logs of Megatron-LM: a line every so many iterations, with the mean time of one since the last line."""

import re

from models.measured.base import Training, settled

_LINE = re.compile(r"elapsed time per iteration \(ms\):\s*(-?[\d.]+(?:[eE][+-]?\d+)?)")
_BATCH = re.compile(r"global batch size:\s*(\d+)")


def read_megatron_log(text: str) -> Training:
    """Read a log.

    Raises
    ------
    FileFormatError
        When it has too few iterations.
    """
    times, batches = [], []
    for line in text.splitlines():
        if (found := _LINE.search(line)) is not None:
            times.append(float(found[1]) / 1e3)
            batch = _BATCH.search(line)
            batches.append(None if batch is None else int(batch[1]))
    seconds, count, size = settled(times, batches)
    return Training(num_iterations=count, iteration_s=seconds, global_batch=size)
