"""Task of workers: the picture of what differs between two stored plans."""

from api.figures.difference import figure_task as draw
from api.figures.request import DifferenceFigure
from api.plans.variants import DrawnTexts, planned
from solver.monitor import SolveMonitor


def figure_task(drawn: DrawnTexts, monitor: SolveMonitor) -> bytes:
    """Draw both."""
    base, other = planned(drawn.texts.base), planned(drawn.texts.other)
    return draw(DifferenceFigure(base=base, others=(("other", other),), format=drawn.format), monitor)
