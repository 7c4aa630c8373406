"""The life of a plan as spans: what a trace of its request has of it, made of times that are known anyway."""

from dataclasses import dataclass
from typing import Protocol

from api.convert.outcome import MS_PER_S
from api.schemas.plan import TimingsDoc
from api.store.records import PlanRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a plan's life, in seconds since 1970."""

    name: str
    from_s: float
    until_s: float


class PlanTraces(Protocol):
    """Who is told of plans that have ended."""

    def here(self) -> object:
        """The place in a trace to which what is asked for now belongs; for `ended`, from any thread."""

    def ended(self, asked: object, record: PlanRecord) -> None:
        """A plan is final; `asked`: what `here` gave when it was asked for, None where an earlier process was asked."""


class NoTraces:
    """Nobody traces."""

    def here(self) -> object:
        """No place."""

    def ended(self, asked: object, record: PlanRecord) -> None:
        """Nobody listens."""


def spans_of(record: PlanRecord) -> list[Span]:
    """Say how long a final plan waited, and how long each phase took.

    Workers say how long phases took, one after another, and not when: they stand before the end of the plan, where
    those of the worker that was asked last were. The word that it began comes a little later than it did.
    """
    ended_s = record.finished_at_s or record.queued_at_s
    begun_s = ended_s if record.building_at_s is None else record.building_at_s
    phases_ms = TimingsDoc.model_validate_json(record.timings).phases_ms
    from_s = max(record.queued_at_s, ended_s - sum(phases_ms.values()) / MS_PER_S)
    spans = [Span(name="queued", from_s=record.queued_at_s, until_s=min(begun_s, from_s))]
    for name, wall_ms in phases_ms.items():
        spans.append(Span(name=name, from_s=from_s, until_s=from_s + wall_ms / MS_PER_S))
        from_s = spans[-1].until_s
    return spans
