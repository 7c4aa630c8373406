"""Deployments as services tell one another of them, and how often clients have asked all of them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the tables; services tell of their deployments when they start."""
    op.create_table(
        "deployments",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("place", sa.String, nullable=False, index=True),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False, index=True),
        sa.Column("started_at_s", sa.Float, nullable=False),
        sa.Column("told_at_s", sa.Float, nullable=False),
        sa.Column("holders", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "client_rates",
        sa.Column("client", sa.String, primary_key=True),
        sa.Column("full_at_s", sa.Float, nullable=False),
    )
