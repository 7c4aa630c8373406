"""Snapshots are stored once per content, also those of plans; long texts are compressed."""

import hashlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# Rows in memory at a time.
_BATCH = 100
_SNAPSHOT = ',"snapshot":'


def upgrade() -> None:
    """Rewrite plans and snapshots, a few rows at a time."""
    connection = op.get_bind()
    op.create_table(
        "bodies",
        sa.Column("hash", sa.String, primary_key=True),
        sa.Column("num_bytes", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    keep = sa.text("INSERT INTO bodies VALUES (:hash, :num_bytes, :data) ON CONFLICT DO NOTHING")

    def body(text: str) -> str:
        raw = text.encode()
        hash_ = hashlib.sha256(raw).hexdigest()
        connection.execute(keep, {"hash": hash_, "num_bytes": len(raw), "data": zlib.compress(raw)})
        return hash_

    op.drop_index("ix_plans_status", "plans")
    op.rename_table("plans", "plans_0001")
    plans = op.create_table(
        "plans",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("policy", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False, index=True),
        sa.Column("queued_at_s", sa.Float, nullable=False),
        sa.Column("building_at_s", sa.Float),
        sa.Column("solving_at_s", sa.Float),
        sa.Column("finished_at_s", sa.Float, index=True),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("snapshot_hash", sa.String, nullable=False, index=True),
        sa.Column("input_hash", sa.String, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.String, unique=True),
        sa.Column("objective", sa.Float),
        sa.Column("bound", sa.Float),
        sa.Column("relative_gap", sa.Float),
        sa.Column("outcome", sa.LargeBinary),
        sa.Column("timings", sa.Text, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("events", sa.LargeBinary),
        sqlite_autoincrement=True,
    )
    for row in _rows(connection, "plans_0001", "sequence"):
        rest, snapshot = _parts(row.pop("input"))
        row |= {"request": rest, "snapshot_hash": body(snapshot)}
        row |= {name: _compressed(row[name]) for name in ("outcome", "events")}
        connection.execute(sa.insert(plans).values(**row))
    # The sequence of a plan that was deleted is not given out again.
    connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = 'plans'"))
    connection.execute(sa.text("UPDATE sqlite_sequence SET name = 'plans' WHERE name = 'plans_0001'"))
    op.drop_table("plans_0001")

    op.rename_table("snapshots", "snapshots_0001")
    snapshots = op.create_table(
        "snapshots",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("created_at_s", sa.Float, nullable=False),
        sa.Column("body_hash", sa.String, nullable=False, index=True),
    )
    for row in _rows(connection, "snapshots_0001", "id"):
        row["body_hash"] = body(row.pop("document"))
        connection.execute(sa.insert(snapshots).values(**row))
    op.drop_table("snapshots_0001")


def _rows(connection: sa.Connection, table: str, key: str) -> Iterator[dict[str, Any]]:
    """Rows in the order of a key, those behind the last one that was seen at a time."""
    last: Any = None
    while True:
        behind = "" if last is None else f"WHERE {key} > :last"
        # Names of this file.
        query = sa.text(f"SELECT * FROM {table} {behind} ORDER BY {key} LIMIT {_BATCH}")  # noqa: S608 - see above
        rows = connection.execute(query, {} if last is None else {"last": last}).mappings().all()
        for row in rows:
            yield dict(row)
        if len(rows) < _BATCH:
            return
        last = rows[-1][key]


def _parts(text: str) -> tuple[str, str]:
    """A request without its snapshot, and the snapshot, as they were written: the snapshot behind everything else."""
    whole = json.loads(text)
    snapshot = whole.pop("snapshot")
    start = text.find(_SNAPSHOT)
    while start >= 0:
        try:
            if json.loads(text[:start] + "}") == whole:
                return text[:start] + "}", text[start + len(_SNAPSHOT) : -1]
        except json.JSONDecodeError:
            # Within another field.
            pass
        start = text.find(_SNAPSHOT, start + 1)
    return json.dumps(whole), json.dumps(snapshot)


def _compressed(text: str | None) -> bytes | None:
    return None if text is None else zlib.compress(text.encode())
