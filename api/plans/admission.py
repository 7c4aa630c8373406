"""Which plans are taken: as many as there is room for, of each client no more than its share."""

from api.common.asking import caller_now
from api.common.settings import Settings
from api.store.leases import Others
from solver.pool import QueueFullError


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
    client, share = caller_now().client, max(1, int(most * settings.client_share))
    if (theirs := others.active[client]) + num_new > share:
        raise QueueFullError(
            f"{theirs} plans of {client} run or wait, and {num_new} more are asked for; of the {most} that this "
            f"service takes, a client may have {share}"
        )
