"""How a training lies on its ranks: stages of a pipeline, their replicas, and the tensor ranks of each.

Every stage works on the same micro-batches; its replicas share the samples of each.
"""

from dataclasses import dataclass
from typing import NamedTuple

from executor.training_options import EngineName
from models.parallel_plan import layers_of_parts
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Checkpointing, Transformer


class Coordinates(NamedTuple):
    """Place of a rank: stage, replica, position in the tensor group."""

    pipe: int
    data: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayout:
    """One pipeline stage: `num_layers` layers, replicated over groups of `tp` ranks.

    `batches`: sequences of every micro-batch that each replica works on, one number per replica. `checkpointing`: of
    its layers, None: as the model says. `recomputed_layers`: the first so many, of every part as many, are recomputed
    in full and the others keep everything; None: all alike (`models.parallel_plan.Stage`).
    """

    num_layers: int
    tp: int
    batches: tuple[int, ...]
    checkpointing: Checkpointing | None = None
    recomputed_layers: int | None = None

    @property
    def dp(self) -> int:
        """Replicas."""
        return len(self.batches)

    @property
    def num_ranks(self) -> int:
        """Processes of the stage."""
        return self.dp * self.tp

    def interval(self, replica: int) -> tuple[int, int]:
        """First sample of a micro-batch that a replica works on, and the one behind its last."""
        start = sum(self.batches[:replica])
        return start, start + self.batches[replica]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The ranks of a model's training.

    `stages` in pipeline order; the first also holds the embedding, the last one the head. `num_micro_batches` make a
    step. `engine`: DeepSpeed runs layouts whose stages have the same degrees and whose replicas the same batch.
    `virtual_stages`: parts into which the layers of every stage are cut, for interleaved pipelines, and those whose
    `pipeline_schedule` is zero-bubble. `expert_parallel`: so many consecutive replicas of a stage have different
    experts (`models.parallel_plan`). `layers_hook`: `module:function` that gives the user's own layers
    (`executor.trainer.layers`), None for the built-in transformer.
    """

    model: Transformer
    stages: tuple[StageLayout, ...]
    num_micro_batches: int
    engine: EngineName = EngineName.DEEPSPEED
    virtual_stages: int = 1
    expert_parallel: int = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    layers_hook: str | None = None

    @property
    def pp(self) -> int:
        """Pipeline degree."""
        return len(self.stages)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage (l_i)."""
        return tuple(stage.num_layers for stage in self.stages)

    @property
    def part_layers(self) -> tuple[int, ...]:
        """Layers of each part of a stage in pipeline order."""
        return layers_of_parts(self.stage_layers, self.virtual_stages, self.pipeline_schedule)

    def parts_of(self, pipe: int) -> tuple[int, ...]:
        """Which of the parts in pipeline order a stage has."""
        if self.pipeline_schedule is PipelineSchedule.ZBV:
            return pipe, 2 * self.pp - 1 - pipe
        return tuple(range(pipe, self.pp * self.virtual_stages, self.pp))

    @property
    def last_stage(self) -> int:
        """The stage that ends the model."""
        return self.stage_of(self.pp * self.virtual_stages - 1)

    def stage_of(self, part: int) -> int:
        """Which stage has a part."""
        if self.pipeline_schedule is PipelineSchedule.ZBV:
            return min(part, 2 * self.pp - 1 - part)
        return part % self.pp

    @property
    def layer_checkpointing(self) -> tuple[Checkpointing, ...]:
        """Activation checkpointing of each layer of the model."""
        found: list[Checkpointing] = []
        for part, count in enumerate(self.part_layers):
            stage = self.stages[self.stage_of(part)]
            kind = stage.checkpointing or self.model.checkpointing
            recomputed = count
            if stage.recomputed_layers is not None:
                recomputed = stage.recomputed_layers // self.virtual_stages
            found += [kind] * recomputed + [Checkpointing.NONE] * (count - recomputed)
        return tuple(found)

    @property
    def is_symmetric(self) -> bool:
        """Whether all stages have the same degrees and all replicas the same batch."""
        return len({(stage.tp, stage.dp, batch) for stage in self.stages for batch in stage.batches}) == 1

    @property
    def num_ranks(self) -> int:
        """Processes of the run."""
        return sum(stage.num_ranks for stage in self.stages)

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch, over all replicas of a stage."""
        return sum(self.stages[0].batches)

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.micro_batch * self.num_micro_batches

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.model.sequence_length

    def coordinates(self, rank: int) -> Coordinates:
        """Place of a rank: pipe slowest, then data, tensor fastest."""
        pipe = 0
        while rank >= self.stages[pipe].num_ranks:
            rank -= self.stages[pipe].num_ranks
            pipe += 1
        return Coordinates(pipe, *divmod(rank, self.stages[pipe].tp))

    def rank_of(self, place: Coordinates) -> int:
        """Rank of a place: the inverse of `coordinates`."""
        before = sum(stage.num_ranks for stage in self.stages[: place.pipe])
        return before + place.data * self.stages[place.pipe].tp + place.tensor
