"""Times as clients see them."""

from datetime import UTC, datetime


def time_of(unix_s: float) -> datetime:
    """Give the time in UTC."""
    return datetime.fromtimestamp(unix_s, UTC)
