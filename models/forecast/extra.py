"""Whether what only forecasters need is there; everything else runs without it."""

from importlib.util import find_spec

from stowplan.errors import ExtraMissingError


def require_lightgbm() -> None:
    """Refuse where LightGBM is not installed.

    Raises
    ------
    ExtraMissingError
        Says what to install.
    """
    if find_spec("lightgbm") is None:
        raise ExtraMissingError(
            "forecasts need lightgbm; install the extra: pip install -e '.[forecast]' in a checkout"
        )
