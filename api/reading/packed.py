"""Requests on their way from the reader to the worker: the process that serves needs nothing of the snapshot."""

import pickle
from dataclasses import dataclass
from typing import cast

from models.plan import PlanRequest
from models.policy import Parameters
from models.workload import Snapshot
from solver.options import SolveOptions
from solver.pool import Pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRequest:
    """A `PlanRequest` with its snapshot pickled."""

    snapshot: bytes
    parameters: Parameters
    options: SolveOptions

    @classmethod
    def of(cls, request: PlanRequest) -> "PackedRequest":
        """Pack a request."""
        data = pickle.dumps(request.snapshot, pickle.HIGHEST_PROTOCOL)
        return cls(snapshot=data, parameters=request.parameters, options=request.options)

    def for_worker(self) -> PlanRequest:
        """The request as an argument of a task; here, only its parameters and options can be read."""
        snapshot = cast("Snapshot", Pickled(self.snapshot))
        return PlanRequest(snapshot=snapshot, parameters=self.parameters, options=self.options)
