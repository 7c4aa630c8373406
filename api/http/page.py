"""The page at `/ui`, the documentation at `/docs` and its `/openapi.json`: files of ours, which load nothing from
elsewhere.

They hold no data. What the page shows it asks for under /v1, with the token of whoever looks at it.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

# Pictures are asked for with the token, and shown as blobs.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Swagger UI has its icons in its style sheet.
_DOCS_POLICY = _PAGE_POLICY.replace("blob:", "data:")
# Their names change with what is in them.
_HASHED = "assets"
# The package that the folders of files are in; it is called otherwise in a wheel.
_API = __name__.removesuffix(".http.page")


class _Files(StaticFiles):
    """Files in folders of packages, with a content security policy."""

    def __init__(self, packages: Sequence[tuple[str, str]], policy: str) -> None:
        super().__init__(packages=[*packages], html=True)
        self._headers: Mapping[str, str] = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file; 404 where there is none."""
        response = await super().get_response(path, scope)
        lasts = path.split(os.sep)[0] == _HASHED
        caching = "public, max-age=31536000, immutable" if lasts else "no-cache"
        response.headers.update({**self._headers, "Cache-Control": caching})
        return response


def install_pages(app: FastAPI) -> None:
    """Serve all of them."""
    document = (files(_API) / "openapi.json").read_bytes()

    async def openapi(request: Request) -> Response:  # noqa: ARG001 - the protocol of Starlette
        return Response(document, media_type="application/json", headers={"Cache-Control": "no-cache"})

    app.add_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    for path, packages, policy in (
        ("/ui", [(_API, "ui")], _PAGE_POLICY),
        ("/docs", [(_API, "docs"), ("fastapi_swagger", "resources")], _DOCS_POLICY),
    ):
        app.add_route(path, _with_slash, methods=["GET"], include_in_schema=False)
        app.mount(path, _Files(packages, policy))


async def _with_slash(request: Request) -> Response:
    # Relative: a proxy may have put the service below a path of its own.
    return RedirectResponse(request.url.path.rpartition("/")[2] + "/", status_code=308)
