"""Pictures of replays: the numbers under them, and that all is drawn."""

import numpy as np
import pytest

from api.figures.picture_format import PictureFormat
from api.figures.replay import _busy, _Clock, _clock, _runs, _shares, _steps, _waiting, render
from api.figures.request import ReplayFigure
from executor.simulation.replay import Replay
from models.allocation.gang.parameters import Backfill, GangParameters
from tests.executor.simulation.scenes import setup_of
from tests.executor.simulation.test_replay import FOUR

# a 0-100, b 100-150, c 20-50, d 150-350, on a node of 8 GPUs; submitted at 0, 10, 20 and 25.
RESULT = Replay(setup_of(FOUR, 8)).run()


def test_who_waits_and_what_is_busy_over_time() -> None:
    times, waiting = _steps(_waiting(RESULT.jobs))
    assert times.tolist() == [0, 10, 20, 25, 50, 100, 150, 350]
    assert waiting.tolist() == [0, 1, 1, 2, 2, 1, 0, 0]
    times, busy = _steps(_busy(RESULT.jobs))
    assert dict(zip(times.tolist(), busy.tolist(), strict=True)) == {0: 4, 20: 8, 50: 4, 100: 8, 150: 4, 350: 0}


def test_the_area_under_what_is_busy_is_the_time_of_gpus() -> None:
    times, busy = _steps(_busy(RESULT.jobs))
    assert float(busy[:-1] @ np.diff(times)) == sum(job.gpu_s for job in RESULT.jobs) == 4 * 330 + 8 * 50


def test_shares_and_runs_of_gpus() -> None:
    hours, shares = _shares([7200, 0, 3600, 3600], _Clock(last_s=7200, unit="hours", unit_s=3600))
    assert hours.tolist() == pytest.approx([1 / 3600, 1, 1, 2])
    assert shares.tolist() == [0.25, 0.5, 0.75, 1]
    assert list(_runs((0, 1, 3, 5, 4))) == [(0, 1), (3, 5)]


@pytest.mark.parametrize(
    ("last_s", "unit"), [(1.0, "seconds"), (179.0, "seconds"), (180.0, "minutes"), (1e4, "minutes"), (1e6, "days")]
)
def test_times_are_in_a_unit_of_which_there_are_some(last_s: float, unit: str) -> None:
    assert _clock(last_s).unit == unit


@pytest.mark.parametrize(("picture", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_every_replay_has_its_panel(picture: PictureFormat, begins: bytes) -> None:
    other = Replay(setup_of(FOUR, 8, gang=GangParameters(backfill=Backfill.NONE))).run()
    replays = {result.name: result for result in (RESULT, other)}
    assert list(replays) == ["gang", "gang, backfill none"]
    request = ReplayFigure(cluster=setup_of(FOUR, 8).cluster, replays=replays, format=picture)
    drawn = render(request)
    assert drawn.startswith(begins)
    assert render(request) == drawn
    if picture == "svg":
        # In the legend, and above its panel.
        assert [drawn.count(f">{name}<".encode()) for name in replays] == [2, 2]
