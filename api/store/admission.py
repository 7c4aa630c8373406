"""What is taken: as much as there is room for, of each client no more than its share.

Both are counted over all services that use the database, in the transaction that writes what is new.
"""

from collections.abc import Callable
from functools import partial

from api.common.asking import caller_now
from api.common.settings import Settings
from api.store.leases import Others
from solver.pool import QueueFullError

# Refuses, by raising, what has no place beside all that services have.
Admit = Callable[[Others], None]


def refuse_too_many(settings: Settings, others: Others, num_new: int) -> None:
    """Raise QueueFullError where so many new plans have no room beside those that all services have.

    Parameters
    ----------
    others
        The room of services that live; where the database knows none, this one is alone.
    """
    num_active = others.active.total()
    most = others.room or settings.queue_size + settings.workers
    if num_active + num_new > most:
        more = "" if num_new == 1 else f", and {num_new} more are asked for; it takes {most}"
        raise QueueFullError(f"{num_active} plans run or wait, which is as many as this service takes{more}")
    _refuse_beyond_share(settings, others, "plans", most, num_new)


def within_share(settings: Settings, what: str, num_waiting: int) -> Admit:
    """What refuses one more of `what` where its client has its share of those that all services take.

    Parameters
    ----------
    num_waiting
        How many may wait at each service beside the one that has its turn. Whether one has a place for it is for that
        one to say: they stay where they were accepted.
    """
    return partial(_refuse_one_more, settings, what, num_waiting + 1)


def _refuse_one_more(settings: Settings, what: str, places: int, others: Others) -> None:
    _refuse_beyond_share(settings, others, what, places * max(1, others.num_services), 1)


def _refuse_beyond_share(settings: Settings, others: Others, what: str, most: int, num_new: int) -> None:
    client, share = caller_now().client, max(1, int(most * settings.client_share))
    if (theirs := others.active[client]) + num_new > share:
        raise QueueFullError(
            f"{theirs} {what} of {client} run or wait, and {num_new} more {'is' if num_new == 1 else 'are'} asked for; "
            f"of the {most} that this service takes, a client may have {share}"
        )
