"""The audit log as clients see it."""

from urllib.parse import urlencode

from api.common.asking import Role
from api.common.times import time_of
from api.schemas.token import AuditEntryDoc, AuditList, AuditPageQuery
from api.store.audit import AuditEntry, AuditLog

AUDIT_PATH = "/v1/audit"


def audit_page(log: AuditLog, query: AuditPageQuery) -> AuditList:
    """List entries from the newest to the oldest."""
    # One more than asked for tells whether there is a next page.
    entries = log.page(query.limit + 1, query.before, query.client)
    shown = entries[: query.limit]
    more = None
    if len(entries) > len(shown):
        parts = {"limit": query.limit, "before": shown[-1].sequence, "client": query.client}
        more = f"{AUDIT_PATH}?{urlencode({name: part for name, part in parts.items() if part is not None})}"
    return AuditList(entries=tuple(map(_document, shown)), next=more)


def _document(entry: AuditEntry) -> AuditEntryDoc:
    return AuditEntryDoc(
        at=time_of(entry.at_s),
        client=entry.client,
        role=None if entry.role is None else Role(entry.role),
        action=entry.action,
        resource=entry.resource,
        created=entry.created,
        request_id=entry.request_id,
        status=entry.status,
    )
