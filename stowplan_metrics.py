"""What a training program of your own tells of its steps, where Stowplan has started it; elsewhere it does nothing.

    from stowplan_metrics import report, should_stop

    for step in range(first, last):
        ...
        report(step + 1, loss=float(loss))
        if should_stop():
            save(); break

Needs the standard library only. Programs in other languages append such lines to the file `$STOWPLAN_METRICS`, and look
for the file `$STOWPLAN_STOP`:

    {"step": 1, "started_at_s": 1764000000.0, "step_s": 0.21, "loss": 2.3}
"""

import faulthandler
import json
import math
import os
import signal
import struct
import time

_METRICS, _STOP = os.environ.get("STOWPLAN_METRICS"), os.environ.get("STOWPLAN_STOP")
_PULSE, _LIMIT_S = os.environ.get("STOWPLAN_PULSE"), float(os.environ.get("STOWPLAN_REPORT_LIMIT_S", "inf"))
_last = [time.time(), 0.0]


def report(step: int, *, loss: float, **values: float) -> None:
    """Say that this rank has done its steps up to `step`, counted from 1, and go on counting after a restart.

    From then on the rank hangs when it reports nothing for `training.save_limit_s` of the deployment. `loss`: of the
    step; one that is not finite is none. `values`: whatever else is to stand in the line.
    """
    if _METRICS is None:
        return
    began_s, count = _last
    _last[:] = time.time(), count + 1
    line = {**values, "step": step, "started_at_s": began_s, "step_s": max(0.0, _last[0] - began_s)}
    with open(_METRICS, "a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "loss": loss if math.isfinite(loss) else None}) + "\n")
    if _PULSE is not None:
        if not count:
            # How the stack of a rank that hangs gets into its log.
            faulthandler.register(signal.SIGUSR1)
        with open(_PULSE, "r+b") as file:
            file.write(struct.pack("dd48s", _last[1], _LIMIT_S, b"waiting for its next report"))


def should_stop() -> bool:
    """Whether the program is asked to write a checkpoint and end with exit code 0; ask it of all ranks alike."""
    return _STOP is not None and os.path.exists(_STOP)
