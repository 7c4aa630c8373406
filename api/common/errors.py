"""Errors of the service, and the one place where codes meet HTTP."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Self

from stowplan.errors import InputError, StowplanError

_STATUS: Mapping[str, HTTPStatus] = {
    "invalid_input": HTTPStatus.UNPROCESSABLE_ENTITY,
    "invalid_file": HTTPStatus.UNPROCESSABLE_ENTITY,
    "malformed_json": HTTPStatus.BAD_REQUEST,
    "invalid_header": HTTPStatus.BAD_REQUEST,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "open_service": HTTPStatus.CONFLICT,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "misdirected_request": HTTPStatus.MISDIRECTED_REQUEST,
    "foreign_origin": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "idempotency_conflict": HTTPStatus.CONFLICT,
    "plan_not_finished": HTTPStatus.CONFLICT,
    "deployment_conflict": HTTPStatus.CONFLICT,
    "forecaster_exists": HTTPStatus.CONFLICT,
    "calibration_exists": HTTPStatus.CONFLICT,
    "nothing_deployed": HTTPStatus.CONFLICT,
    "deployment_elsewhere": HTTPStatus.CONFLICT,
    "calendar_conflict": HTTPStatus.CONFLICT,
    "reservation_final": HTTPStatus.CONFLICT,
    "precondition_failed": HTTPStatus.PRECONDITION_FAILED,
    "precondition_required": HTTPStatus.PRECONDITION_REQUIRED,
    "launch_failed": HTTPStatus.BAD_GATEWAY,
    "storage_full": HTTPStatus.INSUFFICIENT_STORAGE,
    "asymmetric_plan": HTTPStatus.UNPROCESSABLE_ENTITY,
    "no_outcome": HTTPStatus.CONFLICT,
    "body_timeout": HTTPStatus.REQUEST_TIMEOUT,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "queue_full": HTTPStatus.TOO_MANY_REQUESTS,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "shutting_down": HTTPStatus.SERVICE_UNAVAILABLE,
    "store_error": HTTPStatus.SERVICE_UNAVAILABLE,
    "worker_timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "deadline": HTTPStatus.GATEWAY_TIMEOUT,
    "worker_died": HTTPStatus.SERVICE_UNAVAILABLE,
    "extra_missing": HTTPStatus.NOT_IMPLEMENTED,
    "backend_error": HTTPStatus.INTERNAL_SERVER_ERROR,
    "plan_failed_check": HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(code: str) -> HTTPStatus:
    """HTTP status of a code; one that is not listed is a fault of ours."""
    return _STATUS.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)


class HeaderError(InputError):
    """A request header is wrong."""

    code: ClassVar[str] = "invalid_header"


class UnauthorizedError(StowplanError):
    """The request lacks a token that the service knows."""

    code: ClassVar[str] = "unauthorized"


class ForbiddenError(StowplanError):
    """The role of the client does not allow it."""

    code: ClassVar[str] = "forbidden"


class OpenServiceError(StowplanError):
    """The service asks for no token, and makes none."""

    code: ClassVar[str] = "open_service"


class RateLimitedError(StowplanError):
    """The client asks more often than it may."""

    code: ClassVar[str] = "rate_limited"


class MisdirectedRequestError(StowplanError):
    """The request is to a name that is not the service's."""

    code: ClassVar[str] = "misdirected_request"


class ForeignOriginError(StowplanError):
    """A web page of another origin asks for a change."""

    code: ClassVar[str] = "foreign_origin"


class NotFoundError(StowplanError):
    """There is no such thing."""

    code: ClassVar[str] = "not_found"


class IdempotencyConflictError(StowplanError):
    """The Idempotency-Key was used with another body."""

    code: ClassVar[str] = "idempotency_conflict"

    @classmethod
    def of(cls, resource_id: str) -> Self:
        """The key is of this resource."""
        return cls(f"the Idempotency-Key belongs to {resource_id}, which has another request; use another key")


class KeyTakenError(IdempotencyConflictError):
    """The Idempotency-Key was used with the same request at the same moment: asked again, that is the answer."""


class PlanNotFinishedError(StowplanError):
    """This needs a plan that is final."""

    code: ClassVar[str] = "plan_not_finished"


class NoOutcomeError(StowplanError):
    """The plan ended without anything to show."""

    code: ClassVar[str] = "no_outcome"


class DeploymentConflictError(StowplanError):
    """The job is deployed already, or another one has its GPUs."""

    code: ClassVar[str] = "deployment_conflict"


class ForecasterExistsError(StowplanError):
    """There is a forecaster of this name."""

    code: ClassVar[str] = "forecaster_exists"


class CalibrationExistsError(StowplanError):
    """There is a calibration of this name, or it comes along and stays."""

    code: ClassVar[str] = "calibration_exists"


class NothingDeployedError(StowplanError):
    """The service has no folder for deployments."""

    code: ClassVar[str] = "nothing_deployed"


class DeploymentElsewhereError(StowplanError):
    """This takes the service that has the folder of the deployment."""

    code: ClassVar[str] = "deployment_elsewhere"


class CalendarConflictError(StowplanError):
    """What is to stand in a calendar excludes what stands there; the issues name both."""

    code: ClassVar[str] = "calendar_conflict"


class ReservationFinalError(StowplanError):
    """The reservation is over or was canceled."""

    code: ClassVar[str] = "reservation_final"


class PreconditionFailedError(StowplanError):
    """Somebody else has changed the resource meanwhile."""

    code: ClassVar[str] = "precondition_failed"


class PreconditionRequiredError(StowplanError):
    """Who changes the resource must say which version."""

    code: ClassVar[str] = "precondition_required"


class StorageFullError(StowplanError):
    """There is no room left for a folder."""

    code: ClassVar[str] = "storage_full"


class BodyTooLargeError(StowplanError):
    """The request body exceeds the limit."""

    code: ClassVar[str] = "body_too_large"


class BodyTimeoutError(StowplanError):
    """The request body did not come in time."""

    code: ClassVar[str] = "body_timeout"


class OverloadedError(StowplanError):
    """The service has as many bodies or connections as it holds at a time."""

    code: ClassVar[str] = "overloaded"


class MediaTypeError(StowplanError):
    """The request body is not declared as JSON."""

    code: ClassVar[str] = "unsupported_media_type"


class ShuttingDownError(StowplanError):
    """The service stops and takes no new work."""

    code: ClassVar[str] = "shutting_down"


class StoreError(StowplanError):
    """The database cannot be opened, read or written."""

    code: ClassVar[str] = "store_error"


class StoreUnavailableError(StoreError):
    """The database takes nothing now, whatever it is: another program writes, or the connection is lost."""


class WorkerTimeoutError(StowplanError):
    """A worker did not answer in time."""

    code: ClassVar[str] = "worker_timeout"
