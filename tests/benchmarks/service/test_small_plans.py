"""What is said of a run of small plans beside its targets."""

from dataclasses import replace

import pytest

from benchmarks.paths import ROOT
from benchmarks.service.small_plans import Throughput, _row

RUN = Throughput(plans_per_s=210, p50_ms=150, p99_ms=290, service_ms=4, workers_ms=5, client_ms=1, idle_mib=190)


def test_targets_are_judged_by_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    slow = replace(RUN, plans_per_s=100, p99_ms=900, idle_mib=400)
    row = _row(ROOT, [RUN, slow, RUN])
    assert row["plans/s"] == 210
    assert row["plans/s of the CPU"] == 200
    assert row["targets"] == "200/s met, p99 300 ms met, 200 MiB met"
    assert _row(ROOT, [slow, slow, RUN])["targets"] == "200/s missed, p99 300 ms missed, 200 MiB missed"
