"""How much memory this process has taken."""

import resource

_STATUS = "/proc/self/status"
_PEAK = b"\nVmHWM:"
_BYTES_PER_KIB = 1024
# What each processor has counted alone, which the one leaves out and the other does not.
_ROUNDING_KIB = 1024
# The peak in bytes that was read last, by what `getrusage` said then.
_known: dict[int, int] = {}


def peak_memory_bytes() -> int | None:
    """Largest resident set of this process since it began to run its program; None where the system does not tell.

    Not `getrusage`: on Linux a process that was started by a larger one is said to have had the peak of its parent.
    Where its own is the larger one, `getrusage` tells whether that is what it was when the status was read, which takes
    a hundred times as long.
    """
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if most_kib in _known:
        return _known[most_kib]
    try:
        # By way of a path and its lines it would take several times as long.
        with open(_STATUS, "rb", buffering=0) as status:
            text = status.read()
    except OSError:
        return None
    _, found, behind = text.partition(_PEAK)
    if not found:
        return None
    peak_kib = int(behind.split(None, 1)[0])
    _known.clear()
    if most_kib - peak_kib <= _ROUNDING_KIB:
        _known[most_kib] = peak_kib * _BYTES_PER_KIB
    return peak_kib * _BYTES_PER_KIB
