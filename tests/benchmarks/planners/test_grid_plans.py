import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.planners import grid_plans


def test_shares_of_a_small_case() -> None:
    row = grid_plans.measured(grid_plans.case_of("moe-1.3b", "a40", 2))
    assert row is not None
    shares = [float(str(row[name])) for name in ("proxy", "best", "crius", "pruned")]
    assert all(0.5 < share <= 1.0 for share in shares)
    assert shares[1] >= shares[0]
    # One stage, and one for each GPU.
    assert len(str(row["grids"]).split(",")) == 2


@pytest.mark.slow
def test_plans_for_policies_are_asked_for_every_count() -> None:
    row = grid_plans.policy_plans("gpt2-350m")
    assert row["asked"] == 40
    assert 0 < int(str(row["planned"])) <= 40


def test_cases_without_a_plan_are_left_out() -> None:
    arguments = ["grid-plans", "--models", "gpt2-175b", "--products", "a10", "--gpus", "2", "--output", ""]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 1
    assert answer.stderr == "no plan fits in any of the cases\n"
