"""Arnold on Table 1 and on the real fabric: `python -m benchmarks arnold-settings [--solver auto] [--figures DIR]`.

For alpha = 0, 0.1, ... 0.5: objective of Eq. 4, bound, minipods used, T, the largest spreads of DP and PP groups in
both measures, whether the check passed, and CPU time of the whole road (one run each). With `--figures` a picture of
every case at alpha 0.3, the rank of every node in it. The real fabric (leaf groups, then pods, as minipods) needs the
published data beside the checkout.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.figures.render import render
from api.figures.request import FigureRequest
from benchmarks.suite.registry import chosen_cases
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.options import SolveOptions

_ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_DRAWN = 0.3


def main(
    solver: Annotated[str, typer.Option(help="Of every solve.")] = "auto",
    limit: Annotated[float, typer.Option(help="Seconds per solve.")] = 20.0,
    figures: Annotated[Path | None, typer.Option(help="Folder for pictures.")] = None,
) -> None:
    """Plan Table 1 of Arnold and the real fabric for alpha 0 to 0.5; fails when a placement is missing."""
    options = SolveOptions(solver=solver, time_limit_s=limit, relative_gap=0.0)
    print(f"solver {solver}, limit {limit:g} s, gap 0, 1 thread, 1 run")
    print(f"{'case':26} {'alpha':>5} {'Eq. 4':>7} {'bound':>7} {'used':>4} {'T':>2} {'DP':>4} {'PP':>3} {'D(DP)':>5} "
          f"{'D(PP)':>5} {'proven':>6} {'CPU ms':>7}")  # fmt: skip
    missing = 0
    for case in chosen_cases(["arnold/table1/*", "arnold/lingjun/*"]):
        for alpha in _ALPHAS:
            made = case.request(0)
            request = PlanRequest(snapshot=made.snapshot, parameters=_with_alpha(made, alpha), options=options)
            outcome = plan(request)
            missing += outcome.plan is None
            print(_line(case.name.removeprefix("arnold/"), alpha, outcome), flush=True)
            if figures is not None and alpha == _DRAWN:
                _draw(figures / f"{case.name.replace('/', '-')}.png", request, outcome)
    if missing:
        raise typer.Exit(1)


def _with_alpha(made: PlanRequest, alpha: float) -> ArnoldParameters:
    assert isinstance(made.parameters, ArnoldParameters)  # noqa: S101 - only cases of Arnold are chosen
    return replace(made.parameters, alpha=alpha)


def _line(name: str, alpha: float, outcome: PlanOutcome) -> str:
    start = f"{name:26} {alpha:5.1f}"
    if outcome.plan is None or outcome.plan.pretraining is None or outcome.bound is None:
        return f"{start} no placement: {outcome.termination.value}"
    it = outcome.plan.pretraining
    return (
        f"{start} {it.objective_eq4:7.2f} {outcome.bound:7.2f} {it.num_minipods_used:4} {it.max_unit_spread:2} "
        f"{it.minipod_spread.dp:4} {it.minipod_spread.pp:3} {it.distance.dp:5} {it.distance.pp:5} "
        f"{'yes' if outcome.relative_gap == 0 else 'no':>6} {1e3 * outcome.times.cpu_s:7.1f}"
    )


def _draw(path: Path, request: PlanRequest, outcome: PlanOutcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render(FigureRequest(snapshot=request.snapshot, outcome=outcome, format="png")))
