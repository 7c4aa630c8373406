"""Pictures: valid, deterministic, and every GPU where it belongs."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.figures.head import Head
from api.figures.layout import Frame, NodeBox, grouped, lay_out, natural_key
from api.figures.legend import Entry, lay_out_legend
from api.figures.picture_format import PictureFormat
from api.figures.render import render
from api.figures.request import FigureRequest
from api.figures.style import Fill, fill, fitted, text_width, wrapped
from models.plan import (
    Change,
    JobAllocation,
    PhaseTimes,
    Plan,
    PlanOutcome,
    PretrainingPlacement,
    SpreadPair,
    UnplacedJob,
)
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.result import SolveStatistics, TerminationReason
from tests.paths import ROOT
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

SVG = "{http://www.w3.org/2000/svg}"
# Page of 830 x 620 points (980 wide with a matrix), margins and title.
MAX_PAGE = (1010.0, 700.0)


def gpu_type(name: str) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=1,
        peak_flops_per_s=1.0,
        intra_node_bandwidth_bytes_per_s=1.0,
        inter_node_bandwidth_bytes_per_s=1.0,
    )


def mixed_cluster() -> Cluster:
    """t4-0: GPU 0 in use; t4-1 free; a100-0 free; a100-1 drained.

    t4-0 [x...]  t4-1 [....]  a100-0 [........]  a100-1 [////////]
    """
    nodes = (
        Node(id="t4-0", gpu_type="t4", num_gpus=4, gpus_in_use=(0,)),
        Node(id="t4-1", gpu_type="t4", num_gpus=4),
        Node(id="a100-0", gpu_type="a100", num_gpus=8),
        Node(id="a100-1", gpu_type="a100", num_gpus=8, state=NodeState.DRAINED),
    )
    return Cluster(gpu_types=(gpu_type("t4"), gpu_type("a100")), nodes=nodes)


def allocation(job_id: str, kind: str, gpus: Mapping[str, Sequence[int]]) -> JobAllocation:
    slices = tuple(NodeGpus(node=node, gpus=tuple(indices)) for node, indices in gpus.items())
    count = sum(len(slice_.gpus) for slice_ in slices)
    return JobAllocation(job_id=job_id, gpu_type=kind, num_gpus=count, gpus=slices, change=Change.STARTED)


def outcome_of(
    plan: Plan | None,
    termination: TerminationReason = TerminationReason.OPTIMAL,
    conflicts: tuple[str, ...] = (),
) -> PlanOutcome:
    value = None if plan is None else 2.5
    return PlanOutcome(
        termination=termination,
        limit=None,
        sense="minimize",
        objective=value,
        bound=value,
        relative_gap=None if plan is None else 0.0,
        plan=plan,
        conflicts=conflicts,
        warnings=(),
        times=PhaseTimes(wall_s={}, cpu_s=0.0),
        statistics=SolveStatistics(),
        solver="highs",
        solver_version="1",
        certificate="",
    )


def snapshot_of(cluster: Cluster, plan: Plan) -> Snapshot:
    names = [*(job.job_id for job in plan.allocations), *(job.job_id for job in plan.unplaced)]
    return Snapshot(cluster=cluster, jobs=tuple(Job(id=name) for name in names))


def picture(cluster: Cluster, plan: Plan, format_: PictureFormat = "svg") -> bytes:
    return render(FigureRequest(snapshot=snapshot_of(cluster, plan), outcome=outcome_of(plan), format=format_))


def small_plan(first: str = "bert", second: str = "resnet") -> Plan:
    waiting = UnplacedJob(job_id="gpt", reason="capacity", detail="", counts={}, remedy="", preempted=False)
    return Plan(
        allocations=(
            allocation(first, "t4", {"t4-0": (1, 2)}),
            allocation(second, "a100", {"a100-0": (0, 1, 2, 3, 4)}),
        ),
        unplaced=(waiting,),
        score=(),
    )


@lru_cache(maxsize=1)
def parsed(svg: bytes) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own picture


def num_cells(svg: bytes, gid: str) -> int:
    """Squares in the one path of a group."""
    (group,) = [element for element in parsed(svg).iter(f"{SVG}g") if element.get("id") == gid]
    return sum(path.get("d", "").count("M") for path in group.iter(f"{SVG}path"))


def texts(svg: bytes) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(svg).iter(f"{SVG}text")]


def page_size(svg: bytes) -> tuple[float, float]:
    root = parsed(svg)
    width, height = (float(str(root.get(name)).removesuffix("pt")) for name in ("width", "height"))
    return width, height


def fabric(sizes: Sequence[int], num_gpus: int = 8) -> Cluster:
    """Minipods of the given numbers of nodes."""
    nodes = (
        Node(id=f"m{k}n{i}", gpu_type="h800", num_gpus=num_gpus, path=(f"pod-{k}",))
        for k, size in enumerate(sizes)
        for i in range(size)
    )
    tiers = (Tier(name="pod"),)
    return Cluster(gpu_types=(gpu_type("h800"),), nodes=tuple(nodes), tiers=tiers, minipod_tier="pod")


def pretraining(cluster: Cluster, rows: int, columns: int) -> tuple[Snapshot, PlanOutcome]:
    """The first nodes in order, stage by stage, beside a job that fills the last node."""
    hosts = [node.id for node in cluster.nodes[: rows * columns]]
    pod = {node.id: "/".join(node.path[:1]) for node in cluster.nodes}
    cells = tuple(tuple(hosts[column * rows + row] for column in range(columns)) for row in range(rows))
    placement = PretrainingPlacement(
        job_id="llm",
        scheduling_unit="pp",
        alpha=0.3,
        beta=0.7,
        affinity_source="given",
        cells=cells,
        minipods=tuple(tuple(pod[node] for node in row) for row in cells),
        hosts=tuple(hosts),
        minipod_spread=SpreadPair(dp=2, pp=1),
        distance=SpreadPair(dp=2, pp=0),
        num_minipods_used=2,
        max_unit_spread=1,
        objective_eq4=1.3,
        objective_eq2=0.6,
    )
    last = cluster.nodes[-1].id
    jobs = (
        Job(id="llm", parallelism=Parallelism(tp=8, pp=columns, dp=rows)),
        Job(id="other", current=(NodeGpus(node=last, gpus=tuple(range(8))),)),
    )
    plan = Plan(
        allocations=(
            allocation("llm", "h800", {host: range(8) for host in hosts}),
            allocation("other", "h800", {last: range(8)}),
        ),
        unplaced=(),
        score=(),
        pretraining=placement,
    )
    return Snapshot(cluster=cluster, jobs=jobs), outcome_of(plan)


def test_every_gpu_is_drawn_once_in_the_right_group() -> None:
    svg = picture(mixed_cluster(), small_plan())
    counts = {gid: num_cells(svg, gid) for gid in ("job-0", "job-1", "free", "other-work", "drained-or-down")}
    assert counts == {"job-0": 2, "job-1": 5, "free": 8, "other-work": 1, "drained-or-down": 8}


def test_the_words_of_an_allocation() -> None:
    words = texts(picture(mixed_cluster(), small_plan()))
    assert "2 of 3 jobs on 7 of 24 GPUs (8 t4, 16 a100)" in words
    assert "optimal · objective 2.5 (minimize) · bound 2.5 · gap 0 % · highs 1" in words
    assert "bert  (2 t4, started)" in words
    assert "waiting (1): gpt" in words
    assert {"t4-0", "t4-1", "a100-0", "a100-1"} <= set(words)


@pytest.mark.parametrize("format_", ["svg", "png"])
def test_the_same_request_gives_the_same_bytes(format_: PictureFormat) -> None:
    assert picture(mixed_cluster(), small_plan(), format_) == picture(mixed_cluster(), small_plan(), format_)


@pytest.mark.slow
def test_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    program = (
        "import sys; from tests.api.figures.test_render import *; "
        "sys.stdout.buffer.write(picture(mixed_cluster(), small_plan()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert done.stdout == picture(mixed_cluster(), small_plan())


def test_png_is_a_png() -> None:
    assert picture(mixed_cluster(), small_plan(), "png").startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("name", ["<b>&\"'", "$x^2$", "日本語", "a\tb\nc", "x" * 200, "$\\frac{", "%s{}"])
def test_any_name_can_be_drawn(name: str) -> None:
    words = texts(picture(mixed_cluster(), small_plan(first=name)))
    start = name[:2] if "\n" not in name else "a\N{REPLACEMENT CHARACTER}b"
    assert any(line.startswith(start) for line in words)
    assert picture(mixed_cluster(), small_plan(first=name), "png")


def test_outcome_without_plan_says_why() -> None:
    outcome = outcome_of(None, TerminationReason.INFEASIBLE, ("capacity[a100]", "reserved[<x>]"))
    snapshot = Snapshot(cluster=mixed_cluster(), jobs=())
    words = texts(render(FigureRequest(snapshot=snapshot, outcome=outcome, format="svg")))
    assert "No plan: infeasible" in words
    assert "- capacity[a100]" in words
    assert "- reserved[<x>]" in words


def test_empty_plan_is_drawn() -> None:
    svg = picture(mixed_cluster(), Plan(allocations=(), unplaced=(), score=()))
    assert num_cells(svg, "free") == 15


def test_matrix_and_cluster_agree() -> None:
    """Six rows, two columns: pod-0 has 8 nodes and takes column 0 and two cells of column 1, pod-1 the other four."""
    snapshot, outcome = pretraining(fabric((8, 6, 4)), rows=6, columns=2)
    svg = render(FigureRequest(snapshot=snapshot, outcome=outcome, format="svg"))
    assert (num_cells(svg, "minipod-0"), num_cells(svg, "minipod-1")) == (64, 32)
    assert num_cells(svg, "other-jobs") == 8
    assert num_cells(svg, "free") == 18 * 8 - 96 - 8
    assert (num_cells(svg, "matrix-minipod-0"), num_cells(svg, "matrix-minipod-1")) == (8, 4)
    words = texts(svg)
    assert "llm: TP 8, PP 2, DP 6 (96 GPUs, 12 nodes)" in words
    assert "alpha = 0.3 (DP groups), beta = 0.7 (PP groups)" in words
    # Every rank twice: in the matrix and on its node.
    assert [words.count(str(rank)) for rank in (8, 9, 10, 11)] == [2, 2, 2, 2]


def test_matrix_colours_are_those_of_the_cluster() -> None:
    snapshot, outcome = pretraining(fabric((8, 6, 4)), rows=6, columns=2)
    root = parsed(render(FigureRequest(snapshot=snapshot, outcome=outcome, format="svg")))
    styles = {
        group.get("id"): {path.get("style", "") for path in group.iter() if "style" in path.attrib}
        for group in root.iter(f"{SVG}g")
    }

    def colours(gid: str) -> set[str]:
        return {found for style in styles[gid] for found in re.findall(r"fill: (#[0-9a-f]{6})", style)}

    assert colours("minipod-0") == colours("matrix-minipod-0") != colours("minipod-1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "rows", "columns"),
    [((93,) * 7 + (92,) * 4, 46, 8), ((8,) * 119, 64, 8), ((40,) * 30, 1000, 1), ((40,) * 30, 2, 500)],
    ids=["table-1-iii", "119-leaf-groups", "thousand-rows", "many-columns"],
)
def test_large_pretraining_stays_on_the_page(sizes: tuple[int, ...], rows: int, columns: int) -> None:
    snapshot, outcome = pretraining(fabric(sizes), rows, columns)
    svg = render(FigureRequest(snapshot=snapshot, outcome=outcome, format="svg"))
    assert all(size <= limit for size, limit in zip(page_size(svg), MAX_PAGE, strict=True))
    used = sum(num_cells(svg, f"minipod-{k}") for k in range(len(set(used_minipods(outcome)))))
    assert used == rows * columns * 8


def used_minipods(outcome: PlanOutcome) -> list[str]:
    assert outcome.plan is not None
    assert outcome.plan.pretraining is not None
    return [minipod for row in outcome.plan.pretraining.minipods for minipod in row]


@pytest.mark.slow
def test_thousands_of_gpus_and_hundreds_of_jobs_stay_on_the_page() -> None:
    """847 hosts in three tiers, 300 jobs of 16 GPUs: the legend is cut, the labels go, the page does not grow."""
    nodes = tuple(
        Node(id=f"host-{k}", gpu_type="h800", num_gpus=8, path=("core", f"P{k // 300}", f"S{k // 8}"))
        for k in range(847)
    )
    tiers = (Tier(name="core"), Tier(name="pod"), Tier(name="leaf"))
    cluster = Cluster(gpu_types=(gpu_type("h800"),), nodes=nodes, tiers=tiers, minipod_tier="pod")
    plan = Plan(
        allocations=tuple(
            allocation(f"job-number-{k}", "h800", {f"host-{2 * k}": range(8), f"host-{2 * k + 1}": range(8)})
            for k in range(300)
        ),
        unplaced=(),
        score=(),
    )
    svg = picture(cluster, plan)
    assert all(size <= limit for size, limit in zip(page_size(svg), MAX_PAGE, strict=True))
    assert num_cells(svg, "free") == 847 * 8 - 300 * 16
    assert num_cells(svg, "job-299") == 16
    words = texts(svg)
    assert sum(word.startswith("job-number-") for word in words) < 60
    assert any(re.fullmatch(r"\+\d+ more jobs", word) for word in words)
    assert {"pod P0 · 300 nodes", "pod P1 · 300 nodes", "pod P2 · 247 nodes"} <= set(words)
    assert len(svg) < 2_000_000


def test_single_units_are_passed_over_and_types_divide_the_finest_units() -> None:
    """One core; pod A holds both types, pod B one: B's only leaf merges with it and with its type."""
    nodes = (
        Node(id="a", gpu_type="t4", num_gpus=4, path=("core", "A", "1")),
        Node(id="b", gpu_type="a100", num_gpus=8, path=("core", "A", "1")),
        Node(id="c", gpu_type="t4", num_gpus=4, path=("core", "B", "1")),
    )
    tiers = (Tier(name="core"), Tier(name="pod"), Tier(name="leaf"))
    groups = grouped(Cluster(gpu_types=(gpu_type("t4"), gpu_type("a100")), nodes=nodes, tiers=tiers))
    assert [group.label for group in groups] == ["pod A · leaf 1", "pod B · leaf 1 · t4"]
    assert [[child.label for child in group.children] for group in groups] == [["a100", "t4"], []]
    assert groups[1].units == (("core", "B"), ("core", "B", "1"))


def test_natural_order() -> None:
    assert sorted(["n10", "n2", "n1", "m3"], key=natural_key) == ["m3", "n1", "n2", "n10"]


clusters = st.builds(
    lambda shape: Cluster(
        gpu_types=(gpu_type("a"), gpu_type("b")),
        tiers=(Tier(name="pod"), Tier(name="rack")),
        nodes=tuple(
            Node(id=f"n{k}", gpu_type=kind, num_gpus=size, path=(f"p{pod}", f"r{rack}"))
            for k, (kind, size, pod, rack) in enumerate(shape)
        ),
    ),
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2, 4, 8, 16, 72]), st.integers(0, 3), st.integers(0, 2)),
        min_size=1,
        max_size=60,
    ),
)


