"""The recorded inputs of the released policy: the model must reach the recorded optimum with every backend.

HiGHS and SCIP take one input of up to 512 GPUs each, besides all of 64; what they do on the others is measured by
`python -m benchmarks run --cases sia/recorded/* --solvers highs,scip`.
"""

import pytest

from benchmarks.workloads.published.sia_instances import instance_names, load_instance
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.validation import policy_issues
from models.clock import PhaseClock
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason

NAMES = instance_names()


def backends(name: str) -> tuple[str, ...]:
    """Solvers that are tried on a recorded input."""
    if "64_" in name:
        return ("highs", "scip", "decomposition")
    return {"sia512_r200": ("highs", "decomposition"), "sia512_r210": ("scip", "decomposition")}.get(
        name, ("decomposition",)
    )


@pytest.mark.slow
@pytest.mark.skipif(not NAMES, reason="the recorded inputs (shared/data/sia/instances) are not beside the checkout")
@pytest.mark.parametrize("name", NAMES)
def test_recorded_inputs_reach_the_recorded_optimum(name: str) -> None:
    recorded = load_instance(name)
    assert policy_issues(recorded.snapshot, recorded.parameters) == []
    clock = PhaseClock()
    for solver in backends(name):
        formulation = formulate_sia(recorded.snapshot, recorded.parameters, clock)
        result = formulation.solve(SolveOptions(solver=solver, relative_gap=0.0), SolveMonitor())
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective == pytest.approx(recorded.optimum, abs=1e-6)
        assert result.incumbent is not None
        assert result.objective is not None
        plan = formulation.extract(result.incumbent, clock)
        assert formulation.violations(plan, result.objective) == []
        given = {item.job_id: (item.gpu_type, item.num_gpus) for item in plan.allocations}
        assert {job: given[job] for job in recorded.forced} == {
            job: (wish.gpu_type, wish.num_gpus) for job, wish in recorded.forced.items()
        }
