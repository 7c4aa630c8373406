"""Pointers of parts become pointers of the whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from stowplan.errors import InputError, Issue


@contextmanager
def located(prefix: str) -> Iterator[None]:
    """Put `prefix` before the pointers of an InputError; one without issues becomes an issue at `prefix`."""
    try:
        yield
    except InputError as error:
        issues = [replace(issue, pointer=prefix + issue.pointer) for issue in error.issues]
        whole = Issue(code=error.code, pointer=prefix, detail=error.detail)
        raise InputError(error.detail, issues or [whole]) from error