@settings(max_examples=30, deadline=None)
@given(clusters)
def test_layout_keeps_nodes_apart_and_on_the_page(cluster: Cluster) -> None:
    layout = lay_out(cluster, 800.0, 500.0)
    assert layout.width <= 800.0
    assert layout.height <= 500.0
    assert sorted(box.node.id for box in layout.boxes) == sorted(node.id for node in cluster.nodes)
    slack = 1e-6
    for box in layout.boxes:
        assert -slack <= box.x <= box.x + box.width <= layout.width + slack
        assert -slack <= box.y <= box.y + box.height <= layout.height + slack
    for k, first in enumerate(layout.boxes):
        assert not any(_overlap(first, second) for second in layout.boxes[k + 1 :])
    for frame in layout.frames:
        inside = {box.node.id for box in layout.boxes if _contains(frame, box)}
        assert {node.id for node in frame.group.nodes} == inside


def _overlap(first: NodeBox, second: NodeBox) -> bool:
    apart = (
        first.x + first.width <= second.x
        or second.x + second.width <= first.x
        or first.y + first.height <= second.y
        or second.y + second.height <= first.y
    )
    return not apart


def _contains(frame: Frame, box: NodeBox) -> bool:
    slack = 1e-6
    return (
        frame.x - slack <= box.x
        and box.x + box.width <= frame.x + frame.width + slack
        and frame.y - slack <= box.y
        and box.y + box.height <= frame.y + frame.height + slack
    )


