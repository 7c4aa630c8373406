"""Where the ranks of a run that was started beside another one wait until they are let go."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from executor.launch.pulse import Pulse
from executor.run_files import (
    BESIDE_VARIABLE,
    PREPARE_VARIABLE,
    READY_FOLDER,
    STOP_FILE,
    WAIT_VARIABLE,
    Preparation,
)

_WAIT_S = 0.02


class Gate:
    """Of rank `rank`, as its environment says; open where it was not told to wait."""

    def __init__(self, environment: Mapping[str, str], rank: int, pulse: Pulse) -> None:
        path = environment.get(WAIT_VARIABLE)
        self._go = Path(path) if path else None
        self._behind = Preparation(environment.get(PREPARE_VARIABLE, Preparation.LIBRARIES))
        beside = environment.get(BESIDE_VARIABLE)
        self._beside = Path(beside) if beside else None
        self._rank = rank
        self._pulse = pulse

    @property
    def beside(self) -> Path | None:
        """Folder of the run beside which it waits when its engine is built; None where it does not."""
        return self._beside if self._go is not None and self._behind is Preparation.ENGINE else None

    def passed(self, done: Preparation, is_due: Callable[[], bool] = lambda: False) -> bool:
        """Wait, where that is to be done when `done` is, or until it `is_due`; whether the rank is to go on.

        False: the change of plan is off.
        """
        if self._go is None or done is not self._behind:
            return True
        # Whoever lets it go has a limit of its own for that.
        self._pulse.beat(math.inf, "waiting for another run")
        ready, off = self._go.with_name(READY_FOLDER), self._go.with_name(STOP_FILE)
        ready.mkdir(exist_ok=True)
        (ready / str(self._rank)).touch()
        while not (self._go.exists() or is_due()):
            if off.exists():
                return False
            time.sleep(_WAIT_S)
        return True
