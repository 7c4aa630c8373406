"""Training jobs: budget times step, failures, checkpoints and spread, by hand."""

import math
from dataclasses import replace

import pytest

from models.forecast.training import SPREAD, Reliability, forecast_training, forward_flops, iterations_of
from models.performance.iteration.profile import LayerCost
from models.transformer import OperatorModel, Transformer
from stowplan.errors import InputError
from tests.models.performance.iteration.plan_scenes import model, plan, profile

# As in test_model: two stages on the nodes a and b, 58.5 s a step.
PLAN = plan((2, 2, {"a": [2], "b": [2]}), (2, 2, {"a": [2], "b": [2]}))
STEP_S = 58.5
MODEL = model(profile(4))


def _peaks() -> dict[str, float]:
    return {replica.gpu_type: 100.0 for stage in PLAN.stages for replica in stage.replicas}


def test_without_failures_it_is_the_steps() -> None:
    found = forecast_training(MODEL, PLAN, 100, _peaks(), spread=0.0)
    assert found.lasting.probabilities == (1.0,)
    assert found.lasting.seconds == pytest.approx((100 * STEP_S,))
    assert found.step_s == pytest.approx(STEP_S)
    assert (found.goodput, found.mtbf_s) == (1.0, None)


def test_the_error_of_the_model_is_lognormal_around_the_prediction() -> None:
    lasting = forecast_training(MODEL, PLAN, 100, _peaks()).lasting
    assert lasting.quantile(0.5) == pytest.approx(5850.0)
    # Half of all published steps are within 16.9 % of their predictions: between the quartiles.
    assert math.log(1.169) / SPREAD == pytest.approx(0.6745, rel=0.01)
    assert lasting.quantile(0.975) == pytest.approx(5850.0 * math.exp(1.96 * SPREAD), rel=1e-3)
    assert lasting.quantile(0.995) == math.inf


def test_failures_by_hand() -> None:
    # 2 nodes of 20,000 s: the job fails every 10,000 s. A checkpoint every 1,000 s takes 50 s (5 %), a failure loses
    # 500 s of work and 500 s of restart, 0.1 of the time: 1.05 / 0.9 times the work.
    reliability = Reliability(mtbf_s=20_000.0, restart_s=500.0, checkpoint_s=50.0, checkpoint_every_s=1000.0)
    found = forecast_training(MODEL, PLAN, 1000, _peaks(), reliability, spread=0.0)
    wall_s = 1000 * STEP_S * 1.05 / 0.9
    assert found.lasting.quantile(0.5) == pytest.approx(wall_s)
    assert (found.mtbf_s, found.checkpoint_every_s) == (10_000.0, 1000.0)
    assert found.goodput == pytest.approx(0.9 / 1.05)
    # T / 10,000 failures, each losing 500 + U(0, 1000): second moment 250,000 + 500,000 + 333,333.
    variance = wall_s / 1e4 * (250_000.0 + 500_000.0 + 1e6 / 3.0)
    sigma = math.sqrt(math.log1p(variance / wall_s**2))
    assert found.lasting.quantile(0.9) == pytest.approx(wall_s * math.exp(1.2816 * sigma), rel=1e-4)


def test_youngs_interval_is_the_best_to_first_order() -> None:
    reliability = Reliability(mtbf_s=2e6, restart_s=300.0, checkpoint_s=50.0)
    best = forecast_training(MODEL, PLAN, 1000, _peaks(), reliability)
    # sqrt(2 x 50 x 10^6)
    assert best.checkpoint_every_s == pytest.approx(10_000.0)
    for factor in (0.5, 2.0):
        other = replace(reliability, checkpoint_every_s=factor * 10_000.0)
        assert forecast_training(MODEL, PLAN, 1000, _peaks(), other).goodput < best.goodput
    # Daly's formula says the same to a tenth of a percent where failures are far apart.
    m_s, tau_s, c_s, r_s = 1e6, 1e4, 50.0, 300.0
    daly = m_s * math.exp(r_s / m_s) * math.expm1((tau_s + c_s) / m_s) / tau_s
    assert 1.0 / best.goodput == pytest.approx(daly, rel=1e-3)


def test_more_nodes_fail_more_often() -> None:
    reliability = Reliability(mtbf_s=1e6, restart_s=300.0, checkpoint_s=50.0, checkpoint_every_s=3600.0)
    one_node = plan((2, 2, {"a": [2, 2]}), (2, 2, {"a": [2, 2]}))
    few, many = (forecast_training(MODEL, where, 100, _peaks(), reliability) for where in (one_node, PLAN))
    assert many.goodput < few.goodput
    assert (few.mtbf_s, many.mtbf_s) == (1e6, 5e5)


def test_mfu_by_hand() -> None:
    # 4 layers of 300 FLOPs a sample and a head of 100.
    layers = tuple(replace(layer, forward_flops=300.0) for layer in profile(4).layers)
    counted = replace(profile(4), layers=layers, head=LayerCost(forward_flops=100.0))
    performance = replace(MODEL, profile=counted)
    flops = 1300.0 * counted.global_batch
    assert forward_flops(counted) == flops
    found = forecast_training(performance, PLAN, 1, _peaks())
    assert found.mfu == pytest.approx(3 * flops / (found.step_s * 100.0 * PLAN.num_gpus))


def test_tokens_are_whole_iterations() -> None:
    gpt = Transformer(num_layers=2, hidden_size=64, vocabulary_size=100, sequence_length=128, global_batch=8)
    assert [iterations_of(gpt, tokens) for tokens in (1, 1024, 1025)] == [1, 1, 2]
    with pytest.raises(InputError):
        iterations_of(gpt, 0)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"mtbf_s": 0.0}, "/reliability/mtbf_s"),
        ({"restart_s": -1.0}, "/reliability/restart_s"),
        ({"checkpoint_every_s": 0.0}, "/reliability/checkpoint_every_s"),
        ({"checkpoint_s": 0.0, "checkpoint_every_s": None}, "/reliability/checkpoint_every_s"),
        # 900 s between failures, of which 800 are lost.
        ({"mtbf_s": 1800.0}, "/reliability/mtbf_s"),
    ],
)
def test_what_never_ends_is_refused(changes: dict[str, float | None], pointer: str) -> None:
    reliability = Reliability(mtbf_s=1e6, restart_s=300.0, checkpoint_s=50.0, checkpoint_every_s=1000.0)
    with pytest.raises(InputError) as refused:
        forecast_training(MODEL, PLAN, 100, _peaks(), replace(reliability, **changes))  # type: ignore[arg-type]
    assert [issue.pointer for issue in refused.value.issues] == [pointer]


def test_budgets_and_peaks_that_are_none_are_refused() -> None:
    for iterations, peaks, pointer in ((0.0, _peaks(), "/iterations"), (1.0, {}, "/peak_flops_per_s")):
        with pytest.raises(InputError) as refused:
            forecast_training(MODEL, PLAN, iterations, peaks)
        assert [issue.pointer for issue in refused.value.issues] == [pointer]


def test_operators_have_no_tokens() -> None:
    layers = OperatorModel.__new__(OperatorModel)
    with pytest.raises(InputError, match="cannot be forecast"):
        iterations_of(layers, 1e9)
