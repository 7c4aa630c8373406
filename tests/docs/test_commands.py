"""Every command of the documentation exists, with the options that it is shown with; every link leads somewhere."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import typer
from typer.core import TyperCommand
from typer.testing import CliRunner

from api.cli.main import app as stowplan
from benchmarks.cli import app as benchmarks
from docs.tools.site import HTTP_PAGE
from tests.docs.commands import PAGES, Command, commands
from tests.paths import ROOT

# What a page may show of other software, and the test that stands for it: it runs it, or reads what it writes.
OTHERS = {
    "docker": "tests/deploy/test_files.py",
    "helm": "tests/deploy/test_chart.py",
    "kubectl": "tests/api/cli/test_kubernetes_journey.py",
    "nvidia-smi": "tests/topology/node_readers/test_nvidia_smi.py",
    "all_reduce_perf": "tests/topology/node_readers/test_nccl.py",
    "promtool": "tests/deploy/test_files.py",
    "sacct": "tests/models/cluster_state/test_slurm.py",
    "sbatch": "tests/executor/connected/slurm/test_on_slurm.py",
    "scontrol": "tests/api/cli/test_slurm_journey.py",
    "sinfo": "tests/api/cli/test_slurm_journey.py",
    "squeue": "tests/api/cli/test_slurm_journey.py",
    "bash": "tests/api/cli/test_slurm_journey.py",
}
_SHELL = {"cat", "cp", "echo", "grep", "jq", "printf"}
# Changes name commands as they were called then.
EVERY = [command for page in PAGES if page != "CHANGELOG.md" for command in commands(page)]
_METHODS = {"-X", "--request"}


def parts(program: str, *words: str, whole: bool | None = None) -> Iterator[tuple[Command, list[str]]]:
    """Words behind a program, of all commands that begin so."""
    for command in EVERY:
        if whole is None or command.is_whole is whole:
            for part in command.parts:
                if part[: 1 + len(words)] == [program, *words]:
                    yield command, part[1 + len(words) :]


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are read as they are given, and do nothing."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(("program", "app"), [(["stowplan"], stowplan), (["python", "-m", "benchmarks"], benchmarks)])
def test_commands_in_blocks_are_read(program: list[str], app: typer.Typer) -> None:
    found = list(parts(*program, whole=True))
    assert len(found) > 8
    for command, words in found:
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code == 0, f"{command}\n{answer.output}"


@pytest.mark.slow
@pytest.mark.parametrize(("program", "app"), [(["stowplan"], stowplan), (["python", "-m", "benchmarks"], benchmarks)])
def test_commands_within_text_have_these_options(program: list[str], app: typer.Typer) -> None:
    found = list(parts(*program, whole=False))
    assert len(found) > 20
    for command, words in found:
        assert unknown(app, words) == [], command


def unknown(app: typer.Typer, words: list[str]) -> list[str]:
    """What no command has: sub-commands, of which names in capitals and dots stand for any, and options."""
    level: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(level, "get_command") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name == "..." or name.isupper():
            return []
        level = level.get_command(None, name)
        if level is None:
            return [name]
    known = {"--help", *(option for one in level.params for option in (*one.opts, *one.secondary_opts))}
    return [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


def test_what_is_not_there_is_found() -> None:
    assert unknown(stowplan, ["plan", "request.json", "--figure", "x.svg", "--colour"]) == ["--colour"]
    assert unknown(stowplan, ["forecast", "trains", "x"]) == ["trains"]
    assert unknown(benchmarks, ["loads"]) == ["loads"]
    page = Command(page="x", text="A=1 .venv/bin/stowplan plan 'a b' > c && make demo | jq .  # why", is_whole=True)
    assert page.parts == [["stowplan", "plan", "a b"], ["make", "demo"], ["jq", "."]]


def test_targets_of_make_are_there() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    found = list(parts("make"))
    assert len(found) > 8
    for command, words in found:
        assert words[0] in phony[1].split(), command


def test_modules_and_extras_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = [(command, words) for command, words in parts("python", "-m")]
    for command, words in modules:
        # A wheel has the rooms under `stowplan.`.
        assert find_spec(words[0].removeprefix("stowplan.")), command
    extras = [(command, name) for command, _ in parts("pip") for name in re.findall(r"\[(\w+)\]", command.text)]
    assert len(extras) > 4
    for command, name in extras:
        assert name in project["optional-dependencies"], command


def test_requests_are_operations_of_the_service() -> None:
    paths: dict[str, Any] = json.loads((ROOT / "api" / "openapi.json").read_text())["paths"]
    patterns = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)): item for path, item in paths.items()}
    found = list(parts("curl"))
    assert len(found) > 10
    for command, words in found:
        path = next(word for word in words if "localhost:8080" in word).partition("localhost:8080")[2].partition("?")[0]
        named = [after for before, after in pairwise(words) if before in _METHODS]
        bodies = [after for before, after in pairwise(words) if before in {"-d", "--data"}]
        method = (named or ["POST" if bodies else "GET"])[0].lower()
        assert any(re.fullmatch(pattern, path) and method in item for pattern, item in patterns.items()), command
        for body in bodies:
            assert body.startswith("@") or "..." in body or json.loads(body), command


def test_other_software_is_tested_somewhere() -> None:
    ours = {"stowplan", "python", "pip", "make", "curl", *_SHELL}
    used = {part[0] for command in EVERY for part in command.parts} - ours
    assert used <= set(OTHERS), "name the test that stands for it"
    for name, path in OTHERS.items():
        assert (ROOT / path).is_file(), (name, path)


_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: str) -> set[str]:
    """What headings of a page are called in links to them."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+?)(?: \{.*\})?$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists() or path == HTTP_PAGE, f"{page}: {link}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(str(file.resolve().relative_to(ROOT))), f"{page}: {link}"
