"""When waiting alone changes what a plan would say. Light: imports no solver and no modelling layer."""

from collections.abc import Iterable, Iterator

from models.policy import Running, Waiting


def next_promotion_s(waiting: Iterable[Waiting], every_s: float) -> float | None:
    """Seconds until the next of the waiting jobs rises by one priority, which it does every time that it is `every_s`
    older; None when all are of the first."""
    return min(_promotions(waiting, every_s), default=None)


def next_birthday_s(waiting: Iterable[Waiting], age_s: float) -> float | None:
    """Seconds until the next of the waiting jobs is so old; None when all are."""
    return min((age_s - now_s for now_s, _ in waiting if now_s < age_s), default=None)


def next_turn_s(waiting: Iterable[Waiting], running: Iterable[Running], turn_s: float) -> float | None:
    """How long a turn is, where jobs may take turns; None for one alone."""
    num_running = sum(1 for _ in running)
    takes_turns = num_running > 1 or (num_running == 1 and any(True for _ in waiting))
    return turn_s if takes_turns else None


def _promotions(waiting: Iterable[Waiting], every_s: float) -> Iterator[float]:
    for age_s, priority in waiting:
        risen = int(age_s // every_s)
        if priority - risen > 1:
            yield (risen + 1) * every_s - age_s
