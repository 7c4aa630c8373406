"""What options may ask for."""

import pytest

from solver.registry import AUTO, BACKENDS, EXACT, SOLVER_NAMES
from solver.solve import available_solvers, load_backend


def test_every_solver_has_a_name_that_can_be_known_without_loading_it() -> None:
    # `exact` is no backend: a policy that has an algorithm of its own takes it.
    assert set(SOLVER_NAMES) == {AUTO, EXACT, *available_solvers()}
    assert list(SOLVER_NAMES) == sorted(SOLVER_NAMES)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_is_where_the_table_says_and_knows_its_name(name: str) -> None:
    backend = load_backend(name)
    assert backend is not None
    assert backend.name == name
