"""Shares of time: optima proved by hand, a closed form, every backend, and the programs as declared."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from models.allocation.gavel.declaration import compiled
from models.allocation.gavel.instance import GavelInstance
from models.allocation.gavel.parameters import GavelMethod, GavelObjective, GavelParameters
from models.allocation.gavel.program import Program
from models.allocation.gavel.shares import classes, fairest, fullest, level_rates, shares
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import BACKENDS
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.arrays import FloatMatrix
from tests.models.allocation.gavel.scenes import formulation_of, paper, random_parameters, random_snapshot, shares_of
from tests.models.allocation.gavel.scenes import table as table_of
from tests.models.placement.scenes import SEEDS, cluster, dice, node

MAKESPAN = GavelObjective.MAKESPAN


def test_the_example_of_the_paper() -> None:
    """Section 4.1 has (0.45, 0), (0.45, 0.09), (0.09, 0.91): a least level of 8/11, 9 % above a third of all.

    Equal shares give 2.5, 2 and 1.5 steps/s. At X = (5, 0), (5, 1), (1, 10) elevenths all levels are 8/11:
    20/11 / 2.5, 16/11 / 2, 12/11 / 1.5. With prices 3 q of the V100, q of the K80 and q of the time of j2, and weights
    15/8 q, 2 q and 3 q of the jobs, every pair that is used is worth its price, and no other one more; the weights add
    up to 1 at q = 8/55, and 3 q + q + q = 8/11 is a bound.
    """
    formulation = formulation_of(paper())
    assert formulation.shares.level == pytest.approx(8 / 11)
    wanted = np.array([[5, 0], [5, 1], [1, 10]]) / 11
    types = formulation.instance.configurations.gpu_types
    np.testing.assert_allclose(formulation.shares.of_time[:, [types.index("v100"), types.index("k80")]], wanted)


def test_the_shortest_makespan_by_hand() -> None:
    """100 steps each: v = 25, 25, 25 s of the V100 and k = 0, 25, 50 s of the K80 do 4 v_0 = 3 v_1 + k_1 = 2 v_2 + k_2
    = 100 within 75 s. With prices 3/5 of the V100, 1/5 of the K80 and 1/5 of the time of j2, which add up to 1, a step
    costs no less than 3/20, 1/5 and 2/5: 300 steps take 100 (3/20 + 1/5 + 2/5) = 75 s at least."""
    formulation = formulation_of(paper(remaining_iterations=100.0), objective=MAKESPAN)
    level, unit_s = formulation.shares.level, formulation.shares.unit_s
    assert level is not None
    assert unit_s is not None
    assert unit_s / level == pytest.approx(75)
    # j1 is as well off with any mix of both.
    assert shares_of(paper(remaining_iterations=100.0), objective=MAKESPAN)["j0"] == pytest.approx({"v100": 1 / 3})


@pytest.mark.parametrize(
    ("sizes", "weights", "num_gpus"),
    [((1, 1, 1), (1, 1, 1), 2), ((1, 2, 4), (1, 1, 1), 4), ((1, 1, 2), (3, 1, 1), 4), ((4, 1), (0.5, 2), 4)],
)
def test_one_type_has_a_closed_form(sizes: tuple[int, ...], weights: tuple[float, ...], num_gpus: int) -> None:
    """On one type the level of a job is its share x GPUs / weight: W / sum w, unless somebody has all of its time."""
    jobs = tuple(Job(id=f"j{k}", min_gpus=g, weight=w) for k, (g, w) in enumerate(zip(sizes, weights, strict=True)))
    snapshot = Snapshot(cluster=cluster(node("n0", num_gpus)), jobs=jobs)
    most = min(g / w for g, w in zip(sizes, weights, strict=True))
    assert formulation_of(snapshot).shares.level == pytest.approx(min(num_gpus / sum(weights), most))


def test_what_the_worst_off_cannot_use_goes_to_others() -> None:
    """`slow` runs on k80 alone and has all of it; the least level is its 1 / (1/2). `fast` reaches that with a quarter
    of a V100 as well as with all, and gets all."""
    jobs = (
        Job(id="slow", performance=table_of({("k80", 1): 1.0})),
        Job(id="fast", performance=table_of({("k80", 1): 1.0, ("v100", 1): 8.0})),
    )
    snapshot = Snapshot(cluster=cluster(node("k", 1, "k80"), node("v", 1, "v100")), jobs=jobs)
    assert shares_of(snapshot) == {"slow": {"k80": pytest.approx(1)}, "fast": {"v100": pytest.approx(1)}}


def test_jobs_that_are_alike_have_equal_shares_in_programs_that_do_not_grow_with_them() -> None:
    def program(num_jobs: int) -> tuple[int, ...]:
        kinds = (table_of({("a", 1): 1.0, ("b", 1): 3.0}), table_of({("a", 1): 1.0, ("b", 1): 1.5}))
        jobs = tuple(Job(id=f"j{k}", performance=kinds[k % 2]) for k in range(num_jobs))
        snapshot = Snapshot(cluster=cluster(node("a0", 4, "a"), node("b0", 4, "b")), jobs=jobs)
        formulation = formulation_of(snapshot)
        rows = formulation.shares.of_time
        np.testing.assert_array_equal(rows[::2], np.broadcast_to(rows[0], rows[::2].shape))
        instance = formulation.instance
        return fairest(classes(instance, level_rates(instance)[0])).assemble().matrix.shape

    assert program(40) == program(10)


def test_a_job_of_which_only_the_size_is_known_counts_as_equally_fast() -> None:
    """Both types are worth the same to both; together the jobs have all."""
    snapshot = paper()
    sized = replace(snapshot, jobs=tuple(Job(id=job.id) for job in snapshot.jobs))
    found = shares_of(sized)
    assert [sum(row.values()) for row in found.values()] == pytest.approx([2 / 3] * 3)
    timed = replace(snapshot, jobs=tuple(Job(id=f"t{k}", remaining_s=t) for k, t in enumerate((0.0, 720.0))))
    known = formulation_of(timed, objective=MAKESPAN).shares
    # The one that is overdue counts as one round; each has a GPU.
    assert known.level == pytest.approx(1)
    assert known.unit_s == 720.0


def without_classes(instance: GavelInstance, rates: FloatMatrix) -> float | None:
    """The least level by a program of its own over single jobs and types; None where nobody can run."""
    pairs = [(int(i), int(t)) for i, t in zip(*np.nonzero(instance.offered), strict=True)]
    able = sorted({i for i, _ in pairs})
    if not able:
        return None
    needs = [instance.rows.coefficients[:, instance.configuration[i, t]] for i, t in pairs]
    rows = [[float(i == j) for i, _ in pairs] + [0.0] for j in able]
    rows += [[*row, 0.0] for row in np.array(needs).T.tolist()]
    rows += [[-rates[i, t] if i == j else 0.0 for i, t in pairs] + [1.0] for j in able]
    limits = [1.0] * len(able) + instance.rows.limits.tolist() + [0.0] * len(able)
    found = linprog([0.0] * len(pairs) + [-1.0], A_ub=rows, b_ub=limits)
    assert found.fun is not None
    return -float(found.fun)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_the_level_is_that_of_a_program_over_single_jobs_on_every_backend(seed: int) -> None:
    rng = dice(seed)
    formulation = formulation_of(random_snapshot(rng), **random_parameters(rng))
    instance = formulation.instance
    rates, _ = level_rates(instance)
    expected = without_classes(instance, rates)
    assert formulation.shares.level == (None if expected is None else pytest.approx(expected, rel=1e-6))
    if expected is None:
        return
    found = classes(instance, rates)
    for solver in BACKENDS:
        result = solve(fairest(found).assemble(), SolveOptions(solver=solver, relative_gap=1e-6), SolveMonitor())
        assert result.objective == pytest.approx(expected, rel=1e-5)
    for program in (fairest(found), fullest(found, expected)):
        assert_declared(program)


def assert_declared(program: Program) -> None:
    """Same columns in the same order; same rows, which CVXPY sorts by kind."""
    direct, declared = program.assemble(), compiled(program)
    np.testing.assert_allclose(direct.objective, declared.objective)
    np.testing.assert_array_equal(direct.upper, declared.upper)
    names = [name for group in program.groups for name in group.row_names]
    order = [declared.row_names.index(name) for name in names]
    assert sorted(order) == list(range(declared.num_rows))
    assert abs(direct.matrix.tocsr() - declared.matrix.tocsr()[order]).sum() == 0
    np.testing.assert_array_equal(direct.row_upper, declared.row_upper[order])


def test_without_shares_rounds_go_by_age_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SolveResult(
        termination=TerminationReason.NO_SOLUTION_FOUND,
        limit=Limit.TIME,
        sense=Sense.MAXIMIZE,
        incumbent=None,
        objective=None,
        bound=None,
        statistics=SolveStatistics(),
        solver="highs",
        solver_version="0",
        message="out of time",
    )
    monkeypatch.setattr("models.allocation.gavel.shares.solve", lambda *_: nothing)
    snapshot = paper()
    jobs = tuple(replace(job, age_s=100.0 * k) for k, job in enumerate(snapshot.jobs))
    formulation = formulation_of(replace(snapshot, jobs=jobs))
    assert [issue.code for issue in formulation.warnings] == ["shares_not_solved"]
    assert not shares(formulation.instance, 1.0).of_time.any()
    assert formulation.warm_start.reshape(3, 2).sum(axis=1).tolist() == [0, 1, 1]


def test_programs_and_round_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes 4 of 10 s, the second 5, and the round has the last; when all is spent there is the least."""
    now_s = 0.0
    taken = {"gavel-level": 4.0, "gavel-shares": 5.0, "gavel": 0.0}
    limits: dict[str, float] = {}

    def solving(problem: MatrixProblem, options: SolveOptions, *monitor: SolveMonitor) -> SolveResult:
        nonlocal now_s
        limits[problem.name] = options.time_limit_s
        now_s += taken[problem.name]
        return solve(problem, options, *monitor)

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now_s

    monkeypatch.setattr("models.allocation.gavel.shares.solve", solving)
    monkeypatch.setattr("models.allocation.gavel.shares.time", Clock)
    monkeypatch.setattr("models.formulation.solve", solving)
    request = PlanRequest(
        snapshot=paper(),
        parameters=GavelParameters(method=GavelMethod.ILP),
        options=SolveOptions(time_limit_s=10.0),
    )
    assert plan(request).plan is not None
    assert limits == pytest.approx({"gavel-level": 10.0, "gavel-shares": 6.0, "gavel": 1.0})
    taken["gavel-level"] = 100.0
    assert plan(request).plan is not None
    assert limits == pytest.approx({"gavel-level": 10.0, "gavel-shares": 0.1, "gavel": 0.1})


def test_shares_that_are_not_proved_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(problem: MatrixProblem, options: SolveOptions) -> SolveResult:
        return replace(solve(problem, options), termination=TerminationReason.FEASIBLE, limit=Limit.TIME)

    monkeypatch.setattr("models.allocation.gavel.shares.solve", stopped)
    formulation = formulation_of(paper())
    assert [issue.code for issue in formulation.warnings] == ["shares_not_proved"]
    assert formulation.shares.level == pytest.approx(8 / 11)
