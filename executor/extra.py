"""Whether the packages that only the executor needs are there; the service runs without them."""

from collections.abc import Sequence
from importlib.util import find_spec

_PACKAGES = ("torch", "deepspeed", "safetensors")


def missing_extra(
    what: str = "training", packages: Sequence[str] = _PACKAGES, *, extra: str = "executor"
) -> str | None:
    """One line that says what to install for `what`, or None when nothing is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return None
    needed = " and ".join(missing)
    return f"{what} needs {needed}; install the extra: pip install -e '.[{extra}]' in a checkout"
