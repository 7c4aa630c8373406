"""Hostlist expressions, as Slurm and its relatives write them.

`n[001-003,20],login` is n001, n002, n003, n20, login. Several bracket groups multiply, the last one fastest:
`r[1-2]n[1-2]` is r1n1, r1n2, r2n1, r2n2. The lower end of a range gives the width to which numbers are padded.
"""

import math
import re
from itertools import product

MAX_NAMES = 65_536  # per expression; keeps n[0-999999999999] from filling the memory

_TERM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_LITERAL = re.compile(r"[^\s\"'=#\\\[\],]+")


def expand_hostlist(expression: str) -> list[str]:
    """Expand an expression to its names, in the order written, duplicates kept.

    Raises
    ------
    ValueError
        When the expression is malformed or stands for more than `MAX_NAMES` names; says what is wrong.
    """
    names: list[str] = []
    for term in _terms(expression):
        choices = [
            _literal(literal, expression) if literal else _numbers(group, expression)
            for group, literal in _PART.findall(term)
        ]
        if len(names) + math.prod(len(choice) for choice in choices) > MAX_NAMES:
            raise ValueError(f"hostlist {expression!r} stands for more than {MAX_NAMES} names")
        names += ["".join(parts) for parts in product(*choices)]
    return names


def _terms(expression: str) -> list[str]:
    """Split at the commas outside brackets."""
    terms = []
    position = 0
    while True:
        match = _TERM.match(expression, position)
        if match is None:
            at = expression[position:]
            reason = "unbalanced or nested brackets" if at.startswith(("[", "]")) else "an empty name"
            raise ValueError(f"hostlist {expression!r} has {reason} at character {position + 1}")
        terms.append(match.group())
        position = match.end()
        if position == len(expression):
            return terms
        if expression[position] != ",":
            raise ValueError(f"hostlist {expression!r} has unbalanced or nested brackets at character {position + 1}")
        position += 1


def _literal(literal: str, expression: str) -> list[str]:
    if not _LITERAL.fullmatch(literal):
        raise ValueError(f"hostlist {expression!r}: {literal!r} cannot be part of a name")
    return [literal]


def _numbers(group: str, expression: str) -> list[str]:
    """Expand what stands between two brackets."""
    numbers: list[str] = []
    for item in group.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise ValueError(f"hostlist {expression!r}: {item!r} is neither a number nor a range such as 01-16")
        low, high = match.group(1), match.group(2) or match.group(1)
        if len(low) > 18 or len(high) > 18:
            raise ValueError(f"hostlist {expression!r}: the numbers of {item!r} are too long")
        if int(high) < int(low):
            raise ValueError(f"hostlist {expression!r}: the range {item!r} runs backwards")
        if len(numbers) + int(high) - int(low) >= MAX_NAMES:
            raise ValueError(f"hostlist {expression!r} stands for more than {MAX_NAMES} names")
        numbers += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return numbers
