"""The loop of a connection: decide as long as there is something to decide on, anew where there are other nodes."""

from collections.abc import Callable, Iterator
from typing import Protocol

from executor.control.backend import ClusterBackend
from executor.control.controller import Controller, Planner, Step
from executor.control.options import ControlOptions


class ConnectedCluster(ClusterBackend, Protocol):
    """A cluster whose nodes come and go: its events end while it `needs_new_controller`, which takes over the facts."""

    @property
    def needs_new_controller(self) -> bool:
        """Whether there are other nodes than the controller knows."""

    def take_over(self) -> None:
        """Look at everything anew, for a new controller."""


def decisions(
    cluster: ConnectedCluster,
    options: ControlOptions,
    planner: Planner,
    due_s: Callable[[], float | None] = lambda: None,
) -> Iterator[Step]:
    """What happens and is decided, until the cluster is closed. `due_s`: when a planner wants to be asked again, on the
    cluster's clock, if nothing happens until then; None: it does not."""
    controller = Controller(cluster, options, planner)
    while True:
        step = controller.step()
        if step is not None:
            again_s = due_s()
            if again_s is not None:
                controller.wake_also(again_s)
            yield step
        elif cluster.needs_new_controller:
            cluster.take_over()
            controller = Controller(cluster, options, planner)
        else:
            return
