"""The time that a connection goes by."""

import threading
import time
from datetime import UTC, datetime


class Clock:
    """Seconds that nobody sets, the moment of the day, and the wait for what may change."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def moment(self) -> datetime:
        """Now."""
        return datetime.now(UTC)

    def wait(self, changed: threading.Condition, limit_s: float) -> None:
        """Wait until somebody notifies, at most so long."""
        changed.wait(limit_s)
