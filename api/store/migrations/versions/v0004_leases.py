"""Leases: which service has what is not final, in place of two counters of plans."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

# SQLite counts in INTEGER alone.
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_FINAL = "'succeeded', 'infeasible', 'timed_out', 'canceled', 'interrupted', 'failed'"
_LEASE = "INSERT INTO leases (resource_id, collection, owner, epoch, since_s, wants_end, is_begun, times_taken_up, "
_LEASE += "times_begun_again) SELECT {id}, '{collection}', '', {epoch}, 0, {no}, {no}, {taken}, {begun} FROM {table} "


def upgrade() -> None:
    """Add the tables; what is not final belongs to nobody yet."""
    op.create_table(
        "leases",
        sa.Column("resource_id", sa.String, primary_key=True),
        sa.Column("collection", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False, index=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("since_s", sa.Float, nullable=False),
        sa.Column("wants_end", sa.Boolean, nullable=False),
        sa.Column("client", sa.String),
        sa.Column("due_s", sa.Float),
        sa.Column("is_begun", sa.Boolean, nullable=False),
        sa.Column("times_taken_up", sa.Integer, nullable=False),
        sa.Column("times_begun_again", sa.Integer, nullable=False),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("seen_at_s", sa.Float, nullable=False),
        sa.Column("room", sa.Integer, nullable=False),
    )
    op.create_table(
        "plan_events",
        sa.Column("plan_id", sa.String, primary_key=True),
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("event", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    taken, begun = (
        f"coalesce((SELECT times FROM {table} WHERE plan_id = plans.id), 0)"  # noqa: S608 - names of ours
        for table in ("taken_up_plans", "plans_begun_again")
    )
    # Ids of events go on above those of the processes before.
    _own("plans", "id", "plans", f"status NOT IN ({_FINAL})", taken, begun)
    for collection, key in (("comparisons", "id"), ("replays", "id"), ("forecasters", "'forecaster/' || name")):
        _own(collection, key, collection, "NOT final", "0", "0")
    op.drop_table("taken_up_plans")
    op.drop_table("plans_begun_again")


def _own(collection: str, key: str, table: str, condition: str, taken: str, begun: str) -> None:
    no = "false" if op.get_bind().dialect.name == "postgresql" else "0"
    values = {"id": key, "collection": collection, "epoch": f"1 + {taken}", "taken": taken, "begun": begun}
    op.execute(_LEASE.format(**values, table=table, no=no) + f"WHERE {condition}")
