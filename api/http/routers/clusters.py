"""Clusters by name: write, look at, list, delete."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.clusters.service import CLUSTERS_PATH
from api.http.body import json_body
from api.http.routers.common import ETAG, ClusterName, IfMatch, Services, documented_body, json_response, version_of
from api.schemas.cluster import CLUSTER_EXAMPLE, ClusterList, ClusterPageQuery, ClusterSummaryDoc, NamedClusterDoc
from api.schemas.snapshot import ClusterDoc

router = APIRouter(prefix=CLUSTERS_PATH, tags=["clusters"])


@router.put(
    "/{name}",
    summary="Write a cluster",
    response_model=ClusterSummaryDoc,
    responses={
        200: {"headers": ETAG},
        201: {"model": ClusterSummaryDoc, "headers": ETAG, "description": "There was none before."},
    },
    openapi_extra=documented_body(ClusterDoc.__name__, {"Two nodes": CLUSTER_EXAMPLE}),
)
async def put_cluster(
    services: Services,
    name: ClusterName,
    body: Annotated[ClusterDoc, Depends(json_body(ClusterDoc))],
    if_match: IfMatch = None,
) -> Response:
    """Write nodes and fabric of a cluster once; snapshots name it: `"snapshot": {"cluster": "main", "jobs": [...]}`.

    Plans that were made with it before keep what it was. With `If-Match`, two who change it at the same time do not
    overwrite each other (412).
    """
    document, created = await run_in_threadpool(services.clusters.put, name, body, version_of(if_match))
    headers = {"ETag": f'"{document.version}"', **({"Location": document.links.self} if created else {})}
    return json_response(document, 201 if created else 200, headers)


@router.get("", summary="List clusters")
async def list_clusters(services: Services, page: Annotated[ClusterPageQuery, Query()]) -> ClusterList:
    """Clusters by name."""
    return await run_in_threadpool(services.clusters.page, page.limit, page.after)


@router.get("/{name}", summary="Look at a cluster", response_model=NamedClusterDoc, responses={200: {"headers": ETAG}})
async def get_cluster(services: Services, name: ClusterName) -> Response:
    """The cluster as it was written last."""
    document = await run_in_threadpool(services.clusters.cluster, name)
    return json_response(document, headers={"ETag": f'"{document.version}"'})


@router.delete("/{name}", summary="Delete a cluster", status_code=204)
async def delete_cluster(services: Services, name: ClusterName) -> Response:
    """Plans that were made with it keep what they need; its calendar stays."""
    await run_in_threadpool(services.clusters.delete, name)
    return Response(status_code=204)
