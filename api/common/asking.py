"""Who asks, for what, under which id: known to everything that a request leads to, also in other threads."""

import logging
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a client may do; each may what those before it may."""

    VIEWER = "viewer"
    PLANNER = "planner"
    DEPLOYER = "deployer"
    ADMIN = "admin"

    def covers(self, least: "Role") -> bool:
        """Whether this role is at least that one."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A client and its role."""

    client: str
    role: Role


# Whoever has STOWPLAN_TOKEN, and whoever asks a service that asks for no token.
OPERATOR = Caller(client="operator", role=Role.ADMIN)
ANYBODY = Caller(client="anybody", role=Role.ADMIN)


@dataclass(slots=True, kw_only=True)
class Asking:
    """One request. `caller` and `action` (the name of the route) are known from the moment on when they are found out;
    `is_noted`: the audit log has it already."""

    id: str
    path: str
    caller: Caller | None = None
    action: str | None = None
    is_noted: bool = False


ASKING: ContextVar[Asking | None] = ContextVar("asking", default=None)


def caller_now() -> Caller:
    """Who asks; whoever runs the service, where no request leads here."""
    asking = ASKING.get()
    return OPERATOR if asking is None or asking.caller is None else asking.caller


def request_id_now() -> str | None:
    """Id of the request that leads here; None where none does."""
    asking = ASKING.get()
    return None if asking is None else asking.id


class RequestIds(logging.Filter):
    """Gives every line of a log `request`: the id of the request that led to it, in brackets, or nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every line through."""
        id_ = request_id_now()
        record.request = "" if id_ is None else f" [{id_}]"
        return True
