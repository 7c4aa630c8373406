"""Pictures of forecasters."""

from api.figures.forecast import render
from api.figures.request import ForecastFigure
from models.forecast.history import history_of
from models.forecast.learning import learn_from, report_of
from tests.models.forecast.histories import made_history


def test_a_report_is_drawn_beside_others_and_always_the_same() -> None:
    report = report_of(learn_from(history_of(made_history(300)), threads=1))
    request = ForecastFigure(reports={"one": report, "two": report}, format="svg")
    picture = render(request)
    text = picture.decode()
    assert all(f">{word}<" in text for word in ("2 histories", "one", "two", "forecaster", "same group", "last jobs"))
    assert ">60 jobs, the last of each history; forecasts when they were submitted<" in text
    assert render(request) == picture
    assert render(ForecastFigure(reports={"one": report}, format="png")).startswith(b"\x89PNG")
