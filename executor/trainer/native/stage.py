"""A pipeline stage that torch's schedules drive, with any number of peers in the stages beside it.

torch 2.13 knows one rank per stage in a pipeline group, and one peer per neighbour. The schedules ask a stage for its
sends and receives, so a stage of any number of replicas and tensor ranks runs under them unchanged
(`_PipelineStageBase` is private: torch is pinned).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining.stage import _PipelineStageBase

from executor.trainer.clock import StepClock
from executor.trainer.documents import Documents
from executor.trainer.native.module import StageModule
from executor.trainer.native.peers import Peer, receivers, senders
from executor.training_job import TrainingJob
from executor.training_layout import Coordinates
from stowplan.errors import InputError


class UnevenStage(_PipelineStageBase):
    """The part of a stage that one rank has; in interleaved pipelines one of several.

    Parameters
    ----------
    index
        Of the part among those of all stages.
    place
        Of the rank.
    dtype
        Of activations; between stages they are (batch of the replica, sequence or the rank's part of it, hidden).
    """

    def __init__(
        self,
        module: StageModule,
        job: TrainingJob,
        index: int,
        place: Coordinates,
        device: torch.device,
        dtype: torch.dtype,
        clock: StepClock,
    ) -> None:
        # In a group it would be one of at most one rank per stage; all messages go over the default group.
        super().__init__(module, index, job.pp * job.virtual_stages, device, group=dist.GroupMember.NON_GROUP_MEMBER)
        self.group, self._module = None, module
        # All ranks of a stage do the same at the same time.
        self.group_size, self.group_rank = job.pp, place.pipe
        self._clock, self._dtype = clock, dtype
        model, layout = job.model, job.stages[place.pipe]
        length = model.sequence_length // (layout.tp if model.splits_sequences else 1)
        self._shape = (layout.batches[place.data], length, model.hidden_size)
        size = model.sequence_length * model.hidden_size
        self._from_before, self._to_before, self._from_behind, self._to_behind = (
            (*exchange(job, place, job.stage_of(other), size),) if 0 <= other < self.num_stages else ()
            for other in (index - 1, index + 1)
            for exchange in (senders, receivers)
        )
        self._documents: Sequence[Documents] = ()
        self._present: Documents | None = None
        self._inputs: dict[int, torch.Tensor] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        # The number of inputs is all that is read of the one, and nothing of the other.
        self._stage_meta.inputs = (None,)
        self.args_recv_info = {0: ()}

    def take(self, documents: Sequence[Documents]) -> None:
        """Keep the documents of all micro-batches of the next passes; none: attention does not stay within them."""
        self._documents = documents

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Receive the samples of a micro-batch from the stage before."""
        return [] if self.is_first else self._receive(self._inputs, fwd_chunk_id, self._from_before)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Send what came out of the forward pass to the stage behind."""
        return [] if self.is_last else _send(self.fwd_cache[fwd_chunk_id][0][0], self._to_behind)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Receive the gradients of what was sent."""
        if self.is_last or not self.has_backward:
            return []
        return self._receive(self._gradients, bwd_chunk_id, self._from_behind)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Send the gradients of what was received."""
        if self.is_first or not self.has_backward:
            return []
        return _send(self.bwd_cache.pop(bwd_chunk_id)[0], self._to_before)

    def forward_one_chunk(self, fwd_chunk_id: int, *values: Any, **named: Any) -> Any:
        """Compute; what has passed since the last computation was communication.

        Raises
        ------
        InputError
            When a user's layer hands on something else than (micro-batch, sequence, hidden).
        """
        self._lap_until("send" if self.is_first else "receive")
        self._present = self._documents[fwd_chunk_id] if self._documents else None
        output = super().forward_one_chunk(fwd_chunk_id, *values, **named)
        if not self.is_last and (output.shape, output.dtype) != (self._shape, self._dtype):
            raise InputError(
                f"stage {self.stage_index} hands on {output.dtype} {list(output.shape)}; the native engine sends "
                f"{self._dtype} {list(self._shape)}: micro-batch, sequence, hidden"
            )
        self._clock.lap("forward")
        return output

    def forward_maybe_with_nosync(self, *values: Any, **named: Any) -> Any:
        """Apply the layers. Documents are no inputs to torch, for which every input has a gradient to send back."""
        return self.submod(*values, documents=self._present, **named)

    def backward_one_chunk(self, bwd_chunk_id: int, *values: Any, **named: Any) -> None:
        """Compute gradients; likewise."""
        self._lap_until("send" if self.is_last else "receive")
        super().backward_one_chunk(bwd_chunk_id, *values, **named)
        self._module.end_backward()
        self._clock.lap("backward")

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *values: Any, **named: Any) -> None:
        """Compute gradients of weights, where the schedule has these apart."""
        super().backward_weight_one_chunk(bwd_chunk_id, *values, **named)
        for parameter in self.submod.parameters():
            # Autograd has not accumulated them, so that its hooks have not run.
            if parameter.grad is not None and hasattr(parameter, "add_gradient"):
                parameter.add_gradient(parameter)
        self._clock.lap("backward")

    def set_local_fwd_input(self, prev_stage_outputs: torch.Tensor, mb_index: int) -> None:
        """Take what the part before hands on, which this rank has, too."""
        self._inputs[mb_index] = prev_stage_outputs.detach()

    def get_local_bwd_output(self, mb_index: int) -> Any:
        """Give the part before its gradient; likewise."""
        return self.bwd_cache.pop(mb_index) if self.has_backward else None

    def set_local_bwd_input(self, next_stage_bwd_outputs: Any, mb_index: int) -> None:
        """Take the gradient from the part behind; likewise."""
        if self.has_backward:
            (self._gradients[mb_index],) = next_stage_bwd_outputs

    def _lap_until(self, communication: str) -> None:
        self._clock.lap(communication if self.num_stages > 1 else None)

    def _receive(self, into: dict[int, torch.Tensor], chunk: int, peers: tuple[Peer, ...]) -> list[dist.P2POp]:
        whole = into[chunk] = torch.empty(self._shape, dtype=self._dtype, device=self.device)
        return [dist.P2POp(dist.irecv, whole.view(-1)[peer.start : peer.end], peer.rank) for peer in peers]

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> tuple[torch.Tensor]:
        return (self._inputs.pop(fwd_chunk_id).requires_grad_(),)

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> tuple[torch.Tensor]:
        return (self._gradients.pop(bwd_chunk_id),)

    def _prepare_forward_infra(self, num_microbatches: int, *_: Any, **__: Any) -> None:
        self.chunks = num_microbatches

    def _prepare_backward_infra(self, *_: Any, **__: Any) -> None:
        """Shapes are known beforehand."""

    def _create_grad_recv_info(self, _: Any) -> tuple[Any, ...]:
        return ()

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        return []


def _send(whole: torch.Tensor, peers: tuple[Peer, ...]) -> list[dist.P2POp]:
    whole = whole.detach().contiguous().view(-1)
    return [dist.P2POp(dist.isend, whole[peer.start : peer.end], peer.rank) for peer in peers]
