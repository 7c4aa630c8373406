"""What all routes have in common that draw: `figure.svg` and `figure.png` are one route."""

from typing import Annotated, Any

from fastapi import Path
from starlette.responses import Response

from api.figures.picture_format import PictureFormat

Picture = Annotated[PictureFormat, Path(description="svg or png")]
_MEDIA = {"svg": "image/svg+xml", "png": "image/png"}
PICTURES: dict[int | str, dict[str, Any]] = {
    200: {"content": {media: {} for media in _MEDIA.values()}, "description": "The picture."}
}


def drawn(picture: bytes, format_: PictureFormat) -> Response:
    """The answer."""
    return Response(picture, media_type=_MEDIA[format_])
