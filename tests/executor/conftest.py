"""Ranks of trainings are forked from a process that takes long to load; it begins to before the first of them."""

import pytest

from executor.extra import missing_extra


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load beside what comes first, which mostly waits."""
    wanted = any(item.get_closest_marker("training") for item in session.items)
    if wanted and not session.config.option.collectonly and missing_extra() is None:
        # Loads torch and deepspeed, which only trainings need.
        from tests.executor.trainer.launching import load_libraries

        load_libraries()
