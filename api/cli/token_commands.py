"""Commands below `stowplan token`: at the service that runs, or on the database of one that is stopped."""

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from api.cli.commands import command
from api.schemas.token import MAX_DAYS, ClientName, NewTokenDoc, TokenBody, TokenDoc, TokenList, TokenPageQuery
from api.store.connection import Database
from api.tokens.service import TOKENS_PATH, Tokens, parse_role
from stowplan.errors import InputError

_TOKEN = "STOWPLAN_TOKEN"  # noqa: S105 - the name of a variable
_ANSWER_S = 30.0
_MAX_ANSWER_BYTES = 2**24
_EXPIRES = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dh])")
_NEVER = "never"
_CLIENT: TypeAdapter[str] = TypeAdapter(ClientName)

_Url = Annotated[
    str | None,
    typer.Option(
        "--url", help=f"Service that runs, such as http://127.0.0.1:8080; {_TOKEN} has the token of an admin."
    ),
]
_File = Annotated[Path | None, typer.Option("--database", help="SQLite file of a service that is stopped.")]


@command("create")
def create_command(
    client: Annotated[str, typer.Argument(metavar="NAME", help="Client that gets it; it may have several.")],
    role: Annotated[str, typer.Option(help="viewer, planner, deployer or admin; each may what those before it may.")],
    expires: Annotated[str, typer.Option(help="When it ends: 90d, 12h or never.")] = "90d",
    url: _Url = None,
    database: _File = None,
) -> None:
    """Make a token for a client, and print it, once.

    The service keeps a hash of it. To rotate, make the next one, hand it over, and revoke the one before: nothing is
    restarted.
    """
    try:
        _CLIENT.validate_python(client)
    except ValidationError as error:
        raise InputError(
            f"NAME is {client!r}; must be 1 to 64 letters, digits and . _ @ -, the first a letter or digit"
        ) from error
    body = TokenBody(client=client, role=parse_role(role), expires_in_days=_days(expires))
    with _tokens(url, database) as tokens:
        made = tokens.make(body)
    end = "never" if made.expires_at is None else f"at {made.expires_at:%Y-%m-%d %H:%M}Z"
    typer.echo(f"{made.id} of {made.client} ({made.role}) expires {end}; it is not shown again:", err=True)
    typer.echo(made.token)


@command("list")
def list_command(url: _Url = None, database: _File = None) -> None:
    """List all tokens without what they are, newest first."""
    with _tokens(url, database) as tokens:
        query = TokenPageQuery(limit=500)
        while True:
            page = tokens.page(query)
            for token in page.tokens:
                typer.echo(_line(token))
            if page.next is None:
                return
            following = urllib.parse.parse_qs(urllib.parse.urlsplit(page.next).query)
            query = TokenPageQuery(limit=500, before=int(following["before"][0]))


@command("revoke")
def revoke_command(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `stowplan token list` has it.")],
    url: _Url = None,
    database: _File = None,
) -> None:
    """End a token from the next request on."""
    with _tokens(url, database) as tokens:
        typer.echo(_line(tokens.revoke(token_id)))


class _Remote:
    """Tokens of a service that runs."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def make(self, body: TokenBody) -> NewTokenDoc:
        return NewTokenDoc.model_validate_json(self._answer("POST", TOKENS_PATH, body.model_dump_json().encode()))

    def page(self, query: TokenPageQuery) -> TokenList:
        before = "" if query.before is None else f"&before={query.before}"
        return TokenList.model_validate_json(self._answer("GET", f"{TOKENS_PATH}?limit={query.limit}{before}"))

    def revoke(self, token_id: str) -> TokenDoc:
        path = f"{TOKENS_PATH}/{urllib.parse.quote(token_id, safe='')}:revoke"
        return TokenDoc.model_validate_json(self._answer("POST", path))

    def _answer(self, method: str, path: str, body: bytes | None = None) -> bytes:
        token = os.environ.get(_TOKEN)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self._url + path, body, headers, method=method)  # noqa: S310 - see _tokens
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                read: bytes = answer.read(_MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            raise InputError(f"{self._url} refuses ({error.code}): {_detail(error.read(_MAX_ANSWER_BYTES))}") from error
        except OSError as error:
            raise InputError(f"{self._url} does not answer: {error}") from error
        return read


@contextmanager
def _tokens(url: str | None, database: Path | None) -> Iterator[_Remote | Tokens]:
    if (url is None) == (database is None):
        raise InputError("say either --url (a service that runs) or --database (one that is stopped)")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"--url is {url!r}; must begin with http:// or https://")
        yield _Remote(url)
    elif database is not None:
        if not database.is_file():
            raise InputError(f"there is no database {database}")
        with closing(Database(database)) as opened:
            yield Tokens(opened, None)


def _days(text: str) -> float | None:
    if text == _NEVER:
        return None
    found = _EXPIRES.fullmatch(text)
    days = 0.0 if found is None else float(found[1]) / (24.0 if found[2] == "h" else 1.0)
    if not 0 < days <= MAX_DAYS:
        raise InputError(f"--expires is {text!r}; must be like 90d or 12h, at most {MAX_DAYS:.0f}d, or {_NEVER}")
    return days


def _line(token: TokenDoc) -> str:
    if token.revoked_at is not None:
        end = f"revoked {token.revoked_at:%Y-%m-%d %H:%M}Z"
    else:
        end = "never expires" if token.expires_at is None else f"expires {token.expires_at:%Y-%m-%d %H:%M}Z"
    return f"{token.id}  {token.client}  {token.role}  made {token.created_at:%Y-%m-%d %H:%M}Z  {end}"


def _detail(body: bytes) -> Any:
    try:
        return json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
