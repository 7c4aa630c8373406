"""What options may ask for."""

from solver.registry import AUTO, EXACT, SOLVER_NAMES
from solver.solve import available_solvers


def test_every_solver_has_a_name_that_can_be_known_without_loading_it() -> None:
    # `exact` is no backend: a policy that has an algorithm of its own takes it.
    assert set(SOLVER_NAMES) == {AUTO, EXACT, *available_solvers()}
    assert list(SOLVER_NAMES) == sorted(SOLVER_NAMES)
