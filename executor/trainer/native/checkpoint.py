"""Checkpoints of `torch.distributed.checkpoint`, which any layout reads: weights and moments of whole parameters.

A rank writes and reads the boxes of parameters whose optimiser state it has, so that nothing is gathered. (Shards of
ZeRO-1 are intervals of many parameters, which no DTensor describes.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from executor.redeployment import Region
from executor.trainer.native.boxes import boxes, whole_shape
from executor.trainer.native.update import Optimised
from stowplan.errors import WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A box of a parameter or moment. `counts`: whether this rank is the one that writes it."""

    name: str
    chunk: ChunkStorageMetadata
    shape: torch.Size
    values: torch.Tensor
    counts: bool

    @property
    def index(self) -> MetadataIndex:
        """Its key in the checkpoint."""
        return MetadataIndex(self.name, self.chunk.offsets)

    @property
    def region(self) -> Region:
        """Where it lies in the whole."""
        (top, left), (rows, columns) = self.chunk.offsets, self.chunk.sizes
        return Region(tensor=self.name, top=top, bottom=top + rows, left=left, right=left + columns)


def pieces(optimised: Optimised, *, tensor_rank: int, tensor_degree: int) -> Iterator[_Piece]:
    """What a rank has of the state of a training, of one set of parameters."""
    flat = optimised.flat
    state = {
        "weights": flat.masters,
        "exp_avg": optimised.first_moments,
        "exp_avg_sq": optimised.second_moments,
    }
    for entry, start, end in flat.held():
        shape, before = torch.Size(whole_shape(entry, tensor_degree)), entry.start - flat.shard.start
        for box in boxes(entry, start, end, tensor_rank=tensor_rank):
            sizes = torch.Size((box.num_rows, box.num_columns))
            chunk = ChunkStorageMetadata(offsets=torch.Size((box.row, box.column)), sizes=sizes)
            interval = slice(before + box.start, before + box.start + sizes.numel())
            for kind, values in state.items():
                yield _Piece(
                    name=f"{kind}.{entry.name}",
                    chunk=chunk,
                    shape=shape,
                    values=values[interval].view(sizes),
                    counts=entry.end <= flat.num_counted,
                )


def write(held: Iterable[_Piece], folder: Path) -> str | None:
    """Write a checkpoint, durably; give what went wrong. Collective."""
    try:
        dcp.save({}, storage_writer=dcp.FileSystemWriter(folder), planner=_Saving(held))
    except dcp.CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        return f"{folder}: {str(first).splitlines()[0]}"
    return None


def read(held: Iterable[_Piece], folder: Path) -> None:
    """Fill the pieces. Collective.

    Raises
    ------
    WorkerError
        When the checkpoint has a parameter not, or of another shape.
    """
    dcp.load({}, storage_reader=dcp.FileSystemReader(folder), planner=_Loading(held))


class _Saving(dcp.DefaultSavePlanner):
    def __init__(self, held: Iterable[_Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._held = {piece.index: piece for piece in held if piece.counts}

    def create_local_plan(self) -> SavePlan:
        items = [
            WriteItem(
                index=index,
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=piece.chunk,
                    properties=TensorProperties.create_from_tensor(piece.values),
                    size=piece.shape,
                ),
            )
            for index, piece in self._held.items()
        ]
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self._held[write_item.index].values


class _Loading(dcp.DefaultLoadPlanner):
    def __init__(self, held: Iterable[_Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._held = {piece.index: piece for piece in held}

    def create_local_plan(self) -> LoadPlan:
        stored_by_name = self.metadata.state_dict_metadata if self.metadata is not None else {}
        items: list[ReadItem] = []
        for piece in self._held.values():
            stored = stored_by_name.get(piece.name)
            if getattr(stored, "size", None) != piece.shape:
                raise WorkerError(f"the checkpoint has no {piece.name} of {tuple(piece.shape)}")
            items += create_read_items_for_chunk_list(piece.name, stored, [piece.chunk])
        return LoadPlan(items)

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        values = self._held[read_item.dest_index].values
        for axis, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            values = values.narrow(axis, start, length)
        return values
