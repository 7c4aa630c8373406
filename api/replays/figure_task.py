"""Task of workers: a picture of replays, from their text."""

import json

from api.figures.replay import render
from api.figures.request import ReplayFigure
from api.replays.drawings import ReplayTexts
from executor.simulation.figures import ReplayResult
from solver.monitor import SolveMonitor
from stowplan.records import from_document
from topology.cluster import Cluster


def figure_task(texts: ReplayTexts, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Draw them, each policy under its name."""
    results = [from_document(ReplayResult, json.loads(text), "replay") for text in texts.replays]
    cluster = from_document(Cluster, json.loads(texts.cluster), "cluster")
    return render(
        ReplayFigure(cluster=cluster, replays={result.name: result for result in results}, format=texts.format)
    )
