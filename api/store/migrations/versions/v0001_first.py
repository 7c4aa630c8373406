"""Tables as versions made them that had no migrations: their databases begin here, and new ones never have it."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing: the tables are there."""
