"""The table of policies, and what each of its lines promises."""

import subprocess
import sys
from dataclasses import MISSING, fields
from pkgutil import resolve_name
from typing import get_type_hints

import pytest

from api.schemas.parameters import PARAMETERS
from models.clock import PhaseClock
from models.formulation import Formulation
from models.policies import POLICIES, policy_of
from models.policy import Policy
from models.workload import Job, Snapshot
from solver.registry import SOLVER_NAMES
from stowplan.errors import Issue

# The modelling layers and the solvers, by the names of their packages.
HEAVY = ("cvxpy", "pyomo", "highspy", "pyscipopt")

every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))


@every_policy
def test_its_functions_are_where_it_says_and_take_its_parameters(policy: Policy) -> None:
    issues = get_type_hints(resolve_name(policy.issues))
    formulate = get_type_hints(resolve_name(policy.formulate))
    returned = formulate.pop("return")
    assert list(issues.values()) == [Snapshot, policy.parameters, list[Issue]]
    assert list(formulate.values()) == [Snapshot, policy.parameters, PhaseClock]
    assert issubclass(returned, Formulation)


@every_policy
def test_its_parameters_choose_it_and_no_other(policy: Policy) -> None:
    parameters = policy.parameters(**policy.variant)
    assert [other.name for other in POLICIES.values() if other.chosen_by(parameters)] == [policy.name]
    assert policy_of(parameters) is policy


@every_policy
def test_its_document_has_every_parameter_that_makes_no_variant(policy: Policy) -> None:
    document = PARAMETERS[policy.name]
    parameters = document().parameters_for(policy)
    assert policy_of(parameters) is policy
    assert parameters == policy.parameters(**policy.variant)
    assert set(document.model_fields) == {field.name for field in fields(parameters)} - set(policy.variant)


@every_policy
def test_it_says_what_it_is_for(policy: Policy) -> None:
    assert all((policy.title, policy.source, policy.needs, policy.gives))
    assert set(policy.algorithms) <= set(SOLVER_NAMES)


@every_policy
def test_what_it_ignores_are_fields_of_jobs_that_may_be_left_out(policy: Policy) -> None:
    assert set(policy.ignores) <= {field.name for field in fields(Job) if field.default is not MISSING}


@pytest.mark.parametrize(
    ("code", "banned"),
    [
        ("import models.policies, solver.registry", (*HEAVY, "numpy", "scipy")),
        ("import models.validation as v; [v.named(p.issues) for p in v.POLICIES.values()]", HEAVY),
    ],
    ids=["names and documentation", "validation"],
)
def test_no_solver_is_loaded_to(code: str, banned: tuple[str, ...]) -> None:
    probe = f"import sys; {code}; print([name for name in {banned!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"loaded: {done.stdout}"
