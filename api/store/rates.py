"""How often clients ask all services on one database together.

A row for each client says when it may send all its requests at once again, and each request moves that by the time in
which one comes back (the generic cell rate algorithm, which is a bucket of tokens in one number). A statement is a
transaction of its own, beside the lock of those that write: it keeps nobody waiting but the same client.
"""

from sqlalchemy import bindparam, case, select, update

from api.store.connection import Database
from api.store.dialects.statements import Now, add_new
from api.store.tables import RATES

# Each but the last finds that it may be counted by now.
_TRIES = 5
_SOON_S = 0.01


class SharedRates:
    """Requests of clients: `per_s` every second on average, `burst` at once."""

    def __init__(self, database: Database, per_s: float, burst: float) -> None:
        self._database = database
        each_s, ahead_s = 1 / per_s, (burst - 1) / per_s
        # Made once: to make a statement takes longer than to carry it out.
        mine = RATES.c.client == bindparam("of")
        since_s = case((RATES.c.full_at_s > Now(), RATES.c.full_at_s), else_=Now())
        counted = update(RATES).where(mine, RATES.c.full_at_s <= Now() + ahead_s)
        self._counted = counted.values(full_at_s=since_s + each_s)
        self._left_s = select(RATES.c.full_at_s - Now() - ahead_s).where(mine)

    def wait_s(self, client: str) -> float:
        """Count a request and give 0; or count none, and give the seconds until there may be one."""
        asked = {"of": client}
        with self._database.aside() as connection:
            for _ in range(_TRIES):
                if connection.execute(self._counted, asked).rowcount:
                    return 0.0
                left_s = connection.scalar(self._left_s, asked)
                if left_s is None:
                    # Its first request; nobody deletes the row again.
                    add_new(connection, RATES, {"client": client, "full_at_s": 0.0})
                elif left_s > 0:
                    return float(left_s)
                # Else it has come since, or the row has.
        return _SOON_S
