"""How much memory this process has taken."""

_STATUS = "/proc/self/status"
_PEAK = b"\nVmHWM:"
_BYTES_PER_KIB = 1024


def peak_memory_bytes() -> int | None:
    """Largest resident set of this process since it began to run its program; None where the system does not tell.

    Not `getrusage`: on Linux a process that was started by a larger one is said to have had the peak of its parent.
    """
    try:
        # Of every plan, of which it would be a fiftieth by way of a path and its lines.
        with open(_STATUS, "rb", buffering=0) as status:
            text = status.read()
    except OSError:
        return None
    _, found, behind = text.partition(_PEAK)
    return int(behind.split(None, 1)[0]) * _BYTES_PER_KIB if found else None
