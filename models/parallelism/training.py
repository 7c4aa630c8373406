"""Checkpointing and ZeRO stage that a job leaves to the search. Light: imports no planner."""

from dataclasses import dataclass, replace

from models.software import FEATURES
from models.transformer import Checkpointing, JobModel, Transformer
from stowplan.errors import InputError

# What fits most often and costs least comes first, for searches that end early.
ALL_CHECKPOINTING = (Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL)
ALL_ZERO_STAGES = (1, 0, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a search may choose; empty: as the model says."""

    checkpointing: tuple[Checkpointing, ...] = ()
    zero_stages: tuple[int, ...] = ()

    @property
    def are_open(self) -> bool:
        """Whether anything is left to the search."""
        return bool(self.checkpointing or self.zero_stages)

    def by_stage(self, model: JobModel) -> tuple[JobModel, ...]:
        """The model in every way in which it may be trained whose stages differ in what they recompute."""
        if not self.checkpointing or not FEATURES[model.software].recomputes_by_stage:
            return ()
        return replace(self, checkpointing=(Checkpointing.NONE,)).models(model)

    def models(self, model: JobModel) -> tuple[JobModel, ...]:
        """The model in every way in which it may be trained.

        Raises
        ------
        InputError
            When checkpointing is open of a model that is a list of operators.
        """
        ways: list[JobModel] = [model]
        if self.zero_stages:
            ways = [replace(way, zero_stage=stage) for stage in self.zero_stages for way in ways]
        if not self.checkpointing:
            return tuple(ways)
        if not isinstance(model, Transformer):
            raise InputError("checkpointing can be chosen of transformers only; operators say what they keep")
        return tuple(
            replace(way, checkpointing=kind)
            for way in ways
            for kind in self.checkpointing
            if isinstance(way, Transformer)
        )

    def admits(self, model: JobModel, training: "Training | None") -> bool:
        """Whether a plan of the model may train in this way; None: as the model says, which must say it then."""
        if training is None:
            return not self.are_open
        return any(Training.of(way) == training for way in self.models(model))


# Nothing is open.
AS_THE_MODEL_SAYS = Choices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a plan trains; `checkpointing` None: the model is a list of operators. `by_stage`: stages of the plan have a
    checkpointing of their own."""

    checkpointing: Checkpointing | None
    zero_stage: int
    by_stage: bool = False

    @classmethod
    def of(cls, model: JobModel, *, by_stage: bool = False) -> "Training":
        """What a model says."""
        kind = model.checkpointing if isinstance(model, Transformer) else None
        return cls(checkpointing=kind, zero_stage=model.zero_stage, by_stage=by_stage)

    @property
    def words(self) -> str:
        """`full checkpointing, ZeRO 1`."""
        zero = f"ZeRO {self.zero_stage}"
        if self.by_stage:
            return f"checkpointing by stage, {zero}"
        return zero if self.checkpointing is None else f"{self.checkpointing} checkpointing, {zero}"


def trained(model: JobModel, training: Training | None) -> JobModel:
    """The model as a plan trains it; None: as the model says."""
    if training is None:
        return model
    if isinstance(model, Transformer) and training.checkpointing is not None:
        model = replace(model, checkpointing=training.checkpointing)
    return replace(model, zero_stage=training.zero_stage)
