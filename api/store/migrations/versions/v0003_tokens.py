"""Tokens of clients, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# SQLite counts in INTEGER alone.
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add both tables, empty."""
    op.create_table(
        "tokens",
        sa.Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("client", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("hash", sa.String, nullable=False, unique=True),
        sa.Column("created_at_s", sa.Float, nullable=False),
        sa.Column("expires_at_s", sa.Float),
        sa.Column("revoked_at_s", sa.Float),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Float, nullable=False, index=True),
        sa.Column("client", sa.String),
        sa.Column("role", sa.String),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("resource", sa.String, nullable=False),
        sa.Column("created", sa.String),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("status", sa.Integer),
        sqlite_autoincrement=True,
    )
