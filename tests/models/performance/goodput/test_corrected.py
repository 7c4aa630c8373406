"""Tables and observations that measurements set right."""

from dataclasses import replace

import pytest

from models.performance.goodput.corrected import (
    MeasuredSteps,
    MeasuredThroughput,
    corrected_model,
    corrected_table,
    entry_of,
    step_s_of,
    with_observations,
)
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GradientStatistics,
    Observation,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)

_TABLE = ThroughputTable(
    entries=(
        TableEntry(gpu_type="a", num_gpus=1, value=10.0),
        TableEntry(gpu_type="a", num_gpus=2, value=20.0),
        TableEntry(gpu_type="a", num_gpus=2, value=18.0, num_nodes=2),
        TableEntry(gpu_type="a", num_gpus=8, value=60.0),
        TableEntry(gpu_type="b", num_gpus=4, value=100.0),
    ),
    batch_size=8,
)


def on(gpu_type: str, num_gpus: int, samples_per_s: float, num_nodes: int = 1) -> MeasuredThroughput:
    return MeasuredThroughput(gpu_type=gpu_type, num_gpus=num_gpus, num_nodes=num_nodes, samples_per_s=samples_per_s)


@pytest.mark.parametrize(
    ("measured", "values"),
    [
        ((), [10, 20, 18, 60, 100]),
        # Nothing is said of four GPUs of that type.
        ((on("a", 4, 1.0),), [10, 20, 18, 60, 100]),
        # Half of what was said, everywhere.
        ((on("a", 2, 10.0),), [5, 10, 9, 30, 50]),
        # On two nodes the entry for two nodes is meant.
        ((on("a", 2, 9.0, num_nodes=2),), [5, 10, 9, 30, 50]),
        # 2 is nearer to 1 and 8 to 8; of b, 4 is as near to 2 as to 8, and the newest of them counts.
        ((on("a", 8, 120.0), on("a", 2, 10.0)), [5, 10, 9, 120, 200]),
        ((on("a", 2, 10.0), on("a", 8, 120.0)), [5, 10, 9, 120, 50]),
        # Of the same shape the newest.
        ((on("b", 4, 50.0), on("b", 4, 200.0)), [5, 10, 9, 30, 50]),
    ],
)
def test_what_was_not_measured_is_scaled_as_the_nearest_that_was(
    measured: tuple[MeasuredThroughput, ...], values: list[float]
) -> None:
    found = corrected_table(_TABLE, measured)
    assert [entry.value for entry in found.entries] == pytest.approx(values)
    assert found.batch_size == 8


def test_an_entry_for_so_many_nodes_comes_before_one_for_any() -> None:
    assert entry_of(_TABLE, "a", 2, 2) == _TABLE.entries[2]
    assert entry_of(_TABLE, "a", 2, 1) == _TABLE.entries[1]
    assert entry_of(_TABLE, "a", 3, 1) is None


def test_a_fitted_model_is_as_much_slower_as_the_newest_steps() -> None:
    """A step of one GPU of a takes 0.1 + 4 x 0.1 s by it, of two accumulated ones on two nodes 1 + 0.5 s."""
    times = {"alpha_c": 0.1, "beta_c": 0.1, "alpha_r": 0.2, "beta_r": 0.0, "alpha_n": 0.5, "beta_n": 0.0}
    profile = TypeProfile(parameters=ThroughputParameters(**times, gamma=1.0), max_local_batch=8)
    model = GoodputModel(
        batch=BatchRange(initial=8, maximum=8),
        gradient=GradientStatistics(squared_norm=1.0, variance=1.0),
        profiles={"a": profile, "b": profile, "c": replace(profile, single_gpu_only=True)},
    )

    def steps(gpu_type: str, num_replicas: int, step_s: float, more: int = 0) -> MeasuredSteps:
        return MeasuredSteps(
            gpu_type=gpu_type,
            num_nodes=num_replicas,
            num_replicas=num_replicas,
            local_batch=4,
            accumulation_steps=more,
            bandwidth_fraction=1.0,
            step_s=step_s,
        )

    def factors(*measured: MeasuredSteps) -> list[float]:
        found = corrected_model(model, measured).profiles
        return [found[name].parameters.beta_c / 0.1 for name in "abc"]

    assert factors(steps("a", 1, 1.0)) == pytest.approx([2, 2, 2])
    assert factors(steps("a", 2, 6.0, more=1), steps("b", 1, 0.25)) == pytest.approx([4, 0.5, 4])
    assert factors(steps("a", 1, 1.0), steps("a", 1, 5.0)) == pytest.approx([2, 2, 2])
    # It does not say how long several replicas of c take, nor anything of d.
    assert corrected_model(model, [steps("c", 2, 1.0), steps("d", 1, 1.0)]) is model
    assert step_s_of(corrected_model(model, [steps("a", 2, 6.0, more=1)]), steps("a", 2, 0.0, more=1)) == pytest.approx(
        6
    )


def test_of_one_shape_the_newest_observation_counts() -> None:
    def observed(num_replicas: int, step_s: float) -> Observation:
        return Observation(
            gpu_type="a", num_nodes=1, num_replicas=num_replicas, local_batch=4, step_time_s=step_s, sync_time_s=0.0
        )

    said = GoodputObservations(
        batch=BatchRange(initial=8, maximum=8),
        gradient=GradientStatistics(squared_norm=1.0, variance=1.0),
        observations=(observed(1, 1.0), observed(2, 1.0)),
    )
    found = with_observations(said, [observed(2, 3.0), observed(2, 2.0), observed(4, 1.0)])
    assert found.observations == (observed(2, 3.0), observed(4, 1.0), observed(1, 1.0))
    assert found.gradient == said.gradient
