"""The table of launch backends."""

import pytest

from executor.launch.backends import BACKENDS, launch_backend


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_is_where_the_table_says_and_knows_its_name(name: str) -> None:
    assert launch_backend(name).name == name
