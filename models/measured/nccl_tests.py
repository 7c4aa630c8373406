"""Output of nccl-tests (`all_reduce_perf` and others): a row per message size, with bus bandwidth in GB/s: what a ring
moves over each link.
"""

import re

from models.measured.base import Bandwidth
from stowplan.errors import FileFormatError

_HOST = re.compile(r"#\s+Rank\s+\d+.*?\son\s+(\S+)\s+device")
_NUMBER = re.compile(r"-?[\d.]+(?:[eE][+-]?\d+)?")
_GIGA = 1e9
_REACHED = 0.9


def read_nccl_tests(text: str) -> Bandwidth:
    """Read output: the best bandwidth of all sizes, out of place or in place.

    Raises
    ------
    FileFormatError
        When it has no rows, or results were wrong.
    """
    rates: dict[float, float] = {}
    header: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if "busbw" in words:
            header = words[1:] if words[0] == "#" else words
        elif header and words and words[0].isdecimal() and len(words) >= len(header):
            columns = [k for k, name in enumerate(header) if name == "busbw"]
            found = [float(words[k]) for k in columns if _NUMBER.fullmatch(words[k])]
            if found and float(words[0]) > 0:
                rates[float(words[0])] = max(found)
    best = max(rates.values(), default=0.0)
    if not best > 0:
        raise FileFormatError("has no row with a bus bandwidth above 0; give all that all_reduce_perf prints")
    hosts = {found[1] for found in _HOST.finditer(text)}
    return Bandwidth(
        bytes_per_s=best * _GIGA,
        num_nodes=len(hosts) or None,
        saturation_bytes=min(size for size, rate in rates.items() if rate >= _REACHED * best),
    )
