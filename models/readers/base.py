"""What all readers of models share: the model that they make, and reading with all faults at once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.numerics import Numerics
from models.performance.iteration.model_issues import model_issues
from models.pipeline_schedule import PipelineSchedule
from models.transformer import MAX_TOKENS, Transformer
from stowplan.errors import InputError, Issue, pointer_of
from stowplan.tables import whole

# How long sequences are taken to be where a file says only how long they may be.
LONGEST_ASSUMED = 8192
MAX_DEGREE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """The 3D plan that a file runs; None where it does not say. `layers`: of each stage, None: spread evenly. `cp`,
    `ep`: context and expert parallelism. `recomputed_layers`: see `Degrees`."""

    pp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int | None = None
    num_gpus: int | None = None
    layers: tuple[int, ...] | None = None
    virtual_stages: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    recomputed_layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a file says and nobody here goes by, or what had to be assumed; a sentence for people.

    field: of `Transformer`; there is nothing to tell where it is given beside the file. None for all else.
    """

    text: str
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignModel:
    """A model as a file describes it.

    `fields`: those of `Transformer` that the file states, also of training. `plan`: None where the format has none.
    `numerics`: what else it computes with; None where the format does not say it, or asks for what `not_trained` names.
    """

    fields: Mapping[str, Any]
    plan: FilePlan | None = None
    notes: tuple[Note, ...] = ()
    numerics: Numerics | None = None
    not_trained: tuple[Issue, ...] = ()

    def transformer(self, **given: Any) -> Transformer:
        """The model, with what is given in place of what the file says; None gives nothing.

        Raises
        ------
        InputError
            When it is none.
        """
        fields = {**self.fields, **{name: value for name, value in given.items() if value is not None}}
        return Transformer(**{"global_batch": fields.get("micro_batch", 1), **fields})


@dataclass(slots=True)
class Reading:
    """Values of one table of a document; what is wrong is collected, and harmless values stand in for it until
    `finish`. `pointer`: of the table."""

    values: Mapping[str, Any]
    pointer: str = ""
    issues: list[Issue] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def given(self, key: str) -> Any:
        """The value as it stands there; None where it is null or missing."""
        return self.values.get(key)

    def key(self, names: Sequence[str]) -> str:
        """The first of several names of the same thing that has a value, else the first."""
        return next((name for name in names if self.given(name) is not None), names[0])

    def number(self, *names: str, most: int, least: int = 1, default: int | None = None) -> int:
        """A whole number; one that is missing is a fault unless there is a default."""
        key = self.key(names)
        value = self.given(key)
        if value is None and default is not None:
            return default
        if value is None:
            others = f" (or {' or '.join(names[1:])})" if len(names) > 1 else ""
            self.refuse(key, f"is missing{others}; a whole number from {least} on", code="missing_key")
            return least
        if isinstance(value, str) and value.startswith("$"):
            self.refuse(key, f"is {value[:60]}, which nothing in the file sets; write the number")
            return least
        try:
            number: int = whole(most, least)(value)
        except InputError as error:
            self.refuse(key, error.detail)
            return least
        return number

    def optional(self, *names: str, most: int) -> int | None:
        """A whole number from 1 on; None where it is missing."""
        return None if self.given(self.key(names)) is None else self.number(*names, most=most)

    def real(self, key: str, *, default: float | None = None) -> float:
        """A number above 0; one that is missing is a fault unless there is a default."""
        value = self.given(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            self.refuse(key, "is missing" if value is None else f"is {_shown(value)}; must be a number above 0")
            return 1.0
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.given(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, f"is {_shown(value)}; must be true or false")
            return default
        return value

    def word(self, key: str, choices: Mapping[str, Any], *, default: str) -> Any:
        """What one of the words stands for, whatever their case."""
        value = self.given(key)
        word = default if value is None else str(value).lower()
        if word not in choices:
            self.refuse(key, f"is {_shown(value)}; known here: {', '.join(choices)}", code="unsupported")
            word = default
        return choices[word]

    def section(self, key: str) -> "Reading":
        """The table of a key, empty where there is none; faults and notes go to the same lists."""
        value = self.given(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, f"is {_shown(value)}; must be a table of keys and values")
            value = None
        return Reading(value or {}, self.pointer + pointer_of(key), self.issues, self.notes)

    def refuse(self, key: str, detail: str, *, code: str = "invalid_entry") -> None:
        """Keep a fault of a key."""
        self.issues.append(Issue(code=code, pointer=self.pointer + pointer_of(key), detail=detail))

    def refuse_if(self, key: str, what: str, *, wrong: bool) -> None:
        """Keep a fault of a key that asks for something that no description here has."""
        if wrong:
            detail = f"is {_shown(self.given(key))}: {what} has no place in descriptions of models here"
            self.refuse(key, detail, code="unsupported")

    def note(self, text: str, *, of: str | None = None) -> None:
        """Keep something to tell, of a field of `Transformer` where it is about one."""
        self.notes.append(Note(text=text, field=of))

    def finish(self, fields: Mapping[str, Any], plan: FilePlan | None = None) -> ForeignModel:
        """The model, whose fields without a value are left out.

        Raises
        ------
        InputError
            When anything is wrong; pointers are relative to the document.
        """
        noun = "fault" if len(self.issues) == 1 else "faults"
        if self.issues:
            raise InputError(f"the description of the model has {len(self.issues)} {noun}", self.issues)
        stated = {name: value for name, value in fields.items() if value is not None}
        model = ForeignModel(fields=stated, plan=plan, notes=tuple(self.notes))
        if found := model_issues(model.transformer(), ""):
            raise InputError("describes no model that can be planned; the fields are those of Stowplan", found)
        return model


def assumed_length(longest: int, reading: Reading, original: int | None = None) -> int:
    """Tokens of a sequence where the file says only how many there may be."""
    length = min(longest, original or longest, LONGEST_ASSUMED)
    reading.note(
        f"sequences of {length:,} tokens are assumed (the file says only that {longest:,} are possible); "
        "--sequence-length for another length",
        of="sequence_length",
    )
    return length


def layers_by_stage(
    parts: Sequence[int], pp: int, schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
) -> dict[str, Any]:
    """Fields of `FilePlan` from the layers of all parts in the order of the model; stage i has every pp-th of them from
    the i-th on, of zbv the i-th and the i-th from the end. None where there are no parts."""
    if not parts or len(parts) % pp:
        return {}
    if schedule is PipelineSchedule.ZBV:
        parts = [*parts[:pp], *reversed(parts[pp:])]
    return {"layers": tuple(sum(parts[i::pp]) for i in range(pp)), "virtual_stages": len(parts) // pp}


def interval_of(marks: Sequence[bool]) -> int | None:
    """How many layers there are from one that is marked to the next, when just the last of every so many is; 0 when
    none is, None when there is no such number."""
    if True not in marks:
        return 0
    interval = list(marks).index(True) + 1
    return interval if all(mark == ((k + 1) % interval == 0) for k, mark in enumerate(marks)) else None


def token_count(value: object) -> bool:
    """Whether a value is a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
