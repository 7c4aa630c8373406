"""A POST for a plan, and whose CPU it takes."""

import time
from dataclasses import dataclass

from benchmarks.service.process import Answer, Service, split_cpu_s

LIMIT_S = 60
# Behind the answer: what is written then is part of it.
_AFTER_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPost:
    """The answer, and CPU milliseconds of the service and of all others, planning included."""

    answer: Answer
    service_ms: float
    others_ms: float


def post_for_plan(service: Service, body: bytes) -> PlannedPost:
    """Post a request for a plan and wait for it.

    Raises
    ------
    RuntimeError
        When there is no verified plan.
    """
    own_s, others_s = split_cpu_s(service)
    answer = service.call("POST", "/v1/plans", body, wait_s=LIMIT_S)
    if answer.status != 200 or not answer.body["verified"]:
        raise RuntimeError(f"answer {answer.status} instead of a verified plan: {str(answer.body)[:500]}")
    time.sleep(_AFTER_S)
    own_end_s, others_end_s = split_cpu_s(service)
    return PlannedPost(answer=answer, service_ms=1e3 * (own_end_s - own_s), others_ms=1e3 * (others_end_s - others_s))
