"""Placement that can be seen: `python -m benchmarks placement-visible` (root; Linux with ip and tc).

Four hosts, network namespaces of this machine, under two leaves with a shaped spine (`namespaces`). A small
transformer is trained on CPU, one rank a host, as PP2xDP2 and as DP4, in three placements:
- arnold: the policy's answer for the cluster (Eq. 2; affinity from predicted step times)
- random: another order of the hosts in every round
- adversarial: the order of the longest predicted step, of several that with most ring neighbours across the spine
A run's step time is the median over its steps, the slowest rank of each, without the first ones. Placements take
turns; shown is the median over the runs. The losses of all runs of a layout must be the same.
"""

import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import matplotlib as mpl
import typer
from matplotlib.figure import Figure

from benchmarks.paths import RESULTS
from benchmarks.placement.namespaces import LeafSpine, leaf_spine, obstacle
from benchmarks.placement.placement_choices import Scene, affinity, placements
from benchmarks.placement.placement_runs import (
    SKIPPED_STEPS,
    MeasuredRun,
    loss_difference,
    measured,
    versions_of,
    wait_for_quiet,
)
from benchmarks.rows import Row, show, write

LEAVES = {"a": ("n1", "n3"), "b": ("n2", "n4")}
LOSS_TOLERANCE = 1e-5

_DEGREES = ((2, 2), (1, 4))
# Above this share of busy CPUs a run waits for its turn.
_QUIET_SHARE = 0.2
# In the order of the bars.
_COLOURS = {"arnold": "#1b6ca8", "random": "#9aa5b1", "adversarial": "#c0392b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """All runs of a placement."""

    scene: Scene
    placement: str
    runs: tuple[MeasuredRun, ...]

    @property
    def step_s(self) -> float:
        """Median over the runs."""
        return median(run.step_s for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """How every placement is run."""

    python: str
    rounds: int
    steps: int
    patience_s: float


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Runs of every placement.")] = 3,
    steps: Annotated[int, typer.Option(min=SKIPPED_STEPS + 1, help=f"The first {SKIPPED_STEPS} are not counted.")] = 20,
    spine: Annotated[float, typer.Option(help="Mbit/s of a leaf's uplink, each way.")] = 200.0,
    link: Annotated[float, typer.Option(help="Mbit/s of a host's link, each way.")] = 1000.0,
    python: Annotated[str, typer.Option(help="Interpreter of the ranks.")] = sys.executable,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a quiet machine, each run.")] = 120.0,
) -> None:
    """Train on hosts in network namespaces under three placements and measure the steps (root).

    Says so where namespaces cannot be had; fails when losses differ.
    """
    versions = versions_of(python)
    if versions is None:
        print(f"skipped: {python} has no torch and deepspeed; name one that has: --python")
        return
    if reason := obstacle():
        print(f"skipped: {reason}")
        return
    # So that the network is taken down, as on any way out of its block.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    layout = LeafSpine(leaves=LEAVES, host_bits_per_s=link * 1e6, uplink_bits_per_s=spine * 1e6)
    scenes = [Scene(layout=layout, pp=pp, dp=dp) for pp, dp in _DEGREES]
    results = _results(scenes, _Ranks(python=python, rounds=rounds, steps=steps, patience_s=patience))
    protocol = (
        f"{rounds} runs of {steps} steps, the first {SKIPPED_STEPS} skipped; host links "
        f"{link:g} Mbit/s, uplinks {spine:g} Mbit/s; {versions}; {__doc__}"
    )
    rows = [_row(result, results) for result in results]
    show(
        f"Step times by placement, {protocol.partition(';')[0]}",
        [_brief(*pair) for pair in zip(results, rows, strict=True)],
    )
    print(write("placement_visible", protocol, rows))
    _draw(results)
    if any(_difference(result, results) > LOSS_TOLERANCE for result in results):
        raise typer.Exit(1)


def _results(scenes: Sequence[Scene], ranks: _Ranks) -> list[_Result]:
    """Runs of all scenes and placements, in turns."""
    found: dict[tuple[int, str], list[MeasuredRun]] = {(k, name): [] for k in range(len(scenes)) for name in _COLOURS}
    for round_ in range(ranks.rounds):
        for k, scene in enumerate(scenes):
            for name, hosts in placements(scene, seed=round_).items():
                wait_for_quiet(_QUIET_SHARE, ranks.patience_s)
                with leaf_spine(scene.layout) as network, tempfile.TemporaryDirectory() as folder:
                    run = measured(
                        network,
                        scene.plan(hosts),
                        Path(folder) / "run",
                        num_steps=ranks.steps,
                        python=ranks.python,
                    )
                found[k, name].append(run)
                print(f"{scene.name} {name} {' '.join(hosts)}: {1e3 * run.step_s:.0f} ms", flush=True)
    return [_Result(scene=scenes[k], placement=name, runs=tuple(runs)) for (k, name), runs in found.items()]


def _row(result: _Result, results: Sequence[_Result]) -> dict[str, object]:
    scene, runs = result.scene, result.runs
    arnold = next(other for other in results if other.scene is scene and other.placement == "arnold")
    return {
        "layout": scene.name,
        "placement": result.placement,
        "hosts": [" ".join(run.hosts) for run in runs],
        "affinity of DP": affinity(scene),
        "predicted_s": [scene.predicted_s(run.hosts) for run in runs],
        "step_s": result.step_s,
        "runs_s": [run.step_s for run in runs],
        "times arnold": result.step_s / arnold.step_s,
        "uplink_bytes_per_step": [run.uplink_bytes_per_step for run in runs],
        "losses": runs[0].losses,
        "loss difference": _difference(result, results),
        "busy_before": [run.busy_before for run in runs],
    }


def _difference(result: _Result, results: Sequence[_Result]) -> float:
    """Largest difference in loss between runs of the same layout."""
    return loss_difference([run for other in results if other.scene is result.scene for run in other.runs])


def _brief(result: _Result, row: Row) -> Row:
    hosts = dict.fromkeys(" ".join(run.hosts) for run in result.runs)
    return {
        "layout": row["layout"],
        "placement": row["placement"],
        "hosts in rank order": next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} orders",
        "step_s": result.step_s,
        "least": min(run.step_s for run in result.runs),
        "most": max(run.step_s for run in result.runs),
        "times arnold": row["times arnold"],
        "MB over uplinks": median(run.uplink_bytes_per_step for run in result.runs) / 1e6,
        "last loss": result.runs[0].losses[-1],
        "loss difference": row["loss difference"],
    }


def _draw(results: Sequence[_Result]) -> None:
    """Bars of the medians, and a point per run."""
    mpl.use("Agg")
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    layouts = list(dict.fromkeys(result.scene.name for result in results))
    for k, (name, colour) in enumerate(_COLOURS.items()):
        own = [result for result in results if result.placement == name]
        places = [layouts.index(result.scene.name) + 0.26 * (k - 1) for result in own]
        axes.bar(places, [result.step_s for result in own], width=0.24, color=colour, label=name)
        for place, result in zip(places, own, strict=True):
            axes.plot([place] * len(result.runs), [run.step_s for run in result.runs], "k.", markersize=4)
    axes.set_xticks(range(len(layouts)), layouts)
    axes.set_ylabel("step (s)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "placement_visible.svg", metadata={"Date": None})
