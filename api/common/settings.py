"""Settings of the service, from the environment and the command line."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stowplan.errors import InputError

_PREFIX = "STOWPLAN_"
IN_MEMORY = ":memory:"
# What RFC 6750 allows in a header.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting `x` can be given as STOWPLAN_X.

    database: path of the SQLite file, or `:memory:`. queue_size: plans that may wait for a worker.
    deployments: folder of the deployments that the service starts; empty, the default: none, since whoever may
    deploy runs processes here. comparison_queue_size: comparisons of solvers that may wait for the one that runs.
    tasks_per_worker: a worker is replaced after as many, which bounds what leaks.
    max_wait_s: cap of `Prefer: wait`. time_limit_s: of a solve, where the request names none; max_time_limit_s
    and max_threads: the most that a request may ask for. deadline_slack_s: how long a worker may take beyond the
    time limit of its solve (build, placement, check) before it is killed. shutdown_s: how long running solves may
    take to come back with their best plan when the service stops. token: what clients must send to everything under
    /v1, as `Authorization: Bearer ...`; None: nothing.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    database: str = "stowplan.sqlite"
    deployments: str = ""
    workers: int = 2
    queue_size: int = 256
    comparison_queue_size: int = 8
    tasks_per_worker: int = 1000
    max_body_bytes: int = 32 * 2**20
    max_wait_s: float = 60.0
    time_limit_s: float = 60.0
    max_time_limit_s: float = 3600.0
    max_threads: int = 8
    deadline_slack_s: float = 60.0
    heartbeat_s: float = 15.0
    shutdown_s: float = 5.0
    # Not in the text of settings, which may be logged.
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.database != IN_MEMORY and not Path(self.database).name:
            raise InputError(f"database is {self.database!r}; must be the path of a file, or {IN_MEMORY}")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InputError("token must be of letters, digits and -._~+/, not empty; leave it out to ask for none")
        if not 0 <= self.port < 2**16:
            raise InputError(f"port is {self.port}; must be 0 (any free one) to 65535")
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name != "port" and known.type in (int, float) and not 0 < value < float("inf"):
                raise InputError(f"{known.name} is {value}; must be finite and above 0")
        if self.time_limit_s > self.max_time_limit_s:
            limits = f"time_limit_s is {self.time_limit_s}, above max_time_limit_s {self.max_time_limit_s}"
            raise InputError(f"{limits}; lower the one or raise the other")

    @property
    def database_path(self) -> Path | None:
        """File of the database; None for one in memory."""
        return None if self.database == IN_MEMORY else Path(self.database)

    @property
    def deployments_folder(self) -> Path | None:
        """Folder of the deployments; None where the service deploys nothing."""
        return Path(self.deployments).resolve() if self.deployments else None


def setting_variables() -> list[str]:
    """Names of all variables."""
    return [_PREFIX + field.name.upper() for field in fields(Settings)]


def read_settings(overrides: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment; `overrides` (from the command line; None: not given) win.

    Raises
    ------
    InputError
        When a variable cannot be read or STOWPLAN_* names no setting.
    """
    kinds = {field.name: field.type for field in fields(Settings)}
    values: dict[str, Any] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(_PREFIX):
            continue
        name = variable.removeprefix(_PREFIX).lower()
        kind = kinds.get(name)
        if kind is None:
            raise InputError(f"{variable} names no setting; the settings are {', '.join(setting_variables())}")
        values[name] = _parse(variable, text, kind)
    values.update({name: value for name, value in overrides.items() if value is not None})
    return Settings(**values)


def _parse(variable: str, text: str, kind: object) -> object:
    try:
        if kind is int:
            return int(text)
        return float(text) if kind is float else text
    except ValueError as error:
        noun = "an integer" if kind is int else "a number"
        raise InputError(f"{variable} is {text!r}; must be {noun}") from error
