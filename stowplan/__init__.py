"""What every room may know: the version and the error tree."""

from importlib.metadata import version

__version__ = version("stowplan")
