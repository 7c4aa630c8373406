from dataclasses import replace

import pytest

from benchmarks.suite.compare import Comparison, Verdict, compare, is_beyond_noise
from benchmarks.suite.record import RunRecord, Status
from benchmarks.suite.summary import Spread
from tests.benchmarks.suite.records import PROTOCOL, record, result


def found(before: list[RunRecord], after: list[RunRecord]) -> Comparison:
    return compare(result(before), result(after))


def timed(*cpu_s: float) -> list[RunRecord]:
    return [record("sia/a", "highs", value, run) for run, value in enumerate(cpu_s)]


def verdicts(comparison: Comparison) -> dict[str, Verdict]:
    return {item.what: item.verdict for item in comparison.differences}


def test_twice_the_time_is_slower_and_the_way_back_faster() -> None:
    assert verdicts(found(timed(1.0, 1.0, 1.0), timed(2.0, 2.0, 2.0))) == {
        "CPU": Verdict.SLOWER,
        "CPU of solve": Verdict.SLOWER,
        "CPU of place": Verdict.SLOWER,
    }
    assert set(verdicts(found(timed(2.0, 2.0, 2.0), timed(1.0, 1.0, 1.0))).values()) == {Verdict.FASTER}


def test_a_shift_within_the_spread_of_either_side_is_noise() -> None:
    """Medians 1.0 and 1.5: quartiles of the second are 1.15 and 2.0, a range of 0.85 that explains the shift."""
    assert found(timed(1.0, 1.0, 1.0), timed(0.8, 1.5, 2.5)).differences == ()
    assert verdicts(found(timed(1.0, 1.0, 1.0), timed(1.5, 1.5, 1.5)))


def test_ten_per_cent_are_noise_however_steady_the_runs() -> None:
    steady = Spread(median=1.0, p95=1.0, iqr=0.0, num=5)
    assert not is_beyond_noise(steady, replace(steady, median=1.09), 0.0)
    assert is_beyond_noise(steady, replace(steady, median=1.11), 0.0)


def test_few_runs_need_half_as_much_again() -> None:
    single = Spread(median=1.0, p95=1.0, iqr=0.0, num=1)
    assert not is_beyond_noise(single, replace(single, median=1.4), 0.0)
    assert is_beyond_noise(single, replace(single, median=1.6), 0.0)


def test_a_tenth_of_a_millisecond_is_no_change() -> None:
    assert found(timed(1e-4, 1e-4, 1e-4), timed(4e-4, 4e-4, 4e-4)).differences == ()


def test_memory() -> None:
    more = [replace(run, peak_memory_bytes=2**29) for run in timed(1.0, 1.0, 1.0)]
    assert verdicts(found(timed(1.0, 1.0, 1.0), more)) == {"peak MiB": Verdict.LARGER}


def test_claims_are_compared_without_statistics() -> None:
    before = timed(1.0, 1.0, 1.0)
    after = [replace(run, bound=2.0 - 1e-6) for run in before]
    assert verdicts(found(before, after)) == {"bound, seed 0": Verdict.DIFFERENT}
    rounded = [replace(run, objective=2.0 + 1e-12) for run in before]
    assert found(before, rounded).differences == ()


def test_a_lost_proof_is_broken_and_a_new_one_mended() -> None:
    proven, lost = timed(1.0), [record("sia/a", "highs", None)]
    assert verdicts(found(proven, lost))["termination, seed 0"] is Verdict.BROKEN
    assert verdicts(found(lost, proven))["termination, seed 0"] is Verdict.MENDED
    withheld = [replace(proven[0], status=Status.WITHHELD, checked=False)]
    assert verdicts(found(proven, withheld))["check, seed 0"] is Verdict.BROKEN


def test_remarks_say_what_stands_in_the_way() -> None:
    before = result([*timed(1.0), record("sia/b", "highs", 1.0)])
    after = result(timed(1.0))
    after = replace(
        after,
        environment=replace(after.environment, cpu="another", versions={"highs": "2"}),
        protocol=replace(PROTOCOL, limit_s=1.0),
    )
    comparison = compare(before, after)
    assert comparison.num_pairs == 1
    for words in ("other machine: cpu", "highs 1 and 2", "limit_s 60.0 and 1.0", "only in the first: sia/b (highs)"):
        assert any(words in remark for remark in comparison.remarks), words


@pytest.mark.parametrize("num", [0, 1, 2])
def test_equal_results_do_not_differ(num: int) -> None:
    runs = timed(*[1.0 + 0.1 * k for k in range(num)])
    assert found(runs, runs).differences == ()
