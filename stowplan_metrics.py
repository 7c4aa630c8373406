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

Whole seconds of a step are what the performance model of the job is calibrated by: report from rank 0 at least.
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
# When the last report ended, how many there were, and the step that it told of.
_last = [time.time(), 0, 0]


def report(step: int, *, loss: float, **values: float) -> None:
    """Say that this rank has done its steps up to `step`, counted from 1, and go on counting after a restart.

    Who reports every few steps only tells of the last of them, with their mean time. From then on the rank hangs when
    it reports nothing for `training.save_limit_s` of the deployment. `loss`: of the step; one that is not finite is
    none. `values`: whatever else is to stand in the line.
    """
    if _METRICS is None:
        return
    began_s, count, done = _last
    ended_s = time.time()
    # What the program did before its first report we do not know: it may go on from a checkpoint.
    step_s = max(0.0, ended_s - began_s) / (max(1, step - done) if count else 1)
    _last[:] = ended_s, count + 1, step
    line = {**values, "step": step, "started_at_s": ended_s - step_s, "step_s": step_s}
    with open(_METRICS, "a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "loss": loss if math.isfinite(loss) else None}) + "\n")
    if _PULSE is not None:
        if not count:
            # How the stack of a rank that hangs gets into its log.
            faulthandler.register(signal.SIGUSR1)
        with open(_PULSE, "r+b") as file:
            file.write(struct.pack("dd48s", float(_last[1]), _LIMIT_S, b"waiting for its next report"))


def should_stop() -> bool:
    """Whether the program is asked to write a checkpoint and end with exit code 0; ask it of all ranks alike."""
    return _STOP is not None and os.path.exists(_STOP)
