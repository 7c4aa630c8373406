"""Windows of traces as commands take them."""

from stowplan.errors import InputError

_S_PER_HOUR = 3600.0


def window_seconds(text: str) -> tuple[float, float]:
    """Begin and end of `--window` in seconds.

    Raises
    ------
    InputError
        When these are not two numbers.
    """
    begin, _, end = text.partition(",")
    try:
        return float(begin) * _S_PER_HOUR, float(end) * _S_PER_HOUR
    except ValueError as error:
        raise InputError(f"--window is {text!r}; must be two hours such as 24,48") from error
