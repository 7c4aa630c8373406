"""Output of `ib_write_bw` (perftest): a row per message size, with the average bandwidth of a port."""

import re

from models.measured.base import Bandwidth
from stowplan.errors import FileFormatError

_UNIT = re.compile(r"BW average\[(MB|MiB|Gb)/sec\]")
# perftest counts 2^20 bytes as its MB.
_BYTES = {"MB": 2.0**20, "MiB": 2.0**20, "Gb": 1e9 / 8.0}
_REACHED = 0.9


def read_ib_write_bw(text: str) -> Bandwidth:
    """Read output: the best average bandwidth of all sizes.

    Raises
    ------
    FileFormatError
        When it has no unit or no rows.
    """
    unit = _UNIT.search(text)
    if unit is None:
        raise FileFormatError("has no column `BW average` in MB/sec, MiB/sec or Gb/sec")
    rates: dict[float, float] = {}
    for line in text[unit.end() :].splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].isdecimal() and words[1].isdecimal():
            rates[float(words[0])] = float(words[3]) * _BYTES[unit[1]]
    best = max(rates.values(), default=0.0)
    if not best > 0:
        raise FileFormatError("has no row with a bandwidth above 0")
    return Bandwidth(
        bytes_per_s=best,
        num_nodes=2,
        saturation_bytes=min(size for size, rate in rates.items() if rate >= _REACHED * best),
        is_port=True,
    )
