"""Hostlist expressions, as Slurm and its relatives write them.

`n[001-003,20],login` is n001, n002, n003, n20, login. Several bracket groups multiply, the last one fastest:
`r[1-2]n[1-2]` is r1n1, r1n2, r2n1, r2n2. The lower end of a range gives the width to which numbers are padded.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product

MAX_NAMES = 65_536  # per expression; keeps n[0-999999999999] from filling the memory

_TERM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
# More digits than the reader takes are no number to count with.
_NUMBER = re.compile(r"(?<!\d)(\d{1,18})(?!\d)", re.ASCII)
# Places of numbers among the words around them, counted from the end.
_LAST, _LAST_BUT_ONE = -2, -4
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


def fold_hostlist(names: Iterable[str]) -> str:
    """Write names as an expression that stands for exactly these, in this order, duplicates kept.

    What stands there Slurm reads: it takes no brackets in front of further letters (n[1-2]-ib), and has the names of
    three brackets in an order of its own. So the last number of names that end with one is folded, and the one before
    it, as in `r[1-2]n[01-16]`. `sorted(names, key=hostlist_order)` makes it shortest.
    """
    # Of every name the words around its numbers, and the numbers.
    terms: Iterable[tuple[str, ...]] = (tuple(_NUMBER.split(name)) for name in names)
    for place in (_LAST, _LAST_BUT_ONE):
        terms = _folded(terms, place)
    return ",".join("".join(term) for term in terms)


def hostlist_order(name: str) -> tuple[tuple[str, int, str], ...]:
    """Key that sorts names by the numbers in them: n2 is before n10."""
    parts = _NUMBER.split(name)
    numbers = [*parts[1::2], ""]
    return tuple((word, int(number or -1), number) for word, number in zip(parts[::2], numbers, strict=True))


def _folded(terms: Iterable[tuple[str, ...]], place: int) -> Iterator[tuple[str, ...]]:
    """With one term for neighbours that differ in the number at a place only, which is counted from the end."""

    def others(term: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        ends_with_number = len(term) > -place and not term[-1]
        return (term[:place], term[place + 1 :]) if ends_with_number else None

    for around, group in groupby(terms, others):
        alike = list(group)
        if around is None or len(alike) == 1:
            yield from alike
            continue
        before, behind = around
        if len(behind) > 1 and not behind[1].startswith("["):
            behind = (behind[0], f"[{behind[1]}]", "")
        yield (*before, f"[{','.join(_ranges(term[place] for term in alike))}]", *behind)


def _ranges(numbers: Iterable[str]) -> list[str]:
    """Numbers, with those that follow one another as a range."""
    ranges: list[list[str]] = []
    for number in numbers:
        if ranges and number == f"{int(ranges[-1][1]) + 1:0{len(ranges[-1][0])}d}":
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [low if low == high else f"{low}-{high}" for low, high in ranges]


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
