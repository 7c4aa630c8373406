"""Kinds of settings: types whose values are looked at when they are given, InputError for those that cannot be."""

import math
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, ValidationInfo

from stowplan.errors import InputError

IN_MEMORY = ":memory:"
# How the URL of a database on a server begins.
POSTGRESQL = "postgresql://"
LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)
# What RFC 6750 allows in a header.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_HOST_NAME = re.compile(r"[A-Za-z0-9\-._]+")


def _above_zero(value: float, info: ValidationInfo) -> float:
    if not 0 < value < math.inf:
        raise InputError(f"{info.field_name} is {value}; must be finite and above 0")
    return value


def _not_negative(value: float, info: ValidationInfo) -> float:
    if not 0 <= value < math.inf:
        raise InputError(f"{info.field_name} is {value}; must be finite and at least 0")
    return value


def _share(value: float, info: ValidationInfo) -> float:
    if not 0 < value <= 1:
        raise InputError(f"{info.field_name} is {value}; must be above 0 and at most 1")
    return value


def _port(value: int) -> int:
    if not 0 <= value < 2**16:
        raise InputError(f"port is {value}; must be 0 (any free one) to 65535")
    return value


def _database(value: str) -> str:
    if "://" in value:
        _refuse_url(value)
    elif value != IN_MEMORY and not Path(value).name:
        raise InputError(f"database is {value!r}; must be the path of a file, {IN_MEMORY}, or {POSTGRESQL}...")
    return value


def _refuse_url(url: str) -> None:
    """Raise InputError unless it names a database on PostgreSQL; the URL may hold a password, and is not said."""
    wanted = f"must be as in {POSTGRESQL}user@host:5432/name"
    if not url.startswith(POSTGRESQL):
        raise InputError(f"database is a URL that begins with {url.split('://')[0]}://; {wanted}")
    try:
        parts = urlsplit(url)
        # Reading it refuses what is no number.
        _ = parts.port
    except ValueError as error:
        raise InputError(f"database is a URL whose host or port cannot be read; {wanted}") from error
    if not parts.path.strip("/"):
        raise InputError(f"database is a URL without the name of a database; {wanted}")


def _token(value: str | None) -> str | None:
    if value is not None and not _TOKEN.fullmatch(value):
        raise InputError("token must be of letters, digits and -._~+/, not empty; leave it out to ask for none")
    return value


def _allowed_hosts(value: str) -> str:
    if value and not all(_HOST_NAME.fullmatch(name.strip()) for name in value.split(",")):
        raise InputError(f"allowed_hosts is {value!r}; must be names without scheme and port, with commas between them")
    return value


def _engine(value: str) -> str:
    if value not in ENGINES:
        raise InputError(f"engine is {value!r}; must be {' or '.join(ENGINES)}")
    return value


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if value and not (parts.scheme in ("http", "https") and parts.hostname and not parts.query):
        raise InputError(f"otlp_endpoint is {value!r}; must be the URL of a collector, as in http://127.0.0.1:4318")
    return value


Count = Annotated[int, AfterValidator(_above_zero)]
Number = Annotated[int, AfterValidator(_not_negative)]
Seconds = Annotated[float, AfterValidator(_above_zero)]
Share = Annotated[float, AfterValidator(_share)]
Rate = Annotated[float, AfterValidator(_not_negative)]
Days = Annotated[float, AfterValidator(_not_negative)]
Port = Annotated[int, AfterValidator(_port)]
Database = Annotated[str, AfterValidator(_database)]
AllowedHosts = Annotated[str, AfterValidator(_allowed_hosts)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Engine = Annotated[str, AfterValidator(_engine)]
Token = Annotated[str | None, AfterValidator(_token)]
