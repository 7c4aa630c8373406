"""Words of schedulers for how a job ended."""

from collections.abc import Mapping
from types import MappingProxyType

from workloads.trace import JobState

# In lower case. Slurm (sacct(1), job state codes), Kubernetes (pod phase), Philly and PAI (README of the traces).
STATES: Mapping[str, JobState] = MappingProxyType(
    {state.value: state for state in JobState}
    | dict.fromkeys(("pass", "succeeded", "terminated", "success"), JobState.COMPLETED)
    | dict.fromkeys(("out_of_memory",), JobState.FAILED)
    | dict.fromkeys(("cancelled", "killed", "revoked"), JobState.CANCELED)
    | dict.fromkeys(("timeout", "deadline"), JobState.TIMED_OUT)
    | dict.fromkeys(("node_fail", "boot_fail"), JobState.NODE_FAILED)
    | dict.fromkeys(("suspended", "resizing", "stopped", "completing", "stage_out", "signaling"), JobState.RUNNING)
    | dict.fromkeys(("pending", "requeued", "requeue_hold", "configuring"), JobState.WAITING)
)


def state_of(word: str) -> JobState:
    """The state that a word stands for; of several words (`CANCELLED by 1000`) the first.

    Raises
    ------
    ValueError
        When it is no such word.
    """
    first = word.split(maxsplit=1)[0].lower() if word.strip() else ""
    if first not in STATES:
        raise ValueError(word)
    return STATES[first]
