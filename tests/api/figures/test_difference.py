"""Plans beside each other: who differs has a colour of its own, the same everywhere."""

import re
from dataclasses import replace

from api.figures.difference import render
from api.figures.request import DifferenceFigure
from models.what_if.difference import Planned
from models.what_if.variant import Variant, applied
from models.workload import Job
from solver.result import TerminationReason
from tests.models.what_if.scenes import gang_request, on, planned

REQUEST = gang_request(
    Job(id="stays", min_gpus=4, current=on(n1=(0, 1, 2, 3))), Job(id="waits", min_gpus=8), Job(id="small", min_gpus=2)
)
BASE = planned(REQUEST)


def drawn(*others: tuple[str, Planned]) -> str:
    return render(DifferenceFigure(base=BASE, others=others, format="svg")).decode()


def test_jobs_that_differ_are_coloured_in_every_panel() -> None:
    # Without rack 2 there is no room for `waits`.
    other = planned(applied(Variant(name="v", drain=("r2",)), REQUEST))
    picture = drawn(("rack 2 drained", other))
    assert "rack 2 drained" in picture
    assert "waits  (8 a)" in picture
    assert "waits  (8 a, " not in picture
    assert picture.count("drained or down (8)") == 1
    assert "stays" not in picture
    colours = re.findall(r'id="job-(\d+)">.*?fill: (#[0-9a-f]+)', picture, re.DOTALL)
    assert len({colour for key, colour in colours if key == colours[0][0]}) == 1
    assert picture == drawn(("rack 2 drained", other))


def test_at_most_three_are_drawn_and_none_without_a_plan() -> None:
    outcome = replace(BASE.outcome, plan=None, objective=None, termination=TerminationReason.INFEASIBLE)
    picture = drawn(("none", replace(BASE, outcome=outcome)), *((f"v{k}", BASE) for k in range(4)))
    assert "0 jobs in colour" in picture
    assert "2 variants not drawn" in picture
    assert "v2" in picture
    assert "v3" not in picture


def test_a_base_without_a_plan_is_drawn_empty() -> None:
    outcome = replace(BASE.outcome, plan=None, objective=None, termination=TerminationReason.INFEASIBLE)
    picture = render(
        DifferenceFigure(base=replace(BASE, outcome=outcome), others=(("better", BASE),), format="svg")
    ).decode()
    assert "free (16)" in picture
