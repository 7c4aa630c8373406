"""What every room may know: the version and the error tree."""

__version__: str


def __getattr__(name: str) -> str:
    # Reading what is installed costs a tenth of the start of a command, and few commands tell their version.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    globals()[name] = found = version("stowplan")
    return found
