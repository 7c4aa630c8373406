"""The command line: answers, messages and exit codes. Workers start slowly, so few tests plan."""

import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from api.cli import console, demo, local_worker, progress
from api.cli.exit_codes import EPILOG, ExitCode
from api.cli.files import load_request
from api.cli.local_worker import LocalPlanDoc, LocalPlanner, Watcher, local_document
from api.cli.main import COMMANDS, app
from api.cli.plan_console import print_outcome
from api.cli.pretty import pretty_json
from api.cli.quantities import parse_quantity
from api.cli.what_if import checked_variants
from api.common.errors import NotFoundError, WorkerTimeoutError
from api.common.examples import examples
from api.convert.reading import MalformedJsonError
from api.convert.snapshot import snapshot_from_document
from api.schemas.plan import PlanDoc
from api.schemas.snapshot import SnapshotDoc
from api.schemas.what_if import WhatIfDoc
from models.plan import PlanOutcome, PlanTask, Resume
from models.planning import plan
from models.policies import POLICIES
from models.workload import NodeGpus
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.result import Limit, TerminationReason
from solver.ticket import TaskCanceledError, Ticket
from stowplan import __version__
from stowplan.errors import BackendError, InputError, StowplanError, WorkerError
from tests.api.requests import arnold_request, changed, sia_request
from tests.api.warm import WarmPool
from tests.own_catalogue import CATALOGUE
from tests.paths import EXAMPLES
from topology.cluster import NodeState
from topology.serialize import cluster_from_json

