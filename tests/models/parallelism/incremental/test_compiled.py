"""What is compiled chooses what NumPy chooses, bit for bit, and is used where it is of the sources that are there."""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental import compiled, tables
from models.parallelism.incremental.compiled import CompiledSearch
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.folding import Part, relayouts, skeleton_of
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions, Scaling
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.progress import searches
from models.parallelism.incremental.search import Search
from models.parallelism.incremental.selection import Balanced
from models.parallelism.incremental.shrink import shrink
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.software import Software
from tests.models.parallelism.incremental.scenes import H100, gpus_of, job, models, plans, symmetric
from tests.paths import ROOT

pytestmark = pytest.mark.slow

NAME = "compiled_search"
SOURCES = Path(compiled.__file__).with_name("cpp")
# Its fixtures are the same for all examples.
EXAMPLES = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _compiles() -> bool:
    """Whether there is the C++ compiler that setuptools takes, with Python's headers."""
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX"))
    command = [*compiler, "-fsyntax-only", "-I", sysconfig.get_path("include"), "-x", "c++", "-"]
    text = b"#include <Python.h>\n#include <vector>\n"
    return (
        shutil.which(compiler[0]) is not None
        and subprocess.run(command, input=text, capture_output=True, timeout=60).returncode == 0
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Built as an installation builds it, in a copy of what that reads."""
    if not _compiles():
        pytest.skip("no C++ compiler with Python's headers here: what is compiled is optional")
    tree = tmp_path_factory.mktemp("tree")
    for folder in (ROOT / "shipping", SOURCES):
        shutil.copytree(folder, tree / folder.relative_to(ROOT))
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree / file)
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", "lib"]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=120)
    (library,) = (tree / "lib").rglob(f"{NAME}.*")
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with(core: ModuleType | None) -> None:
    """Use a compiled form, or none, and forget what was found by another."""
    compiled.core = core
    tables.kept.clear()
    searches.clear()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    core = compiled.core
    yield
    _with(core)


@st.composite
def questions(draw: st.DrawFn) -> tuple[PerformanceModel, ParallelPlan, list[Gpu], IncrementalOptions]:
    """A job of equal layers on up to four nodes of one kind, and GPUs that are released for it."""
    model = draw(models().filter(lambda drawn: len(set(drawn.profile.layers)) == 1))
    fabric = model.fabric
    hosts = {name: replace(host, intra_bytes_per_s=80.0) for name, host in fabric.hosts.items()}
    model = replace(
        model,
        profile=replace(
            model.profile,
            zero_stage=draw(st.integers(0, 3)),
            micro_batch=draw(st.sampled_from([None, 1, 2])),
            software=draw(st.sampled_from(list(Software))),
            sequence_parallel=draw(st.booleans()),
            working_partitioned_bytes=draw(st.sampled_from([0.0, 3.0])),
        ),
        coefficients=replace(model.coefficients, scale_loss=draw(st.sampled_from([0.0, 0.1]))),
        fabric=replace(fabric, hosts=hosts, minipod_depth=draw(st.sampled_from([None, 1]))),
        send_receive=draw(st.booleans()),
    )
    plan = draw(plans(model))
    others = [(node, gpu) for node in sorted(hosts) for gpu in range(4) if (node, gpu) not in plan.gpus]
    released = draw(st.lists(st.sampled_from(others), min_size=1, max_size=8, unique=True))
    scaling = draw(st.sampled_from(list(Scaling)))
    return model, plan, released, IncrementalOptions(tolerance=draw(st.sampled_from([0.0, 0.05])), scaling=scaling)


def _found(
    model: PerformanceModel, plan: ParallelPlan, released: Sequence[Gpu], options: IncrementalOptions
) -> list[object]:
    """All plans that are among the best after every prefix, and those of the released GPUs laid out anew."""
    problem = Problem.of(model, plan, options, added=released)
    search = Search(problem.tables, problem.landscape, options)
    parts = [
        Part(gpus=gpus, degree=degree, origin=s)
        for s, (gpus, degree) in enumerate(zip(problem.gpus, problem.degree.tolist(), strict=True))
    ]
    growth = search.start(
        Balanced(
            skeleton=skeleton_of(parts),
            layers=tuple(stage.num_layers for stage in plan.stages),
            batch=problem.tables.num_micro_batches.tolist().index(plan.num_micro_batches),
            time_s=model.iteration(plan).total_s,
        )
    )
    found = [_facts(known) for known in growth.best.plans]
    available = problem.gpus.sum(axis=0)
    for node, _ in released:
        available = available + [node == other for other in problem.landscape.nodes]
        growth = search.step(growth, available)
        found += [_facts(known) for known in growth.best.plans]
    anew = search.relayout(available)
    return [*found, anew and _facts(anew)]


def _facts(plan: Balanced) -> object:
    own = plan.skeleton
    arrays = own.gpus.tolist(), own.degree.tolist(), own.repeats.tolist()
    return plan.time_s, plan.batch, plan.layers, own.origin, arrays


@EXAMPLES
@given(questions())
def test_choices_are_those_of_numpy(
    built: ModuleType, question: tuple[PerformanceModel, ParallelPlan, list[Gpu], IncrementalOptions]
) -> None:
    _with(None)
    expected = _found(*question)
    _with(built)
    assert _found(*question) == expected


@EXAMPLES
@given(questions())
def test_times_are_those_of_the_model(
    built: ModuleType, question: tuple[PerformanceModel, ParallelPlan, list[Gpu], IncrementalOptions]
) -> None:
    model, plan, released, options = question
    answers = []
    for core in (None, built):
        _with(core)
        answers.append((expand(model, plan, released, options), shrink(model, plan, plan.gpus[:1], options)))
    (grown, left), (again, left_again) = answers
    assert left_again == left
    assert [step.plan for step in again.steps] == [step.plan for step in grown.steps]
    for step in again.steps:
        assert step.throughput == pytest.approx(model.throughput(step.plan), rel=1e-12)


@pytest.mark.parametrize("name", ["llama2-7b", "llama2-13b", "gpt2-1.3b"])
def test_jobs_of_the_catalogue_with_all_that_the_model_knows(built: ModuleType, name: str) -> None:
    """Kernels and transfers count; 24 GPUs in racks of two nodes, and 20 more."""
    model = virtual_model(find_model(name, global_batch=96), H100, 8, 6)
    hosts = {node: replace(host, path=(f"rack {int(node) // 2}",)) for node, host in model.fabric.hosts.items()}
    fabric = replace(model.fabric, hosts=hosts, fractions=(0.5, 1.0), minipod_depth=1)
    model = replace(model, fabric=fabric, send_receive=True)
    plan = symmetric(model, 3, 4, 2, 24, gpus_of(0, 24))
    question = model, plan, gpus_of(24, 44), IncrementalOptions()
    _with(None)
    expected, steps = _found(*question), expand(*question).steps
    _with(built)
    assert _found(*question) == expected
    assert [step.plan for step in expand(*question).steps] == [step.plan for step in steps]


def test_nodes_of_two_kinds_and_layers_that_differ_are_left_to_numpy(built: ModuleType) -> None:
    _with(built)
    model = job()
    problem = Problem.of(model, symmetric(model, 2, 2, 2, 16, gpus_of(0, 8)), IncrementalOptions())
    assert CompiledSearch.of(problem.tables, problem.landscape) is not None
    first, *others = model.profile.layers
    uneven = replace(model.profile, layers=(replace(first, forward_flops=2 * first.forward_flops), *others))
    slow = replace(model.fabric.hosts["1"], intra_bytes_per_s=1e9)
    for changed in (
        replace(model, profile=uneven),
        replace(model, fabric=replace(model.fabric, hosts={**model.fabric.hosts, "1": slow})),
    ):
        problem = Problem.of(changed, symmetric(changed, 2, 2, 4, 16, gpus_of(0, 16)), IncrementalOptions())
        assert CompiledSearch.of(problem.tables, problem.landscape) is None


def test_what_was_built_of_another_source_is_not_used(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{compiled.__package__}.{NAME}"
    package = sys.modules[str(compiled.__package__)]
    monkeypatch.setitem(sys.modules, name, built)
    monkeypatch.setattr(package, NAME, built, raising=False)
    assert compiled._loaded() is built
    monkeypatch.setattr(built, "SOURCE", "of another")
    assert compiled._loaded() is None


def _asked(core: ModuleType) -> list[tuple[Any, ...]]:
    """What is asked for 8 GPUs and 8 more in two racks: arguments of `choices`, then of `time_s`."""
    model = job()
    hosts = {node: replace(host, path=(f"rack {node}",)) for node, host in model.fabric.hosts.items()}
    model = replace(model, fabric=replace(model.fabric, hosts=hosts, fractions=(0.5, 1.0)), send_receive=True)
    asked: dict[str, tuple[Any, ...]] = {}

    def noted(name: str, *arguments: Any) -> Any:
        asked.setdefault(name, arguments)
        return getattr(core, name)(*arguments)

    _with(SimpleNamespace(choices=partial(noted, "choices"), time_s=partial(noted, "time_s")))  # type: ignore[arg-type]  # as good as the module
    expand(model, symmetric(model, 2, 2, 2, 16, gpus_of(0, 8)), gpus_of(8, 16))
    return [asked["choices"], asked["time_s"]]


def test_faults_of_arguments_are_errors(built: ModuleType) -> None:
    """Arrays that lack an element, indices that are out of range, and what `exposed` may do."""
    for ask, arguments in zip((built.choices, built.time_s), _asked(built), strict=True):
        ask(*arguments)
        for k, argument in enumerate(arguments):
            # Anything is true or false.
            if argument is not True:
                with pytest.raises(TypeError):
                    ask(*arguments[:k], object(), *arguments[k + 1 :])
            wrong: list[Any] = [argument.ravel()[:-1]] if isinstance(argument, np.ndarray) else []
            if isinstance(argument, tuple):
                wrong = [(*argument[:j], part.ravel()[:-1], *argument[j + 1 :]) for j, part in enumerate(argument)]
            for short in wrong:
                with pytest.raises(ValueError, match=r"^(tables|nodes|plans?): "):
                    ask(*arguments[:k], short, *arguments[k + 1 :])
        gpus, degree, *others = arguments[2]
        for plans_ in ((gpus - 9, degree), (gpus * 0, degree), (gpus, degree + 9), (gpus, degree - 9)):
            with pytest.raises(ValueError, match=r"^plans: "):
                ask(*arguments[:2], (*plans_, *others), *arguments[3:])
        for answer in (None, (np.zeros(1), np.zeros(0))):
            with pytest.raises((TypeError, ValueError)):
                ask(*arguments[:-1], lambda *_, answer=answer: answer)
        with pytest.raises(ZeroDivisionError):
            ask(*arguments[:-1], lambda *_: 1 // 0)
    choices, times = _asked(built)
    for wrong_counts in ((-1, 0), (0, -1), (999, 0), (0, 999), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(ValueError, match=r"^plans: number"):
            built.choices(*choices[:3], *wrong_counts, *choices[5:])
    with pytest.raises(ValueError, match="more GPUs than there are"):
        built.choices(*choices[:3], 1, 0, choices[5] * 0, *choices[6:])
    for layers, batch in ((times[3] + 1, times[4]), (times[3] * 0, times[4]), (times[3], -1), (times[3], 99)):
        with pytest.raises(ValueError, match=r"^plan: "):
            built.time_s(*times[:3], layers, batch, times[5])


def test_signals_are_heeded_while_it_searches(built: ModuleType) -> None:
    """Those that come before and behind the one call would be two."""
    model = job(num_nodes=256)
    landscape = Landscape.of(model.fabric, list(model.fabric.hosts))
    cost_tables = CostTables.of(model, landscape.kinds, (1, 2, 4, 8))
    available = np.full(256, 8)
    known = compiled._packed_plans(list(relayouts(available, cost_tables.degrees, 32, uneven=True)))
    arguments = cost_tables.packed, compiled._packed_nodes(landscape), known, 0, 0, available, 32, True
    heeded: list[int] = []

    def heed(number: int, _: FrameType | None) -> None:
        heeded.append(number)

    # Nothing is below these limits: the call does not come back to Python.
    nothing = np.zeros(len(cost_tables.micro_batch)), 0.0, 1.0, None
    before = signal.signal(signal.SIGALRM, heed)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        built.choices(*arguments, *nothing)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert len(heeded) > 2
