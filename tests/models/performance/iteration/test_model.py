"""Iteration time against arithmetic by hand and the formulas written out one number at a time."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import JobCoefficients
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import exposed_reduction_s, saturated_bandwidth, scaling
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import LayerCost
from models.pipeline_schedule import PipelineSchedule
from stowplan.errors import InputError
from tests.models.performance.iteration.plan_scenes import GPUS, SIZES, fabric, model, plan, plans, profile

# Nodes a and b share a leaf: 10 bytes/s between them, as between d and e.
SYMMETRIC = plan((2, 2, {"a": [2], "b": [2]}), (2, 2, {"a": [2], "b": [2]}))


def test_symmetric_plan_by_hand() -> None:
    # TP  computation 1 x 2 x 2 / 2 = 2 s. An all-reduce moves V' = 8 x 2 x 2 (1 - 1/2) = 16 bytes: log2 16 / log2 256
    #     = 1/2 of the 32 bytes/s. V = 2 all-reduces x 2 layers x 16 = 64 bytes: 4 s.
    #     forward 2 + 4 = 6 s, backward 2 x 2 + 4 = 8 s, optimiser 0.5 x 2 / 2 = 0.5 s.
    # DP  gradients 30 x 2 x 2 (1 - 1/2) = 60 bytes at 10 bytes/s: 6 s. sqrt(8^2 + 6^2) - 8 = 2 s are exposed.
    # PP  warm-up 14 + 14, steady 2 x 14, extra max(2.5, 2.5 - 8).
    time = model(profile(4)).iteration(SYMMETRIC)
    first = time.stages[0]
    assert (first.forward_s, first.backward_s, first.tensor_communication_s) == pytest.approx((6.0, 8.0, 8.0))
    assert (first.reduction_s, first.exposed_reduction_s, first.optimizer_s) == pytest.approx((6.0, 2.0, 0.5))
    assert (time.warm_up_s, time.steady_s, time.extra_s) == pytest.approx((28.0, 28.0, 2.5))
    assert time.total_s == pytest.approx(58.5)
    assert time.stages[1] == first


def test_asymmetric_plan_on_two_types_by_hand() -> None:
    # Stage 0, 3 layers, no tensor parallelism: x works on 1 sample, 1 x 1 x 3 = 3 s; y on 2, 0.5 x 2 x 3 = 3 s.
    #   backward max(2 x 3, 3 x 3) = 9 s; gradients 30 x 3 x 1 = 90 bytes at the slower 10 bytes/s: 9 s. The overlap is
    #   the smaller one, 1: all 9 s exposed. Optimiser max(0.5, 0.1) x 3 = 1.5 s.
    # Stage 1, 1 layer, one replica of 2 GPUs on 3 samples: 1 x 3 / 2 = 1.5 s; V' = 16/3 x 3 = 16 bytes, V = 32 bytes
    #   at 16 bytes/s: 2 s. forward 3.5 s, backward 2 x 1.5 + 2 = 5 s, optimiser 0.5 / 2 = 0.25 s.
    # Warm-up 12 + 8.5, steady 1 x 12, extra max(9 + 1.5, 0.25 - 9).
    sizes = replace(SIZES, activation_bytes=16.0 / 3.0)
    job = model(profile(4), coefficients=JobCoefficients(gpus=GPUS, sizes=sizes))
    asymmetric = plan((3, 1, {"d": [1], "e": [2]}), (1, 2, {"a": [3]}), num_micro_batches=2)
    time = job.iteration(asymmetric)
    assert (time.warm_up_s, time.steady_s, time.extra_s) == pytest.approx((20.5, 12.0, 10.5))
    assert job.throughput(asymmetric) == pytest.approx(6 / 43.0)


def test_replicas_inside_a_node_reduce_over_their_own_links() -> None:
    # 60 bytes of gradients, half of them on each of two tensor ranks: 30 bytes at 32 bytes/s.
    inside = model(profile(4)).iteration(plan((2, 2, {"a": [2, 2]}), (2, 2, {"b": [4]})))
    assert inside.stages[0].reduction_s == pytest.approx(30.0 / 32.0)


# Three micro-batches. Half an all-reduce of gradients is 3 s, to gather weights 1 s: 3 + 3, 3 + 1, 9 + 1 and 9 + 6.
@pytest.mark.parametrize(
    ("zero_stage", "reduction_s", "optimizer_s"), [(0, 6, 0.5), (1, 4, 0.25), (2, 10, 0.25), (3, 15, 0.25)]
)
def test_zero_by_hand(zero_stage: int, reduction_s: float, optimizer_s: float) -> None:
    first = model(profile(4, zero_stage=zero_stage)).iteration(SYMMETRIC).stages[0]
    assert (first.reduction_s, first.optimizer_s) == pytest.approx((reduction_s, optimizer_s))


def test_head_counts_as_its_share_of_the_mean_layer() -> None:
    # Four layers of 1 FLOP and a head of 4: the mean layer has 2, the last stage (2 + 4) / 2 = 3 of them.
    job = model(profile(4, head=LayerCost(forward_flops=4.0)))
    first, last = (stage.forward_s for stage in job.iteration(plan((2, 1, {"a": [2]}), (2, 1, {"b": [2]}))).stages)
    assert (first, last) == pytest.approx((1.0 * 2, 3.0 * 2))


def test_copy_of_tied_embeddings_is_reduced_and_updated() -> None:
    # 10 tied parameters are one mean layer: the last stage updates 3 layers instead of 2, and reduces 90 bytes.
    first, last = model(profile(4, tied_parameters=10.0)).iteration(SYMMETRIC).stages
    assert first == model(profile(4)).iteration(SYMMETRIC).stages[0]
    assert (last.forward_s, last.backward_s) == (first.forward_s, first.backward_s)
    assert (last.reduction_s, last.optimizer_s) == pytest.approx((9.0, 0.75))


def test_degrees_of_one_cost_nothing() -> None:
    alone = model().iteration(plan((6, 1, {"a": [3]}), num_micro_batches=4))
    stage = alone.stages[0]
    assert stage.tensor_communication_s == stage.reduction_s == stage.exposed_reduction_s == 0
    assert alone.total_s == pytest.approx(4 * (stage.forward_s + stage.backward_s) + stage.optimizer_s)


def test_layers_must_be_those_of_the_model() -> None:
    with pytest.raises(InputError, match="has 5 layers; the model 'toy' has 6"):
        model().iteration(plan((5, 1, {"a": [1]})))


def test_unknown_node_and_type_are_named() -> None:
    elsewhere = symmetric_plan(
        num_layers=6, pp=1, dp=1, tp=1, global_batch=1, num_micro_batches=1, gpu_type="x", gpus=(("z", 0),)
    )
    with pytest.raises(InputError, match="node 'z'"):
        model().iteration(elsewhere)
    with pytest.raises(InputError, match=r"GPU type 'x'; there are some for \['y'\]"):
        model(coefficients=JobCoefficients(gpus={"y": GPUS["y"]}, sizes=SIZES)).iteration(plan((6, 1, {"a": [1]})))


@given(plans(), st.sampled_from([0, 1, 2, 3]), st.sampled_from([0.0, 25.0]))
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_formulas_written_out(drawn: ParallelPlan, zero_stage: int, tied_parameters: float) -> None:
    job = model(profile(zero_stage=zero_stage, tied_parameters=tied_parameters))
    assert job.iteration(drawn).total_s == pytest.approx(_literally(job, drawn), rel=1e-12)


@given(plans(), st.floats(1.0, 10.0))
@settings(max_examples=25, deadline=None)
def test_more_bandwidth_is_never_slower(drawn: ParallelPlan, faster: float) -> None:
    for send_receive in (False, True):
        slow, fast = (model(on=fabric(faster=f), send_receive=send_receive) for f in (1.0, faster))
        assert fast.iteration(drawn).total_s <= slow.iteration(drawn).total_s * (1 + 1e-12)


@given(plans(), st.sampled_from(list(permutations("abcde"))[::17]))
@settings(max_examples=40, deadline=None)
def test_names_of_nodes_do_not_matter(drawn: ParallelPlan, names: tuple[str, ...]) -> None:
    new = dict(zip("abcde", names, strict=True))
    renamed = replace(
        drawn,
        stages=tuple(
            replace(stage, replicas=tuple(replace(r, node=new[r.node]) for r in stage.replicas))
            for stage in drawn.stages
        ),
    )
    here = fabric()
    there = replace(here, hosts={new[node]: host for node, host in here.hosts.items()})
    one, other = (model(on=on, send_receive=True).iteration(p) for on, p in ((here, drawn), (there, renamed)))
    assert one.total_s == pytest.approx(other.total_s, rel=1e-12)


@given(plans())
@settings(max_examples=30, deadline=None)
def test_order_of_replicas_does_not_matter(drawn: ParallelPlan) -> None:
    turned = replace(drawn, stages=tuple(replace(stage, replicas=stage.replicas[::-1]) for stage in drawn.stages))
    assert model().iteration(drawn) == model().iteration(turned)


def test_symmetric_notation_is_the_same_plan() -> None:
    gpus = (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("b", 3))
    short = symmetric_plan(
        num_layers=4, pp=2, dp=2, tp=2, global_batch=12, num_micro_batches=3, gpu_type="x", gpus=gpus
    )
    assert short == SYMMETRIC
    assert model(profile(4)).iteration(short) == model(profile(4)).iteration(SYMMETRIC)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.lists(st.floats(1.0, 64.0), min_size=2, max_size=5))
@settings(max_examples=35, deadline=None)
def test_overlap_is_monotone_between_its_limits(backward_s: float, reduction_s: float, overlaps: list[float]) -> None:
    exposed = exposed_reduction_s(backward_s, reduction_s, np.array([1.0, *sorted(overlaps), math.inf]))
    assert exposed[0] == pytest.approx(reduction_s, rel=1e-9)
    assert exposed[-1] == pytest.approx(max(0.0, reduction_s - backward_s), rel=1e-9)
    assert (np.diff(exposed) <= 1e-12 * reduction_s).all()


def test_nothing_to_reduce_exposes_nothing() -> None:
    assert exposed_reduction_s(0.0, 0.0, 2.0) == 0
    assert exposed_reduction_s(3.0, 0.0, 1.0) == 0


def test_bandwidth_saturates() -> None:
    assert saturated_bandwidth(10.0, np.array([2.0, 16.0, 256.0, 1e9]), 256.0) == pytest.approx([1.25, 5, 10, 10])


def _literally(job: PerformanceModel, of: ParallelPlan) -> float:
    """Suika A.2, loop by loop, for equal layers without embedding and head."""
    sizes, zero = job.coefficients.sizes, job.profile.zero_stage
    count = of.num_micro_batches
    reduced, gathered = ((2, 0), (1, 1), (count, 1), (count, 2 * count))[zero]
    forward, backward, extra = [], [], []
    for stage in of.stages:
        copy = job.profile.tied_parameters / job.profile.layers[0].parameters
        held = stage.num_layers + (copy if of.pp > 1 and stage is of.stages[-1] else 0.0)
        groups = []
        for replica in stage.replicas:
            c, host = job.coefficients.gpus[replica.gpu_type], job.fabric.hosts[replica.node]
            computation = c.compute_s * replica.local_batch * stage.num_layers / stage.tp
            volume = 2 * sizes.activation_bytes * replica.local_batch * stage.num_layers * 2 * (1 - 1 / stage.tp)
            message = volume / (2 * stage.num_layers)
            communication = 0.0
            if stage.tp > 1:
                share = min(math.log2(message) / math.log2(job.fabric.saturation_bytes), 1.0)
                communication = volume / (host.intra_bytes_per_s * share)
            optimizer = c.optimizer_s * held / stage.tp / (stage.dp if zero >= 1 else 1)
            groups.append((computation + communication, c.backward_ratio * computation + communication, optimizer, c))
        forward.append(max(g[0] for g in groups))
        backward.append(max(g[1] for g in groups))
        k = min(g[3].overlap for g in groups)
        moved = reduced * sizes.gradient_bytes + gathered * sizes.parameter_bytes
        volume = moved * held * (1 - 1 / stage.dp)
        reduction = _reduction_s([r.node for r in stage.replicas], volume, stage.tp, job.fabric)
        hiding = (backward[-1], backward[-1], count * backward[-1], count * (forward[-1] + backward[-1]))[zero]
        exposed = math.pow(hiding**k + reduction**k, 1 / k) - hiding
        extra.append(exposed + max(g[2] for g in groups))
    both = [f + b for f, b in zip(forward, backward, strict=True)]
    last = max(extra[i] - sum(backward[:i]) for i in range(len(extra)))
    return sum(both) + (of.num_micro_batches - 1) * max(both) + last


def _reduction_s(nodes: list[str], volume: float, tp: int, on: Fabric) -> float:
    """The slowest pair of a ring."""
    times = [0.0]
    for i, a in enumerate(nodes):
        for b in nodes[:i]:
            left, right = on.hosts[a], on.hosts[b]
            if a == b:
                times.append(volume / tp / left.intra_bytes_per_s)
                continue
            common = sum(1 for k in (1, 2) if left.path[:k] == right.path[:k])
            slowest = on.fractions[common] * min(left.inter_bytes_per_s, right.inter_bytes_per_s)
            times.append(volume / slowest)
    return max(times)


@given(st.integers(2, 3), st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_parts_of_stages_shorten_the_bubble(parts: int, rounds: int) -> None:
    """(p - 1) / v of a stage's time in place of p - 1, where stages are alike."""
    plain = plan((6, 1, {"a": [1]}), (6, 1, {"d": [1]}), num_micro_batches=2 * rounds)
    job = model(profile(12), coefficients=JobCoefficients(gpus={"x": GPUS["x"], "y": GPUS["x"]}, sizes=SIZES))
    cut = job.iteration(replace(plain, virtual_stages=parts))
    whole = job.iteration(plain)
    stage = whole.stages[0].forward_s + whole.stages[0].backward_s
    assert whole.warm_up_s + whole.steady_s == pytest.approx((2 * rounds + 1) * stage)
    assert cut.warm_up_s + cut.steady_s == pytest.approx((2 * rounds + 1 / parts) * stage, rel=0.01)
    assert cut.extra_s == whole.extra_s