def test_fills_differ() -> None:
    assert len({fill(k) for k in range(165)}) == 165
    assert len({fill(k).colour for k in range(33)}) == 33


def test_legend_leaves_out_the_smallest() -> None:
    grey = Fill(colour="#808080", hatch="", ink="#000000")
    entries = [Entry(fill=grey, label=f"job {k}", size=size) for k, size in enumerate((1, 8, 2, 16, 4))]
    legend = lay_out_legend(entries, width=60.0, max_rows=4)
    assert [entry.label for entry in legend.entries] == ["job 1", "job 3", "job 4"]
    assert legend.num_left_out == 2


def test_fitted_text_fits() -> None:
    for width in (5.0, 20.0, 60.0, 500.0):
        assert text_width(fitted("a-rather-long-job-name", 8.0, width), 8.0) <= width
    assert fitted("short", 8.0, 500.0) == "short"


@pytest.mark.parametrize("width", [0.0, 9.0, 40.0, 77.5, 200.0])
def test_fitted_text_is_as_long_as_fits(width: float) -> None:
    text = "a job name - with gaps"
    candidates = [text, *(text[:length].rstrip() + "…" for length in range(len(text) - 1, 1, -1))]
    assert fitted(text, 8.0, width) == next((words for words in candidates if text_width(words, 8.0) <= width), "")


