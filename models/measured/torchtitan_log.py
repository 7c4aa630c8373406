"""Logs of torchtitan: `step: 10 ... tps: 5,762`, tokens per second of a GPU; each rank prints lines of its own."""

import re

from models.measured.base import Training, settled

_LINE = re.compile(r"step:\s*(\d+)\s.*?\btps:\s*([\d,]+)")
# Colours of terminals.
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def read_torchtitan_log(text: str) -> Training:
    """Read a log.

    Raises
    ------
    FileFormatError
        When it has too few steps.
    """
    rates: dict[str, float] = {}
    for line in text.splitlines():
        if (found := _LINE.search(_ESCAPES.sub("", line))) is not None:
            rates.setdefault(found[1], float(found[2].replace(",", "") or 0))
    rate, count, _ = settled(list(rates.values()), [None] * len(rates))
    return Training(num_iterations=count, tokens_per_s=rate)
