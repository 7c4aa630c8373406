"""The Helm chart as Helm renders it: `python -m tests.deploy.chart` writes what `test_chart.py` looks at.

It needs Helm's own library (`pip install helm-python-sdk`, 240 MB), so that the tests go by what was rendered, and by
a hash of the chart that says of which one it was.
"""

import hashlib
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.paths import ROOT

CHART = ROOT / "deploy" / "helm" / "stowplan"
RENDERED = ROOT / "tests" / "deploy" / "rendered"
# Name -> values: a file of SQLite and the least that must be said, and a database on PostgreSQL with all that there is.
CASES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "least": {"existingSecret": "stowplan-token"},
        "everything": {
            "token": "secret",
            "databaseSecret": "stowplan-database",
            "replicas": 3,
            "image": {"repository": "registry.example.org/stowplan", "tag": "v1"},
            "allowedHosts": ["planner.example.org"],
            "settings": {"STOWPLAN_WORKERS": "4", "STOWPLAN_ACCESS_LOG": "true"},
            "serviceMonitor": {"enabled": True},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "planning", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        },
    }
)


def chart_hash() -> str:
    """Of all files of the chart, by name."""
    hashed = hashlib.sha256()
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            hashed.update(f"{path.relative_to(CHART)}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def rendered(values: Mapping[str, Any]) -> str:
    """All manifests of the chart, by Helm's library."""
    helm = importlib.import_module("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        found = chart.render(dict(values), name="stowplan", namespace="planning")
    texts = (text.strip() for name, text in sorted(found.items()) if name.endswith(".yaml"))
    return "---\n" + "\n---\n".join(text for text in texts if text) + "\n"


if __name__ == "__main__":
    RENDERED.mkdir(exist_ok=True)
    for case, values in CASES.items():
        (RENDERED / f"{case}.yaml").write_text(f"# chart {chart_hash()}\n{rendered(values)}")