@given(st.integers(2, 3), st.integers(2, 4))
@settings(max_examples=12, deadline=None)
def test_weights_that_wait_shorten_the_bubble_further(parts: int, rounds: int) -> None:
    """Forward 6 s, gradients of inputs and of weights 6 s each where stages are alike: (p - 1) / v of the forward pass
    is left, of zbv half of it. All stages end together, so that what follows is not hidden."""
    plain = plan((6, 1, {"a": [1]}), (6, 1, {"d": [1]}), num_micro_batches=2 * rounds)
    job = model(profile(12), coefficients=JobCoefficients(gpus={"x": GPUS["x"], "y": GPUS["x"]}, sizes=SIZES))
    for schedule, count in ((PipelineSchedule.ZERO_BUBBLE, parts), (PipelineSchedule.ZBV, 2)):
        found = job.iteration(replace(plain, virtual_stages=count, schedule=schedule))
        stage = found.stages[0]
        assert (stage.forward_s, stage.backward_s, stage.weight_s) == pytest.approx((6.0, 12.0, 6.0))
        passes = 2 * rounds * (stage.forward_s + stage.backward_s)
        assert found.warm_up_s + found.steady_s == pytest.approx(passes + stage.forward_s / count, rel=0.01)
        assert found.extra_s == max(one.exposed_reduction_s + one.optimizer_s for one in found.stages)


def test_a_site_as_large_is_slower() -> None:
    one = plan((6, 1, {"a": [3]}), num_micro_batches=4)
    job = model(coefficients=JobCoefficients(gpus=GPUS, sizes=SIZES, scale_loss=0.5))
    assert job.iteration(one).total_s == model().iteration(one).total_s
    many = plan((3, 2, {"a": [2, 1], "b": [3]}), (3, 2, {"d": [6]}))
    assert job.iteration(many).straggling_s == 0
    assert float(scaling(64, 0.01)) == pytest.approx(1.03)
    assert float(scaling(8, 0.01)) == float(scaling(1, 0.01)) == 1.0
