"""A small application that was measured on GPUs of type a, of which nodes have four."""

from pathlib import Path

from workloads.profiles import ApplicationProfile, read_profiles

# Seconds of a step without synchronisation by local batch, and of the synchronisation by placement.
GRADIENT_S = {5: 0.5, 10: 1.0, 20: 2.0}
SYNC_S = {"1": 0.0, "2": 0.1, "4": 0.2, "44": 0.5, "22": 0.4}
VALIDATIONS = {
    10: "progress,grad_sqr,grad_var\n100,1,1\n200,1,3\n",
    40: "progress,grad_sqr,grad_var\n102,1,1\n198,1,3\n",
}


def write_profiles(folder: Path) -> Path:
    """The folder, with application m."""
    own = folder / "m"
    own.mkdir()
    rows = [
        f"{placement},{local_batch},{gradient_s + sync_s},{sync_s}\n"
        for placement, sync_s in SYNC_S.items()
        for local_batch, gradient_s in GRADIENT_S.items()
    ]
    (own / "placements-a.csv").write_text("placement,local_bsz,step_time,sync_time\n" + "".join(rows))
    (own / "scalability-a.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n3,12,10,1.6,0.6\n")
    for batch, text in VALIDATIONS.items():
        (own / f"validation-{batch}.csv").write_text(text)
    return folder


def profiles(folder: Path) -> tuple[ApplicationProfile, ...]:
    """The same, read."""
    return read_profiles(write_profiles(folder), ["m", "unknown"], ["a", "b"])
