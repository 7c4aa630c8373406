"""Quantities as people write them: `80GiB`, `312T`, `300GB/s`, `400Gbit/s`."""

import math
import re

from stowplan.errors import InputError

_PREFIXES = {"": 1.0} | {letter: 1e3**k for k, letter in enumerate("KMGTP", start=1)}
_PREFIXES |= {f"{letter}I": 2.0 ** (10 * k) for k, letter in enumerate("KMGTP", start=1)}
_UNITS = {"": 1.0, "B": 1.0, "B/S": 1.0, "FLOPS": 1.0, "FLOP/S": 1.0, "BIT": 0.125, "BIT/S": 0.125}
_ADAPTERS = re.compile(r"\s*(\d{1,4})\s*x\s*(.+)")
_QUANTITY = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmgtp]i?)?(b|b/s|flops|flop/s|bit|bit/s)?", re.IGNORECASE)


def parse_quantity(text: str, name: str) -> float:
    """Read a number with an optional prefix (decimal k, M, G, T, P or binary Ki, Mi, ...) and unit; bits become bytes.

    Raises
    ------
    InputError
        When the text is no positive quantity; names `name`.
    """
    match = _QUANTITY.fullmatch(text.strip())
    try:
        value = float(match[1]) if match else 0.0
    except ValueError:
        value = 0.0
    if match is None or not 0 < value < math.inf:
        raise InputError(f"{name} is {text!r}; must be a number above 0 such as 80GiB, 312T, 300GB/s or 400Gbit/s")
    return value * _PREFIXES[(match[2] or "").upper()] * _UNITS[(match[3] or "").upper()]


def node_bandwidth(text: str, option: str, num_gpus: int) -> float:
    """Bytes per second of a whole node. Whether a figure is of a node, of a GPU or of an adapter makes a difference of
    a factor of 8 on usual nodes, so that it has to be said.

    Raises
    ------
    InputError
        When it is not said, or is no quantity.
    """
    if (of_node := text.strip().removesuffix("/node")) != text.strip():
        return parse_quantity(of_node, option)
    if (of_gpu := text.strip().removesuffix("/gpu")) != text.strip():
        return num_gpus * parse_quantity(of_gpu, option)
    if (adapters := _ADAPTERS.fullmatch(text)) is not None:
        return int(adapters[1]) * parse_quantity(adapters[2], option)
    parse_quantity(text, option)
    raise InputError(
        f"{option}: {text!r} may be of a node or of an adapter; write {text}/node, {text}/gpu (times {num_gpus}), or "
        f"{num_gpus}x{text} for {num_gpus} adapters"
    )
