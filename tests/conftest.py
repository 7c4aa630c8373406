"""What holds for all tests: how examples are drawn, and what runs first."""

import os

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from stowplan.child_environment import CACHE_VARIABLE

# Tests ask anew, whatever was answered on this machine before; processes that they start, too.
os.environ[CACHE_VARIABLE] = ""
# A deadline would be one of wall time, and processes share the processors. Property tests draw new examples on every
# machine but in continuous integration, where a run must be repeatable.
settings.register_profile("shared", deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
    # Constants of our modules are tried as examples: of those that this process has loaded by then, which is not the
    # same twice. To look for them takes each process three seconds where nobody has looked before.
    vars(providers)["is_local_module_file"] = lambda _: False
else:
    settings.load_profile("shared")


# Files that share what takes long to start, here a Ray cluster, stay in one process, too.
_WITH = {"tests/solver/test_ray_engine.py": "tests/solver/test_pool.py"}


class _ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return _WITH.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile | None:
    """Share the tests file by file where that is asked for."""
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what is slow: a long test at the end would leave all workers but one with nothing to do. Of that with
    launchers and schedulers, which mostly wait: they do beside the trainings and checks that begin with them.

    Raises
    ------
    pytest.UsageError
        When a training lies where `make test` does not look for one: to collect all tests takes a minute.
    """
    for item in items:
        # They need what trainings need, and `make test` looks there for trainings alone.
        if item.nodeid.startswith("tests/executor/trainer/"):
            item.add_marker("training")
        if item.get_closest_marker("training") and not item.nodeid.startswith("tests/executor/"):
            raise pytest.UsageError(f"{item.nodeid}: trainings lie in tests/executor")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    return item.get_closest_marker("slow") is None, not item.nodeid.startswith("tests/executor/")
