"""What the shell is told."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell is told."""

    PLANNED = 0
    OUR_FAULT = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    NO_SOLUTION = 4
    ILLEGAL = 5
    QUIT = 130


EPILOG = (
    "Exit codes: 0 a plan (or nothing wrong), 1 our fault, 2 bad input, 3 infeasible, 4 no solution within the limit, "
    "5 illegal placement, 130 quit by Ctrl-C."
)
