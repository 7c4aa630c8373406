"""How much memory this process has taken."""

from pathlib import Path

_STATUS = Path("/proc/self/status")
_BYTES_PER_KIB = 1024


def peak_memory_bytes() -> int | None:
    """Largest resident set of this process since it began to run its program; None where the system does not tell.

    Not `getrusage`: on Linux a process that was started by a larger one is said to have had the peak of its parent.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else int(peak) * _BYTES_PER_KIB