FACTS = (
    *("--memory", "80GB", "--peak-flops", "989T"),
    *("--intra-node-bandwidth", "200GB/s", "--inter-node-bandwidth", "3.2Tbit/s/node"),
)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def written(folder: Path, document: Any, name: str = "request.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A request and its plan as `stowplan plan --output` writes it."""
    folder = tmp_path_factory.mktemp("planned")
    request = load_request(written(folder, sia_request())).request
    (folder / "plan.json").write_text(local_document(request, plan(request)).model_dump_json())
    return folder


@pytest.fixture
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line plans with a worker that is there."""
    monkeypatch.setattr(local_worker, "WorkerPool", lambda **_: WarmPool(pool))


def test_version_and_help() -> None:
    assert run("--version").stdout == f"stowplan {__version__}\n"
    result = run("--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout
    assert all(name in result.stdout for name in ("plan", "verify", "serve", "import", "examples", "demo"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_a_command_what_it_says_itself(name: str) -> None:
    command = COMMANDS[name].load()
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name].summary


def test_a_misspelt_command_is_recognised() -> None:
    result = run("verfy")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "Did you mean 'verify'?" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MalformedJsonError, ExitCode.BAD_INPUT),
        (NotFoundError, ExitCode.BAD_INPUT),
        (InputError, ExitCode.BAD_INPUT),
        (TaskCanceledError, ExitCode.NO_SOLUTION),
        (WorkerError, ExitCode.OUR_FAULT),
        (WorkerTimeoutError, ExitCode.NO_SOLUTION),
    ],
)
def test_errors_become_exit_codes(error: type[StowplanError], code: ExitCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error("no such luck")

    monkeypatch.setattr("api.cli.examples.examples", fail)
    result = run("examples")
    assert (result.exit_code, result.stderr) == (code, "error: no such luck\n")


@pytest.mark.slow
def test_plan_answers_with_tables_picture_and_json(tmp_path: Path) -> None:
    request = written(tmp_path, sia_request())
    figure, output = tmp_path / "deep" / "plan.svg", tmp_path / "plan.json"
    result = run("plan", request, "--figure", figure, "--output", output, "--fairness-power", "1", "--seed", "7")
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = result.stdout.splitlines()
    assert any(line.split() == ["status", "optimal"] for line in lines)
    assert any(line.startswith("j0 ") and "started" in line for line in lines)
    assert figure.read_text().startswith("<?xml")
    document = LocalPlanDoc.model_validate_json(output.read_text())
    assert document.verified
    assert (document.policy, document.options.seed, document.sense) == ("sia", 7, "maximize")
    legal = run("verify", request, output)
    assert (legal.exit_code, legal.stdout) == (ExitCode.PLANNED, "legal: 2 allocations, no violations\n")


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_plan_prints_json_for_a_bare_snapshot(tmp_path: Path) -> None:
    snapshot = written(tmp_path, arnold_request()["snapshot"])
    result = run("plan", snapshot, "--policy", "arnold", "--parameters", '{"alpha": 0.9}', "--alpha", "0.25", "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    document = LocalPlanDoc.model_validate_json(result.stdout)
    assert document.communication is not None
    assert document.communication.alpha == 0.25
    assert len(document.communication.hosts) == 4


def test_the_answer_is_printed_even_if_a_file_cannot_be_written(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", lambda _, request, __: plan(request))
    result = run("plan", planned / "request.json", "--output", "/proc/nowhere/plan.json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "/proc/nowhere/plan.json: cannot be written" in result.stderr
    assert "j0 " in result.stdout


def test_warnings_of_the_plan_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """x runs on nodes of two pods, with a tenth of the bandwidth; the first pod has two. Sia knows no deadlines."""
    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", lambda _, request, __: plan(request))
    table = {"kind": "throughput_table", "entries": [{"gpu_type": "a", "num_gpus": 8, "value": 100.0}]}
    current = {"n0": [0, 1, 2, 3], "n1": [0, 1, 2, 3]}
    request = sia_request([{"id": "x", "min_gpus": 8, "performance": table, "current": current, "deadline_s": 9.0}])
    cluster = request["snapshot"]["cluster"]
    cluster["nodes"].append({**cluster["nodes"][0], "id": "n2"})
    cluster["core_bandwidth_fraction"] = 0.1
    result = run("plan", written(tmp_path, request))
    assert result.exit_code == ExitCode.PLANNED
    first, second = result.stderr.splitlines()
    assert first.startswith("warning: /snapshot/jobs/0/deadline_s: ")
    assert second.startswith("warning: /snapshot/jobs/0: job 'x' is on nodes with 0.1 of the inter-node bandwidth")


def test_the_answer_is_written_even_if_it_cannot_be_drawn(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(*_: object) -> bytes:
        raise WorkerError("the worker died")

    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", lambda _, request, __: plan(request))
    monkeypatch.setattr(LocalPlanner, "draw", draw)
    output = tmp_path / "plan.json"
    result = run("plan", planned / "request.json", "--output", output, "--figure", tmp_path / "plan.svg")
    assert result.exit_code == ExitCode.OUR_FAULT
    assert json.loads(output.read_text())["proven_optimal"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_infeasible_has_its_own_exit_code_and_names_the_conflict() -> None:
    result = run("plan", EXAMPLES / "infeasible-reservations.json")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert "  capacity[a100]\n" in result.stdout
    assert "overbooked" in result.stdout


@pytest.mark.parametrize(
    ("termination", "limit", "code"),
    [
        (TerminationReason.OPTIMAL, None, ExitCode.PLANNED),
        (TerminationReason.FEASIBLE, Limit.TIME, ExitCode.PLANNED),
        (TerminationReason.INFEASIBLE, None, ExitCode.INFEASIBLE),
        (TerminationReason.NO_SOLUTION_FOUND, Limit.TIME, ExitCode.NO_SOLUTION),
        (TerminationReason.UNBOUNDED, None, ExitCode.OUR_FAULT),
        (TerminationReason.NUMERICAL_ERROR, None, ExitCode.OUR_FAULT),
    ],
)
def test_exit_code_follows_the_termination(
    termination: TerminationReason,
    limit: Limit | None,
    code: ExitCode,
    planned: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_: LocalPlanner, request: Any, watcher: Watcher) -> PlanOutcome:
        watcher.on_progress(None, 0.0)
        outcome = plan(request)
        return replace(
            outcome, termination=termination, limit=limit, plan=outcome.plan if termination.has_incumbent else None
        )

    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", answer)
    result = run("plan", planned / "request.json")
    assert result.exit_code == code, result.output
    assert termination.replace("_", " ") in result.stdout


def test_a_fault_of_ours_is_exit_code_1(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> PlanOutcome:
        raise BackendError("the solver broke")

    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", fail)
    result = run("plan", planned / "request.json")
    assert (result.exit_code, result.stderr) == (ExitCode.OUR_FAULT, "error: the solver broke\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere.json"], "/nowhere.json: cannot be read"),
        (["{request}", "--policy", "arnold"], "is a request for policy 'sia', not 'arnold'"),
        (["{snapshot}"], f"names no policy; choose one of {list(POLICIES)}"),
        (["{request}", "--solver", "gurobi"], "/options/solver: is \"gurobi\"; must be 'auto', "),
        (["{request}", "--time-limit", "-1"], "/options/time_limit_s: is -1.0; must be above 0"),
        (["{request}", "--fairness-power", "0"], "/parameters/fairness_power: is 0"),
        (["{request}", "--alpha", "0.5"], "/parameters/alpha: there is no field 'alpha' here"),
        (["{request}", "--parameters", "[1]"], "--parameters must be a JSON object"),
        (["{request}", "--parameters", "{"], "--parameters is not JSON"),
        (["{request}", "--figure", "plan.pdf"], "--figure is 'plan.pdf'; must end in .svg or .png"),
    ],
)
def test_bad_input_is_exit_code_2_and_says_what_is_wrong(
    arguments: list[str], message: str, planned: Path, tmp_path: Path
) -> None:
    places = {"request": planned / "request.json", "snapshot": written(tmp_path, sia_request()["snapshot"])}
    result = run(
        "plan",
        *(argument.format(**places) if argument[0] == "{" and "}" in argument else argument for argument in arguments),
    )
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_every_issue_has_a_line_with_its_pointer(tmp_path: Path) -> None:
    broken = changed(sia_request(), "/snapshot/jobs/1/min_gpus", 0)
    broken = changed(broken, "/snapshot/cluster/nodes/0/gpu_type", "b")
    result = run("plan", written(tmp_path, changed(broken, "/options", {"sed": 1})))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "  /snapshot/jobs/1/min_gpus: is 0; must be at least 1" in result.stderr
    assert "  /options/sed: there is no field 'sed' here; did you mean 'seed'?" in result.stderr


def test_a_warning_beside_an_error_is_marked(tmp_path: Path) -> None:
    result = run("plan", written(tmp_path, sia_request(policy="horizon", parameters={"alpha": 0.3})))
    told, *lines = result.stderr.splitlines()
    assert told.endswith("the request has 1 error")
    marks = [line.split("/snapshot/")[0] for line in lines]
    assert marks == ["  warning: ", "  "]


def test_verify_lists_every_violation(planned: Path, tmp_path: Path) -> None:
    wrong = {"allocations": [{"job_id": "j0", "gpus": {"n0": [0, 1], "n9": [0]}}, {"job_id": "x", "gpus": {"n0": [0]}}]}
    allocations = written(tmp_path, wrong)
    result = run("verify", planned / "request.json", allocations)
    assert result.exit_code == ExitCode.ILLEGAL
    assert all(rule in result.stdout for rule in ("unknown_node", "unknown_job", "gpu_taken_twice"))
    document = json.loads(run("verify", planned / "request.json", allocations, "--json").stdout)
    assert document["legal"] is False
    assert {"unknown_node", "unknown_job", "gpu_taken_twice"} <= {issue["code"] for issue in document["violations"]}


def test_verify_points_into_the_placement(planned: Path, tmp_path: Path) -> None:
    """The number of GPUs follows from the GPUs: it is no field of the document."""
    allocations = written(tmp_path, {"allocations": [{"job_id": "j0", "gpus": {}}]})
    document = json.loads(run("verify", planned / "request.json", allocations, "--json").stdout)
    assert {(issue["code"], issue["pointer"]) for issue in document["violations"]} == {
        ("below_min_gpus", "/allocations/0/gpus")
    }


def test_of_many_errors_the_first_are_printed(tmp_path: Path) -> None:
    request = written(tmp_path, sia_request([{"id": f"j{k}"} for k in range(100)]))
    result = run("plan", request)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stderr.count("has no performance") == 40
    assert result.stderr.endswith("  and 60 more\n")


def test_serve_says_its_defaults() -> None:
    words = " ".join(run("serve", "--help").stdout.replace("│", " ").split())
    assert "Port to listen on; 0 for any free one. [default: (8080)]" in words
    assert "[default: (stowplan.sqlite)]" in words
    assert "STOWPLAN_SHUTDOWN_S" in words


def test_verify_goes_by_the_calendar(planned: Path, tmp_path: Path) -> None:
    request = json.loads((planned / "request.json").read_text())
    request["snapshot"]["taken_at"] = "2026-12-01T00:00:00Z"
    request["snapshot"]["calendar"] = [
        {"name": "r", "kind": "reservation", "nodes": ["n0"], "from_time": "2026-12-01T00:30:00Z"}
    ]
    request["snapshot"]["jobs"][0]["lasting"] = {"probabilities": [0.9], "seconds": [1800.0]}
    (tmp_path / "calendar.json").write_text(json.dumps(request))
    allocations = written(tmp_path, {"allocations": [{"job_id": "j0", "gpus": {"n0": [0, 1]}}]})
    result = run("verify", tmp_path / "calendar.json", allocations)
    assert result.exit_code == ExitCode.ILLEGAL
    assert "calendar_not_honoured" in result.stdout
    assert run("verify", tmp_path / "calendar.json", allocations, "--epsilon", "0.1").exit_code == ExitCode.PLANNED


def test_verify_accepts_a_plan(planned: Path) -> None:
    result = run("verify", planned / "request.json", planned / "plan.json", "--json")
    assert result.exit_code == ExitCode.PLANNED
    assert json.loads(result.stdout) == {"legal": True, "violations": []}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"plan": []}, "has no list of allocations"),
        ([1], "must be an object"),
        ({"allocations": [{"job_id": "j0", "gpus": {"n0": [-1]}}]}, "/allocations/0/gpus/n0/0: is -1"),
        ({"allocations": [{"gpus": {"n0": [0]}}]}, "/allocations/0/job_id: is missing"),
    ],
)
def test_verify_refuses_what_is_no_placement(document: Any, message: str, planned: Path, tmp_path: Path) -> None:
    result = run("verify", planned / "request.json", written(tmp_path, document))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr


def test_what_is_no_json_is_refused(planned: Path, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("{")
    result = run("verify", tmp_path / "request.json", planned / "plan.json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "is not JSON" in result.stderr


def test_examples_are_listed_and_printed() -> None:
    listing = run("examples").stdout
    for example in examples():
        assert example.id in listing
        assert json.loads(run("examples", example.id).stdout) == example.request
    missing = run("examples", "nothing")
    assert missing.exit_code == ExitCode.BAD_INPUT
    assert "there is no example 'nothing'" in missing.stderr


@pytest.mark.slow
def test_standard_input(planned: Path) -> None:
    """`-` is the standard input of the process, so it needs one of its own."""
    command = [sys.executable, "-m", "api.cli.main", "verify", "-", str(planned / "plan.json")]
    text = (planned / "request.json").read_bytes()
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"legal: 2 allocations, no violations\n")


HOSTS = "host,pod,leaf,state\nh1,A,1,\nh2,A,2,drained\nh3,B,1,up\n"


def imported(folder: Path, *arguments: str, format_: str = "csv") -> Result:
    path = folder / "hosts.csv"
    path.write_text(HOSTS)
    return run("import", format_, path, "--gpu-type", "h800", "--gpus-per-node", "8", *arguments)


def test_import_writes_our_json(tmp_path: Path) -> None:
    result = imported(tmp_path, *FACTS, "--minipod-tier", "leaf")
    assert result.exit_code == 0, result.output
    cluster = cluster_from_json(json.loads(result.stdout), "output")
    assert [node.path for node in cluster.nodes] == [("A", "1"), ("A", "2"), ("B", "1")]
    assert cluster.nodes[1].state is NodeState.DRAINED
    assert cluster.minipod_tier == "leaf"
    (kind,) = cluster.gpu_types
    assert (kind.name, kind.memory_bytes, kind.peak_flops_per_s) == ("h800", 80_000_000_000, 989e12)
    assert (kind.intra_node_bandwidth_bytes_per_s, kind.inter_node_bandwidth_bytes_per_s) == (200e9, 400e9)


@pytest.mark.parametrize("text", ["3.2Tbit/s/node", "400Gbit/s/gpu", "8x400Gbit/s", " 8 x 50GB/s "])
def test_import_is_told_of_what_a_bandwidth_is(tmp_path: Path, text: str) -> None:
    result = imported(tmp_path, *FACTS[:6], "--inter-node-bandwidth", text)
    assert result.exit_code == 0, result.output
    (kind,) = cluster_from_json(json.loads(result.stdout), "output").gpu_types
    assert kind.inter_node_bandwidth_bytes_per_s == 400e9


def test_import_takes_gpu_types_from_another_document_and_wraps_a_snapshot(tmp_path: Path) -> None:
    first = tmp_path / "cluster.json"
    assert imported(tmp_path, *FACTS, "--output", str(first)).exit_code == 0
    result = imported(tmp_path, "--gpu-types", str(first), "--snapshot", "--tier-column", "pod")
    snapshot = snapshot_from_document(SnapshotDoc.model_validate_json(result.stdout))
    assert snapshot.jobs == ()
    assert snapshot.cluster.gpu_types == cluster_from_json(json.loads(first.read_text()), "first").gpu_types
    assert [tier.name for tier in snapshot.cluster.tiers] == ["pod"]


@pytest.mark.parametrize(
    ("arguments", "format_", "message"),
    [
        ((), "csv", "give --memory, --peak-flops, --intra-node-bandwidth, --inter-node-bandwidth, or --gpu-types FILE"),
        (FACTS[:4], "csv", "give --intra-node-bandwidth, --inter-node-bandwidth"),
        ((*FACTS[:1], "much", *FACTS[2:]), "csv", "--memory is 'much'; must be a number above 0 such as 80GiB"),
        ((*FACTS[:6], "--inter-node-bandwidth", "400Gbit/s"), "csv", "400Gbit/s/gpu (times 8), or 8x400Gbit/s"),
        (
            FACTS,
            "xml",
            "there is no format 'xml'; the formats are ['csv', 'ibnetdiscover', 'kubernetes', 'slurm', 'topograph']",
        ),
        ((*FACTS, "--id-column", "host"), "slurm", "--id-column and --tier-column go with csv"),
        (FACTS, "slurm", "hosts.csv:1"),
        ((*FACTS, "--minipod-tier", "rack"), "csv", "no tier is called 'rack'"),
        ((*FACTS, "--gpus-per-node", "0"), "csv", "Invalid value for '--gpus-per-node'"),
        ((*FACTS, "--gpu-type", ""), "csv", "/gpu_types/0/name: is empty; must have at least 1 character"),
        (("--gpu-types", "/nowhere.json"), "csv", "/nowhere.json: cannot be read"),
    ],
)
def test_import_says_what_is_missing_or_wrong(
    arguments: tuple[str, ...], format_: str, message: str, tmp_path: Path
) -> None:
    result = imported(tmp_path, *arguments, format_=format_)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr
    assert result.stdout == ""


def test_import_takes_a_gpu_from_the_catalogue_or_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(CATALOGUE)
    assert imported(tmp_path, "--gpu-type", "X1").exit_code == ExitCode.BAD_INPUT
    arguments = (("--gpu-type", "h100"), ("--gpu-type", "X1", "--catalogue", str(own)))
    results = [imported(tmp_path, *each) for each in arguments]
    assert [result.exit_code for result in results] == [0, 0], results[1].output
    shipped, added = (cluster_from_json(json.loads(result.stdout), "output").gpu_types for result in results)
    assert (shipped[0].name, added[0].name) == ("h100", "X1")
    assert (shipped[0].memory_bytes, shipped[0].peak_flops_per_s) == (80_000_000_000, 989.5e12)
    assert replace(added[0], name="h100") == shipped[0]


@pytest.mark.parametrize(
    "command", ["plan", "compare-solvers", "parallel", "verify", "import", "deploy", "redeploy", "serve"]
)
def test_every_command_that_looks_up_names_takes_a_catalogue(command: str) -> None:
    assert "--catalogue" in run(command, "--help").stdout


def test_gpu_type_must_be_in_the_library(tmp_path: Path) -> None:
    library = written(tmp_path, sia_request(), "library.json")
    result = imported(tmp_path, "--gpu-types", str(library))
    assert "library.json: has no GPU type 'h800'; it has ['a']" in result.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GB", 80e9),
        ("312T", 312e12),
        ("312TFLOP/s", 312e12),
        ("400Gbit/s", 50e9),
        ("1.5e9", 1.5e9),
        ("64kib", 65536),
        ("7", 7),
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert parse_quantity(text, "x") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "1.2.3", "80 GX", "nan", "inf", "1e999", "80GBB"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(InputError, match="x is "):
        parse_quantity(text, "x")


@pytest.mark.parametrize("value", [{}, [], {"a": [1, 2, {"b": None}]}, {"k" * 130: ["v" * 130] * 2}, "é\n", 1.5])
def test_pretty_json_says_the_same_in_short_lines(value: Any) -> None:
    text = pretty_json(value)
    assert json.loads(text) == value
    assert max(map(len, pretty_json({"nodes": [{"id": f"n{k}", "num_gpus": 8} for k in range(99)]}).split("\n"))) <= 118


def test_pretty_json_of_a_long_list_has_an_item_a_line() -> None:
    value = {"jobs": [{"id": f"j{k}", "current": {"n" * 130: [0, 1]}} for k in range(1000)], "taken_at": None}
    lines = pretty_json(value).split("\n")
    assert json.loads("".join(lines)) == value
    assert len(lines) == 1000 + len(["{", "jobs: [", "],", "taken_at", "}"])


def slow_request(folder: Path) -> Path:
    """A job on many uneven minipods: solvers find a plan at once and need minutes to prove it."""
    random_ = random.Random(5)  # noqa: S311 - seeded, not secret
    weights = [random_.gammavariate(6, 1) for _ in range(60)]
    sizes = [round(1333 * weight / sum(weights)) for weight in weights]
    document = arnold_request()
    nodes = [
        {"id": f"m{k}n{i}", "gpu_type": "a", "num_gpus": 2, "path": [f"m{k}"]}
        for k, size in enumerate(sizes)
        for i in range(size)
    ]
    document = changed(document, "/snapshot/cluster/nodes", nodes)
    document = changed(document, "/snapshot/jobs/0", {"id": "llm", "parallelism": {"tp": 2, "pp": 12, "dp": 100}})
    document = changed(document, "/parameters/alpha", 0.1)
    options = {"solver": "highs", "relative_gap": 0.0, "time_limit_s": 50.0}
    return written(folder, changed(document, "/options", options))


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_ctrl_c_keeps_the_best_plan(tmp_path: Path) -> None:
    request = load_request(slow_request(tmp_path)).request
    seen: list[str] = []

    def interrupt_once(progress: Progress | None, _: float) -> None:
        if progress is not None and progress.objective is not None and not seen:
            seen.append("interrupted")
            raise KeyboardInterrupt

    with LocalPlanner() as planner:
        outcome = planner.plan(request, Watcher(on_progress=interrupt_once, on_stop=lambda: seen.append("stopping")))
    assert seen == ["interrupted", "stopping"]
    assert (outcome.termination, outcome.limit) == (TerminationReason.FEASIBLE, Limit.INTERRUPTED)
    assert outcome.plan is not None


class FakePool:
    """Answers with what it was given, ticket by ticket."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self._answers = answers
        self.tasks: list[PlanTask] = []

    def submit(self, name: str, task: PlanTask, deadline_s: float, *, promised: bool = False) -> Ticket:
        assert deadline_s > 0
        assert promised == bool(self.tasks)
        self.tasks.append(task)
        ticket = Ticket(1, name, b"", deadline_s, None, None)
        answer, incumbent = next(self._answers)
        ticket._advance(Progress(elapsed_s=2.0, objective=3.0, bound=1.0, incumbent=incumbent))
        if isinstance(answer, BaseException):
            ticket.fail(answer)
        else:
            ticket._finish(answer)
        return ticket

    def close(self) -> None:
        pass


def planner_with(*answers: Any) -> tuple[LocalPlanner, FakePool]:
    planner, pool = LocalPlanner(), FakePool(iter(answers))
    planner._pool = pool  # type: ignore[assignment]  # stands in for a pool of processes
    return planner, pool


WATCHER = Watcher(on_progress=lambda *_: None, on_stop=lambda: None)


def test_a_second_ctrl_c_quits(planned: Path) -> None:
    planner, _ = planner_with((KeyboardInterrupt(), None))
    with pytest.raises(KeyboardInterrupt):
        planner.plan(load_request(planned / "request.json").request, WATCHER)


def test_quitting_is_exit_code_130(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quit_(*_: object) -> PlanOutcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalPlanner, "__enter__", lambda planner: planner)
    monkeypatch.setattr(LocalPlanner, "plan", quit_)
    assert run("plan", planned / "request.json").exit_code == ExitCode.QUIT


def test_a_killed_worker_is_finished_by_another_from_its_last_incumbent(planned: Path) -> None:
    request = load_request(planned / "request.json").request
    outcome = plan(request)
    point = np.array([1.0, 0.0])
    planner, pool = planner_with((WorkerError("killed"), point), (outcome, None))
    assert planner.plan(request, WATCHER) == outcome
    resume = pool.tasks[1].resume
    assert isinstance(resume, Resume)
    assert resume.incumbent is point
    assert resume.bound == 1.0


def test_a_killed_worker_without_incumbent_is_an_error(planned: Path) -> None:
    planner, _ = planner_with((WorkerError("killed"), None))
    with pytest.raises(WorkerError, match="killed"):
        planner.plan(load_request(planned / "request.json").request, WATCHER)


def test_an_interruption_that_nobody_asked_for_is_the_deadline(planned: Path) -> None:
    request = load_request(planned / "request.json").request
    stopped = replace(plan(request), termination=TerminationReason.FEASIBLE, limit=Limit.INTERRUPTED)
    planner, _ = planner_with((stopped, None))
    assert planner.plan(request, WATCHER).limit is Limit.DEADLINE


def test_tables_shorten_what_is_long(planned: Path) -> None:
    request = load_request(planned / "request.json").request
    outcome = plan(request)
    assert outcome.plan is not None
    slices = tuple(NodeGpus(node=f"n[{k}]", gpus=(0, 1, 2, 5)) for k in range(6))
    wide = replace(outcome.plan, allocations=(replace(outcome.plan.allocations[0], gpus=slices),))
    screen = Console(width=200, file=io.StringIO())
    print_outcome(screen, "sia", replace(outcome, plan=wide))
    assert isinstance(screen.file, io.StringIO)
    assert "n[0][0-2,5], n[1][0-2,5], n[2][0-2,5], n[3][0-2,5], +2 nodes" in screen.file.getvalue()


def test_progress_line_shows_incumbent_bound_and_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(width=100, file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(console, "errors", lambda: screen)
    with progress.progress_line() as watcher:
        watcher.on_progress(None, 0.1)
        watcher.on_progress(Progress(elapsed_s=1.0, objective=4.0, bound=3.0), 1.5)
        watcher.on_stop()
    assert isinstance(screen.file, io.StringIO)
    assert "stopping (Ctrl-C again quits)" in screen.file.getvalue()


def test_serve_refuses_bad_settings() -> None:
    result = run("serve", "--port", "70000")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "port is 70000; must be 0 (any free one) to 65535" in result.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_demo_runs_examples_through_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tuple(example for example in examples() if example.id in ("quickstart", "infeasible-reservations"))
    monkeypatch.setattr(demo, "examples", lambda: chosen)
    monkeypatch.setenv("STOWPLAN_WORKERS", "1")
    result = run("demo", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "resnet" in result.stdout
    assert "capacity[a100]" in result.stdout
    assert all(f"{k}/2 {example.id}: " in result.stdout for k, example in enumerate(chosen, start=1))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(
        f"{example.id}.{end}" for example in chosen for end in ("json", "request.json", "svg", "png")
    )


@pytest.mark.slow
def test_demo_shows_variants_beside_their_plan(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_service", lambda: nullcontext(client.base_url.port))
    chosen = tuple(example for example in examples() if example.id == "ahead-two-weeks")
    monkeypatch.setattr(demo, "examples", lambda: chosen)
    result = run("demo", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "price of pretrain-175b there" in result.stdout
    assert "rules forbid 'pretrain-175b' there" in result.stdout
    found = WhatIfDoc.model_validate_json((tmp_path / "ahead-two-weeks.what-if.json").read_text())
    assert [row.plan is None for row in found.variants] == [False, False, True]
    for k in range(2):
        assert "<svg" in (tmp_path / f"ahead-two-weeks.what-if-{k}.svg").read_text()
    # What it asked can be asked again, of the request that it wrote.
    asked = load_request(tmp_path / "ahead-two-weeks.request.json")
    assert len(checked_variants(asked, {}, [], tmp_path / "ahead-two-weeks.variants.json")) == 3
    # None of them forbidden is not what it demonstrates. What it does with that is tested below.
    monkeypatch.setattr(demo, "_VARIANTS", {"ahead-two-weeks": ({"name": "nothing"},)})
    plan = PlanDoc.model_validate_json((tmp_path / "ahead-two-weeks.json").read_text())
    port = client.base_url.port
    assert port is not None
    faults = list(demo._compare(plan, "ahead-two-weeks", port, tmp_path, Console(file=io.StringIO())))
    assert faults == ["ahead-two-weeks: none of the variants is forbidden"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_demo_fails_when_an_answer_is_not_as_expected(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Posted to a service that is there; that `demo` starts one is tested above."""
    monkeypatch.setattr(demo, "_service", lambda: nullcontext(client.base_url.port))
    infeasible = next(example for example in examples() if example.id == "infeasible-reservations")
    broken = replace(infeasible, id="broken", request={"policy": "sia"})
    monkeypatch.setattr(demo, "examples", lambda: (replace(infeasible, id="renamed"), broken))
    result = run("demo", "--output", tmp_path / "out")
    assert result.exit_code == ExitCode.OUR_FAULT
    assert "renamed: ended as infeasible, not succeeded" in result.stdout
    assert "broken: POST answered 422" in result.stdout


def test_exit_codes_are_those_of_the_help() -> None:
    for code in ExitCode:
        assert f"{code.value} " in EPILOG
