"""Rows of `python -m benchmarks joint-recomputation`."""

from benchmarks.planners.joint_recomputation import case_row


def test_one_after_the_other_is_within_the_gap_of_the_program() -> None:
    row = case_row("llama3.2-1b", "a10", 4, 1, 1, 8, time_limit_s=60)
    assert row is not None
    assert "recomputing" in str(row["apart"])
    assert 0 <= float(str(row["gap %"])) < 10
    assert float(str(row["together_s"])) <= float(str(row["apart_s"])) * (1 + 1e-6)


def test_what_fits_nowhere_has_no_row() -> None:
    assert case_row("llama2-70b", "a100-40gb", 1, 1, 1, 4, time_limit_s=1) is None
