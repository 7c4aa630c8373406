"""Names of rows and columns for people: unique, never missing."""

from collections.abc import Iterable

from solver.problem import MatrixProblem


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Append `~2`, `~3`, ... to repeated names."""
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}~{count}"
        taken.add(candidate)
        result.append(candidate)
    return tuple(result)


def row_name(problem: MatrixProblem, row: int) -> str:
    """Name of a row, or its position where the problem has no names."""
    return problem.row_names[row] if problem.row_names else f"row {row}"


def column_name(problem: MatrixProblem, column: int) -> str:
    """Name of a column, or its position where the problem has no names."""
    return problem.column_names[column] if problem.column_names else f"column {column}"
