r"""What the predicted iteration time is spent on, seen from the stage that the pipeline waits for.

The slowest stage s works on every micro-batch, N_b c_s, of which tensor-parallel communication is a part. What the
warm-up takes beyond its own c_s is time in which it has nothing to do: the bubble. The extra time belongs to the stage
that ends last; the backward passes of the stages before it hide the beginning of its reduction, then of its optimiser.

    total = compute + tensor + ring + all-to-all + bubble + send + data + optimiser + stragglers
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from models.performance.iteration.times import IterationTime, StageTime


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationBreakdown:
    """Seconds per iteration; the parts add up to the total.

    `tensor_s`: tensor-parallel communication. `ring_s`: attention that waits for keys and values of other replicas;
    `all_to_all_s`: tokens that go to experts and come back. `data_s`: gradient reduction that the backward pass does
    not hide. `send_s`: waiting for activations between stages, where the model counts them. `straggling_s`: waiting for
    others in a large plan.
    """

    compute_s: float
    tensor_s: float
    data_s: float
    optimizer_s: float
    bubble_s: float
    send_s: float
    straggling_s: float = 0.0
    ring_s: float = 0.0
    all_to_all_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum of the parts."""
        pipeline_s = self.compute_s + self.tensor_s + self.ring_s + self.all_to_all_s + self.bubble_s + self.send_s
        return pipeline_s + self.data_s + self.optimizer_s + self.straggling_s


def breakdown(time: IterationTime, num_micro_batches: int) -> IterationBreakdown:
    """Split the iteration time of a plan with `num_micro_batches`."""
    slowest = max(time.stages, key=lambda stage: stage.forward_s + stage.backward_s)
    per_micro_batch_s = slowest.forward_s + slowest.backward_s
    ring_s, all_to_all_s = num_micro_batches * slowest.ring_s, num_micro_batches * slowest.all_to_all_s
    tensor_s = num_micro_batches * slowest.tensor_communication_s
    # In interleaved pipelines the first part of every stage is waited for, with all that is sent before it.
    first_send_s = min(sum(stage.send_s for stage in time.stages), max(time.warm_up_s - per_micro_batch_s, 0.0))
    optimizer_s = min(_last_to_end(time.stages).optimizer_s, time.extra_s)
    return IterationBreakdown(
        compute_s=num_micro_batches * per_micro_batch_s - tensor_s - ring_s - all_to_all_s,
        tensor_s=tensor_s,
        data_s=time.extra_s - optimizer_s,
        optimizer_s=optimizer_s,
        bubble_s=time.warm_up_s - first_send_s - per_micro_batch_s,
        send_s=first_send_s + time.steady_s - (num_micro_batches - 1) * per_micro_batch_s,
        straggling_s=time.straggling_s,
        ring_s=ring_s,
        all_to_all_s=all_to_all_s,
    )


def _last_to_end(stages: Sequence[StageTime]) -> StageTime:
    """The stage whose reduction and optimiser end last; stages behind the first have ended their passes earlier."""
    before_s = accumulate((stage.backward_s for stage in stages[:-1]), initial=0.0)
    ends_s = [stage.exposed_reduction_s + stage.optimizer_s - s for stage, s in zip(stages, before_s, strict=True)]
    return stages[max(range(len(stages)), key=ends_s.__getitem__)]
