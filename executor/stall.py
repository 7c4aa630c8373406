"""What a training waited for between two runs, by part."""

from dataclasses import dataclass, fields

from executor.timeline import Activity, Span, Start

_PARTS = {
    Activity.IMPORTS: "imports_s",
    Activity.MEETING: "meeting_s",
    Activity.BUILDING: "building_s",
    Activity.WAITING: "handover_s",
    Activity.TRANSFER: "transfer_s",
    Activity.CONVERSION: "conversion_s",
    Activity.LOADING: "loading_s",
}
# Shorter parts are of no interest to a reader.
_NOTED_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Seconds from the end of a run's last step to the beginning of the first one of the next run, by what was done.

    `transfer_s`: until the next run has the state from the ranks of the run before, or that has failed, and computes
    with it. `saving_s`: until the last checkpoint of the run before is written. `handover_s`: until the next run, which
    was prepared, is let go: the one before leaves its devices, and that is seen. `launch_s`: until rank 0 of the next
    run is there, where it was not: agents, a scheduler, the interpreter. The others as in `Activity`; what a run did
    before the stall began is no part of it. `other_s`: what belongs to none.
    """

    transfer_s: float = 0.0
    saving_s: float = 0.0
    handover_s: float = 0.0
    launch_s: float = 0.0
    imports_s: float = 0.0
    meeting_s: float = 0.0
    building_s: float = 0.0
    conversion_s: float = 0.0
    loading_s: float = 0.0
    other_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All parts."""
        return float(sum(getattr(self, field.name) for field in fields(self)))

    def described(self) -> str:
        """The parts that took a while, the longest first."""
        parts = {field.name.removesuffix("_s"): getattr(self, field.name) for field in fields(self)}
        noted = sorted((name for name in parts if parts[name] >= _NOTED_S), key=lambda name: -parts[name])
        return ", ".join(f"{name} {parts[name]:.2f} s" for name in noted)


def stall_between(from_s: float, to_s: float, saving: Span | None, start: Start, handing: Span | None = None) -> Stall:
    """Parts of a stall from `from_s` to `to_s`, since 1970; they add up to its length.

    Hosts may have set their clocks otherwise: nothing is counted outside the stall, nor twice.

    Parameters
    ----------
    saving
        Of the last checkpoint before; None where none was written at the end.
    start
        Of the next run.
    handing
        Over of the state, by the run before; None where it did not try.
    """
    to_s = max(from_s, to_s)
    at_s = from_s
    parts: dict[str, float] = {}
    ends = [(span.to_s, name) for name, span in (("transfer_s", handing), ("saving_s", saving)) if span is not None]
    for ends_s, name in sorted(ends):
        ends_s = min(max(at_s, ends_s), to_s)
        parts[name], at_s = ends_s - at_s, ends_s
    begins_s = min(max(at_s, start.spans[0].from_s), to_s) if start.spans else at_s
    parts["launch_s"] = begins_s - at_s
    at_s = begins_s
    for span in start.spans:
        name, ends_s = _PARTS[span.activity], min(max(at_s, span.to_s), to_s)
        parts[name] = parts.get(name, 0.0) + ends_s - at_s
        at_s = ends_s
    return Stall(**parts, other_s=max(0.0, to_s - from_s - sum(parts.values())))
