"""What is said about a request before anything is planned."""

from dataclasses import replace

from models.allocation.sia.parameters import SiaParameters
from models.allocation.suika.parameters import SuikaParameters
from models.catalogue import find_model
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.transformer import Transformer
from models.validation import request_issues
from models.workload import Job, Snapshot
from stowplan.errors import Severity
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster, GpuType, Node

MEASURED = GpuCoefficients(compute_s=1e-3, backward_ratio=2.0, optimizer_s=1e-3, overlap=1.0)


KIND = GpuType(
    name="own",
    memory_bytes=80 * 10**9,
    peak_flops_per_s=1e14,
    intra_node_bandwidth_bytes_per_s=4.5e11,
    inter_node_bandwidth_bytes_per_s=5e10,
)


def said(peak_flops_per_s: float, name: str, measured: str) -> set[tuple[str, str]]:
    kind = GpuType(
        name=name,
        memory_bytes=80 * 10**9,
        peak_flops_per_s=peak_flops_per_s,
        intra_node_bandwidth_bytes_per_s=4.5e11,
        inter_node_bandwidth_bytes_per_s=5e10,
    )
    model = find_model("gpt2-1.3b", global_batch=256)
    assert isinstance(model, Transformer)
    job = Job(id="j", transformer=model, calibration=Calibration(gpus={measured: MEASURED}))
    cluster = Cluster(gpu_types=(kind,), nodes=(Node(id="n", gpu_type=name, num_gpus=8),))
    issues = request_issues(Snapshot(cluster=cluster, jobs=(job,)), SuikaParameters())
    assert all(issue.severity is Severity.WARNING for issue in issues)
    return {(issue.code, issue.pointer) for issue in issues}


def test_a_known_product_has_the_peak_of_the_catalogue() -> None:
    # H100: 67, 494.5 and 989.5 TFLOP/s by precision; the sparse peak, and that of the PCIe board, are none of them.
    assert said(1000e12, "h100", "h100") == said(67e12, "H100", "a100") == set()
    unused = {("peak_not_used", "/cluster/gpu_types/0/peak_flops_per_s")}
    assert said(1979e12, "h100", "h100") == said(756e12, "NVIDIA H100", "h100") == unused
    assert said(1979e12, "h100-sparse", "h100") == set()


def test_a_calibration_of_a_gpu_that_nobody_knows_is_not_used() -> None:
    assert said(989.5e12, "h100", "cqu") == {("calibration_not_used", "/jobs/0/calibration/gpus/cqu")}
    assert said(1e12, "core", "Core") == set()


def test_who_gives_what_a_policy_ignores_is_warned_once_per_field() -> None:
    table = ThroughputTable(entries=(TableEntry(gpu_type="own", num_gpus=1, value=1.0),))
    plain = Job(id="plain", performance=table)
    urgent = tuple(replace(plain, id=f"j{k}", priority=2, deadline_s=60.0 + k) for k in range(3))
    cluster = Cluster(gpu_types=(KIND,), nodes=(Node(id="n", gpu_type="own", num_gpus=8),))
    first, second = request_issues(Snapshot(cluster=cluster, jobs=(plain, *urgent)), SiaParameters())
    assert (first.code, first.pointer, first.severity) == ("ignored_field", "/jobs/1/priority", Severity.WARNING)
    assert first.detail == "is not used by sia, and is given for 3 jobs; used by arena, arena-ilp, gang, gang-ilp"
    assert second.pointer == "/jobs/1/deadline_s"


def test_whoever_belongs_to_no_reservation_is_warned() -> None:
    cluster = Cluster(gpu_types=(KIND,), nodes=(Node(id="n", gpu_type="own", num_gpus=8),))
    entry = CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=60.0, nodes=("n",))
    table = ThroughputTable(entries=(TableEntry(gpu_type="own", num_gpus=1, value=1.0),))
    job = Job(id="j", performance=table, calendar_entry="other")
    job = replace(job, remaining_s=30.0)
    issues = request_issues(Snapshot(cluster=cluster, jobs=(job,), calendar=(entry,)), SiaParameters())
    found = {issue.code: issue for issue in issues if issue.severity is Severity.WARNING}
    assert "ignored_field" not in found, "how long it lasts is asked for beside a calendar"
    assert found["unknown_reservation"].pointer == "/jobs/0/calendar_entry"
