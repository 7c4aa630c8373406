"""Tokens of clients: made, shown once, looked up by their hashes, revoked."""

import hashlib
import hmac
import secrets
import time

from api.common.asking import ANYBODY, OPERATOR, Caller, Role
from api.common.errors import NotFoundError, OpenServiceError, UnauthorizedError
from api.common.times import time_of
from api.schemas.token import NewTokenDoc, TokenBody, TokenDoc, TokenList, TokenPageQuery
from api.store.connection import Database
from api.store.tokens import TokenRecord, TokenStore
from stowplan.errors import InputError

TOKENS_PATH = "/v1/tokens"
_DAY_S = 86_400.0
# Tells what it is to those who find one, and to programs that look for secrets.
_PREFIX = "stow_"
_NUM_BYTES = 32
_RESERVED = frozenset({ANYBODY.client, OPERATOR.client})


class Tokens:
    """Tokens beside `operator_token`, which is the operator's and stands in no database."""

    def __init__(self, database: Database, operator_token: str | None) -> None:
        self._store = TokenStore(database)
        self._operator = None if operator_token is None else operator_token.encode()
        # None is made where nobody is asked for one, so that this holds until the service stops.
        self.asked = operator_token is not None or self._store.any()

    def caller(self, given: str | None) -> Caller:
        """Who sends this Authorization header; UnauthorizedError when nobody does whom the service knows."""
        if not self.asked:
            return ANYBODY
        if given is None:
            raise UnauthorizedError("this service asks for a token: send Authorization: Bearer <token>")
        scheme, _, credentials = given.partition(" ")
        token = credentials.strip().encode()
        if scheme.lower() != "bearer":
            raise UnauthorizedError("the token is wrong")
        # Takes as long for a wrong token as for a nearly right one.
        if self._operator is not None and hmac.compare_digest(token, self._operator):
            return OPERATOR
        # Nobody can come nearer to a hash step by step: to look for it tells nothing.
        record = self._store.find(_hash(token))
        if record is None:
            raise UnauthorizedError("the token is wrong")
        if record.revoked_at_s is not None:
            raise UnauthorizedError(f"the token was revoked at {time_of(record.revoked_at_s).isoformat()}")
        if record.expires_at_s is not None and record.expires_at_s <= time.time():
            raise UnauthorizedError(f"the token expired at {time_of(record.expires_at_s).isoformat()}")
        return Caller(client=record.client, role=record.role)

    def create(self, body: TokenBody) -> NewTokenDoc:
        """Make a token for a client.

        Raises
        ------
        InputError
            When the name of the client is taken.
        OpenServiceError
            When the service asks for none: whoever came first would shut all others out.
        """
        if not self.asked:
            raise OpenServiceError(
                "this service asks for no token, so that anybody could make one and shut all others out: start it with "
                "STOWPLAN_TOKEN, or make the first one while it is stopped (stowplan token create --database)"
            )
        return self.make(body)

    def make(self, body: TokenBody) -> NewTokenDoc:
        """Make a token for a client, whoever asks; InputError when its name is taken."""
        if body.client in _RESERVED:
            raise InputError(f"client is {body.client!r}, which stands for requests without a token of this list")
        now_s = time.time()
        record = TokenRecord(
            id=f"token-{secrets.token_hex(8)}",
            client=body.client,
            role=body.role,
            created_at_s=now_s,
            expires_at_s=None if body.expires_in_days is None else now_s + body.expires_in_days * _DAY_S,
        )
        token = _PREFIX + secrets.token_urlsafe(_NUM_BYTES)
        self._store.add(record, _hash(token.encode()))
        return NewTokenDoc(**dict(_document(record)), token=token)

    def page(self, query: TokenPageQuery) -> TokenList:
        """List tokens from the newest to the oldest."""
        # One more than asked for tells whether there is a next page.
        records = self._store.page(query.limit + 1, query.before)
        shown = records[: query.limit]
        more = f"{TOKENS_PATH}?limit={query.limit}&before={shown[-1].sequence}" if len(records) > len(shown) else None
        return TokenList(tokens=tuple(map(_document, shown)), next=more)

    def revoke(self, token_id: str) -> TokenDoc:
        """End a token from the next request on; NotFoundError when there is none."""
        if self._store.token(token_id) is None:
            raise NotFoundError(f"there is no token {token_id!r}")
        self._store.revoke(token_id, time.time())
        record = self._store.token(token_id)
        assert record is not None  # noqa: S101 - none is ever deleted
        return _document(record)


def parse_role(text: str) -> Role:
    """The role of a name; InputError when there is none."""
    try:
        return Role(text)
    except ValueError as error:
        raise InputError(f"role is {text!r}; must be one of {', '.join(Role)}") from error


def _hash(token: bytes) -> str:
    # A fast one: a random token of 256 bits cannot be guessed, as a password could.
    return hashlib.sha256(token).hexdigest()


def _document(record: TokenRecord) -> TokenDoc:
    return TokenDoc(
        id=record.id,
        client=record.client,
        role=record.role,
        created_at=time_of(record.created_at_s),
        expires_at=None if record.expires_at_s is None else time_of(record.expires_at_s),
        revoked_at=None if record.revoked_at_s is None else time_of(record.revoked_at_s),
    )
