"""Task of workers: the picture of what differs between two stored plans."""

from api.figures.difference import figure_task as draw
from api.figures.request import DifferenceFigure
from api.plans.variants import PlanTexts, planned
from solver.monitor import SolveMonitor


def figure_task(texts: PlanTexts, monitor: SolveMonitor) -> bytes:
    """Draw both as SVG."""
    return draw(
        DifferenceFigure(base=planned(texts.base), others=(("other", planned(texts.other)),), format="svg"), monitor
    )
