"""The services behind a request."""

from typing import cast

from fastapi import Request

from api.services import Services


def services_of(request: Request) -> Services:
    """Give the services of the application."""
    return cast("Services", request.app.state.services)
