"""Whether the packages that only the executor needs are there; the service runs without them."""

from importlib.util import find_spec

_PACKAGES = ("torch", "deepspeed")


def missing_extra() -> str | None:
    """One line that says what to install, or None when nothing is missing."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if not missing:
        return None
    return f"training needs {' and '.join(missing)}; install the extra: pip install 'stowplan[executor]'"