@pytest.mark.slow
def test_a_long_title_takes_lines_and_is_not_cut() -> None:
    title = "llama2-13b on 64 GPUs: " + " | ".join(f"{k}L 8x2" for k in range(1, 17))
    lines = wrapped(title, 11.0, 380.0, bold=True)
    assert len(lines) > 1
    assert " ".join(lines) == title
    assert all(text_width(line, 11.0, bold=True) <= 380.0 for line in lines)
    short, long = Head.of(380.0, "one", "words"), Head.of(380.0, title, "words")
    assert long.height > short.height
    assert wrapped("one two", 8.0, 380.0) == ("one two",)


def test_a_title_without_end_is_cut_in_the_last_line() -> None:
    lines = wrapped("word " * 1000, 8.0, 200.0, most=3)
    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert wrapped("x" * 1000, 8.0, 200.0)[0].endswith("…"), "a word that is too long for any line"


def test_what_solved_a_small_cluster_is_named_whole() -> None:
    plan = small_plan()
    outcome = replace(outcome_of(plan), objective=1 / 3, solver="decomposition", solver_version="HiGHS 1.15.1" * 3)
    request = FigureRequest(snapshot=snapshot_of(mixed_cluster(), plan), outcome=outcome, format="svg")
    assert outcome.solver_version in " ".join(texts(render(request)))


def test_of_many_waiting_jobs_those_that_fit_a_line_are_named() -> None:
    plan = small_plan()
    waiting = tuple(replace(plan.unplaced[0], job_id=f"job-{k}") for k in range(20_000))
    words = texts(picture(mixed_cluster(), replace(plan, unplaced=waiting)))
    (line,) = [text for text in words if text.startswith("waiting (20000): job-0, job-1, ")]
    named, _, rest = line.rpartition(", +")
    assert rest == f"{20_000 - named.count('job-')} more"
