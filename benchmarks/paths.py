"""Where things lie: the checkout, the results, the published data beside the checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Not part of the project: what needs them is left out where they are not there.
PUBLISHED = ROOT / "../shared/data"
# Beside the metrics of a training: why it ended early.
FAULT = "fault.txt"
