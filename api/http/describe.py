"""The OpenAPI document of the application."""

import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from api.http.access import ACCESS
from api.http.problems import PROBLEM_TYPE
from api.http.routers.common import PLAN_BODY_NAME, SCHEMA_PATH, SNAPSHOT_BODY_NAME
from api.schemas.calibration import CalibrationBody
from api.schemas.cluster_state import ImportBody
from api.schemas.comparison import ComparisonBody
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.export import ExportBody, PlanExportBody
from api.schemas.forecast import ForecastBody, ForecasterBody
from api.schemas.metrics import MetricsBody
from api.schemas.parallel import ParallelPlanBody
from api.schemas.plan import EVENT_DATA
from api.schemas.problem import ProblemDoc
from api.schemas.replay import ReplayBody
from api.schemas.replay_answer import REPLAY_EVENT_DATA
from api.schemas.request import PLAN_BODIES, SNAPSHOT_BODIES, VerifyBody
from api.schemas.reservation import CalendarBody, ReservationBody
from api.schemas.token import TokenBody
from api.schemas.what_if import WhatIfBody

# Read by `api.http.body` or written by `api.http.problems`, so that FastAPI does not see them.
_UNSEEN: tuple[type[BaseModel], ...] = (
    *PLAN_BODIES.values(),
    ComparisonBody,
    ExportBody,
    PlanExportBody,
    ReplayBody,
    ForecasterBody,
    ForecastBody,
    ParallelPlanBody,
    CalibrationBody,
    VerifyBody,
    *SNAPSHOT_BODIES,
    ImportBody,
    MetricsBody,
    DeploymentBody,
    ReconfigureBody,
    CalendarBody,
    ReservationBody,
    WhatIfBody,
    TokenBody,
    ProblemDoc,
    *EVENT_DATA,
    *REPLAY_EVENT_DATA,
)

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem details (RFC 9457).",
        "content": {
            PROBLEM_TYPE: {
                "schema": {"$ref": f"{SCHEMA_PATH}ProblemDoc"},
                "example": {
                    "type": "urn:stowplan:error:invalid_input",
                    "title": "Unprocessable Entity",
                    "status": 422,
                    "detail": "the request has 1 error",
                    "instance": "/v1/plans",
                    "code": "invalid_input",
                    "errors": [
                        {
                            "code": "unknown_gpu_type",
                            "pointer": "/snapshot/cluster/nodes/0/gpu_type",
                            "detail": "node 'n0' is of GPU type 'h100'; the cluster knows ['a100']",
                            "severity": "error",
                        }
                    ],
                },
            }
        },
    }
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Describe the paths of the application, with the documents that FastAPI does not see."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
        separate_input_output_schemas=False,
    )
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in _UNSEEN]
    _, definitions = models_json_schema(modes, ref_template=SCHEMA_PATH + "{model}")
    schemas = document["components"]["schemas"] | definitions["$defs"]
    schemas[PLAN_BODY_NAME] = {
        "title": PLAN_BODY_NAME,
        "oneOf": [{"$ref": f"{SCHEMA_PATH}{body.__name__}"} for body in dict.fromkeys(PLAN_BODIES.values())],
        "discriminator": {
            "propertyName": "policy",
            "mapping": {policy: f"{SCHEMA_PATH}{body.__name__}" for policy, body in PLAN_BODIES.items()},
        },
    }
    schemas[SNAPSHOT_BODY_NAME] = {
        "title": SNAPSHOT_BODY_NAME,
        "oneOf": [{"$ref": f"{SCHEMA_PATH}{body.__name__}"} for body in SNAPSHOT_BODIES],
    }
    example = (files("api.schemas") / "plan_example.json").read_text(encoding="utf-8")
    schemas["PlanDoc"] |= {"examples": [json.loads(example)]}
    for operations in document["paths"].values():
        for operation in operations.values():
            if (role := ACCESS[operation["operationId"]].role) is not None:
                operation["x-role"] = role.value
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _said_or_left_out(parameter["schema"])
    # Either: whether a token is asked for is a setting of the service.
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"bearer": []}]
    return document


def _said_or_left_out(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter that need not be there: a header or query has no null, only a text `null`."""
    choices = schema.get("anyOf", ())
    if {"type": "null"} not in choices:
        return schema
    (wanted,) = (choice for choice in choices if choice != {"type": "null"})
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **wanted}
