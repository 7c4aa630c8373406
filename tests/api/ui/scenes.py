"""A fabric as large as real ones, which the views are looked at with."""

from collections.abc import Iterator

from tests.api.requests import Json, arnold_request, changed

# Hosts of each pod as in the fabric of Lingjun that Alibaba has published, 847 in all; leaf groups of eight, as most of
# its are. Of the first pod some are not to be had.
PODS = {"P8": 179, "P10": 362, "P12": 306}
LEAF_SIZE = 8
NUM_BUSY = 40
DRAINED = 3
_GPUS = list(range(8))


def fabric_request() -> Json:
    """512 hosts of 847 for a job of 64 groups of eight; another one runs on forty hosts of the first pod."""
    request = changed(arnold_request(), "/snapshot/cluster/nodes", list(_hosts()))
    cluster = {"tiers": [{"name": "pod"}, {"name": "leaf"}], "minipod_tier": "pod"}
    request["snapshot"]["cluster"] |= cluster
    llm = {"id": "llm", "parallelism": {"tp": 8, "pp": 8, "dp": 64}}
    busy = {f"P8-{k}": _GPUS for k in range(NUM_BUSY)}
    runs = {"id": "runs", "parallelism": {"tp": 8, "pp": 4, "dp": 10}, "current": busy, "preemptible": False}
    return changed(request, "/snapshot/jobs", [llm, runs])


def _hosts() -> Iterator[Json]:
    for pod, size in PODS.items():
        for k in range(size):
            host: Json = {"id": f"{pod}-{k}", "gpu_type": "a", "num_gpus": 8, "path": [pod, f"S{k // LEAF_SIZE}"]}
            if pod == "P8" and size - k <= DRAINED:
                host |= {"state": "drained", "state_reason": "memory errors"}
            yield host
