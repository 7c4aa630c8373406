"""Allocation and retention over time, as in Fig. 14 of Arnold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.rows import Row

_COLOURS = ("#888888", "#d95f02", "#1b9e77", "#e6ab02", "#7570b3", "#1f78b4", "#a6761d", "#66a61e")
_TOLD_H = 18.0


def draw_rates(rows: Sequence[Row], path: Path, notice_h: float) -> None:
    """A row of panels for every trace: means over the seeds, with the standard deviation as a band."""
    traces = list(dict.fromkeys(str(row["trace"]) for row in rows))
    variants = list(dict.fromkeys(str(row["variant"]) for row in rows))
    with mpl.rc_context({"svg.hashsalt": "stowplan", "font.size": 8}):
        figure = Figure(figsize=(8, 2.9 * len(traces)), layout="constrained")
        for axes, trace in zip(figure.subplots(len(traces), 2, squeeze=False), traces, strict=True):
            for panel, rate in zip(axes, ("allocation", "retention"), strict=True):
                for colour, variant in zip(_COLOURS, variants, strict=False):
                    found = [row[rate] for row in rows if row["trace"] == trace and row["variant"] == variant]
                    _line(panel, np.array(found, dtype=np.float64), notice_h, colour, variant)
                panel.set(title=f"{trace}: {rate} rate", ylim=(0, 1.02), xlim=(_TOLD_H, _TOLD_H + notice_h))
                panel.set_xticks([_TOLD_H + k for k in range(int(notice_h) + 1)])
                panel.xaxis.set_major_formatter(lambda hour, _: f"{hour:.0f}:00")
        axes[0].legend(fontsize=7, loc="lower left")
        figure.savefig(path, metadata={"Date": None})


def _line(panel: Any, rates: Any, notice_h: float, colour: str, name: str) -> None:
    hours = _TOLD_H + np.linspace(0.0, notice_h, rates.shape[1])
    mean, spread = rates.mean(axis=0), rates.std(axis=0)
    panel.plot(hours, mean, color=colour, linewidth=1.3, label=name)
    panel.fill_between(hours, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
