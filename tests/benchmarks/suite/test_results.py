import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite import words
from benchmarks.suite.figures import write_figures
from benchmarks.suite.record import RunRecord, read_result
from benchmarks.suite.registry import chosen_cases
from benchmarks.suite.report import BEGIN, END, put_into, report
from benchmarks.suite.run import orders
from benchmarks.suite.summary import Ratio, Spread, ratio, summaries
from benchmarks.suite.targets import verdicts
from stowplan.errors import InputError
from tests.benchmarks.suite.records import PROTOCOL, record, result


def test_the_document_is_read_back(tmp_path: Path) -> None:
    made = result([record("sia/a", "highs", 1.0), record("sia/a", "exact", None)])
    made.write(tmp_path / "result.json")
    assert read_result(tmp_path / "result.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("spoil", "words_"),
    [
        (lambda document: document.update(schema="other/1"), "schema"),
        (lambda document: document.pop("runs"), "not a complete result"),
        (lambda document: document["runs"][0].update(surprise=1), "surprise"),
        (lambda document: document["runs"][0].update(status="fine"), "not a complete result"),
    ],
)
def test_other_documents_are_refused(tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], words_: str) -> None:
    path = tmp_path / "result.json"
    result([record("sia/a", "highs", 1.0)]).write(path)
    document = json.loads(path.read_text())
    spoil(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=words_):
        read_result(path)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_result(tmp_path / "result.json")


def test_spread_of_five() -> None:
    spread = Spread.of([3.0, 1.0, None, 2.0, 5.0, 4.0])
    assert spread is not None
    assert (spread.median, spread.p95, spread.iqr, spread.num) == pytest.approx((3.0, 4.8, 2.0, 5))
    assert Spread.of([None]) is None


def test_the_file_for_an_external_solver_does_not_count() -> None:
    run = record("sia/a", "highs", 3.0)
    assert run.cpu_s["export"] == 1.0
    assert run.total_cpu_s == pytest.approx(3.0)
    assert record("sia/a", "highs", None).total_cpu_s is None


def test_ratios_are_medians_over_pairs_of_the_same_seed_and_run() -> None:
    """Quotients 8/2, 6/1 and 9/3: the median is 4, not the ratio 8/2 of the medians by chance: 10 does not pair."""
    slow = [record("sia/a", "highs", cpu_s, run) for run, cpu_s in enumerate((8.0, 6.0, 9.0))]
    fast = [record("sia/a", "exact", cpu_s, run) for run, cpu_s in enumerate((2.0, 1.0, 3.0))]
    lone = record("sia/a", "exact", 1e-3, seed=7)
    assert ratio(slow, [*fast, lone]) == Ratio(median=4.0, is_lower_bound=False)


def test_a_reference_that_ended_at_its_limit_gives_a_lower_bound() -> None:
    slow = [record("sia/a", "highs", None)]
    fast = [record("sia/a", "exact", 0.5, run) for run in range(3)]
    assert ratio(slow, fast) == Ratio(median=(60.0 + 1.0) / 0.5, is_lower_bound=True)
    assert ratio(fast, slow) is None


def test_targets_want_every_case_proven_in_time_and_the_right_gap() -> None:
    names = ["arnold/table1/iii-even", "arnold/table1/iii-half"]
    met = result([record(name, "exact", 0.01) for name in names])
    late = result([record(names[0], "exact", 0.01), record(names[1], "exact", 0.03)])
    unproven = result([replace(record(names[0], "exact", 0.01), termination="feasible", limit="time")])
    other_gap = replace(met, protocol=replace(PROTOCOL, relative_gap=0.0))

    def judged(*results: Any) -> tuple[bool | None, int, int]:
        verdict = next(v for v in verdicts(results) if v.target.text == "Arnold, Table 1 (iii)")
        return verdict.is_met, verdict.num_met, verdict.num_cases

    assert judged(met) == (True, 2, 2)
    assert judged(late) == (False, 1, 2)
    assert judged(unproven) == (False, 0, 1)
    assert judged(other_gap) == (None, 0, 0)


def test_solvers_take_turns_and_unseeded_cases_run_one_seed() -> None:
    protocol = replace(PROTOCOL, solvers=("decomposition", "exact", "highs"), num_runs=2, seeds=(0, 1))
    made = list(orders(chosen_cases(["arnold/table1/i-even", "sia/waiting/64*"]), protocol))
    assert [(o.case.rpartition("/")[2], o.seed, o.run, o.solver) for o in made] == [
        ("64x20x3", seed, run, solver) for seed in (0, 1) for run in (0, 1) for solver in ("decomposition", "highs")
    ] + [("i-even", 0, run, solver) for run in (0, 1) for solver in ("exact", "highs")]
    assert [(o.seed, o.run) for o in made if o.modelling] == [(0, 0), (1, 0), (0, 0)]


def _spread_of_runs() -> list[RunRecord]:
    runs = []
    for k, name in enumerate(("sia/a", "sia/b", "sia/c")):
        runs += [record(name, "highs", 10.0**k * (1 + run / 10), run) for run in range(3)]
        runs += [record(name, "decomposition", 0.1 * (1 + run / 10), run) for run in range(3)]
    return [*runs, record("sia/c", "scip", None)]


def test_report_of_all_kinds_of_runs() -> None:
    text = report([result(_spread_of_runs())])
    assert "| sia/b | 3 | 11 s (11.9 s) | 110 ms (119 ms) |" in text
    assert "time *" in text
    assert "| sia/c | scip | 0/1 | no_solution_found, time | - | 1 | - | 0/1 |" in text


@pytest.mark.slow
def test_figures_of_all_kinds_of_runs(tmp_path: Path) -> None:
    written = write_figures(result(_spread_of_runs()), tmp_path)
    assert [path.name for path in written] == ["latency-sia.png", "gap-sia.png", "phases-sia.png"]
    svg = (tmp_path / "latency-sia.svg").read_text()
    assert "decomposition" in svg
    assert "not proven within limit and gap" in svg


def test_summaries_keep_the_order_of_the_runs() -> None:
    found = summaries(result(_spread_of_runs()))
    assert [(s.case.name, s.solver) for s in found][:3] == [
        ("sia/a", "highs"),
        ("sia/a", "decomposition"),
        ("sia/b", "highs"),
    ]
    assert found[0].phases() == pytest.approx({"solve": 0.55, "place": 0.55})


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0.0123456, "12.3 ms"), (0.4567, "457 ms"), (1.234, "1.23 s"), (75.4, "75.4 s"), (123.4, "123 s")],
)
def test_seconds(value: float | None, said: str) -> None:
    assert words.seconds(value) == said


def test_a_report_goes_between_the_marks_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_into(path, "new")
    put_into(path, "newer")
    assert path.read_text() == f"before\n{BEGIN}\n\nnewer\n{END}\nafter\n"
    path.write_text("no marks")
    with pytest.raises(InputError, match="has no lines"):
        put_into(path, "new")


def test_ratios_by_group_are_bounds_only_where_a_bound_decides() -> None:
    """Ratios 2, 4 and at least 61: the median is 4 whatever the third is, the largest is at least 61."""
    runs = []
    for name, slow, fast in (("sia/g/a", 2.0, 1.0), ("sia/g/b", 4.0, 1.0), ("sia/g/c", None, 1.0)):
        runs += [record(name, "highs", slow), record(name, "decomposition", fast)]
    assert "| sia/g | decomposition | 3 | 4 | 2 | ≥ 61 |" in report([result(runs)])
