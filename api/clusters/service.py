"""Clusters by name."""

import time
from urllib.parse import quote

from api.common.errors import NotFoundError, PreconditionFailedError
from api.common.times import time_of
from api.convert.snapshot import cluster_from_document
from api.schemas.cluster import ClusterLinksDoc, ClusterList, ClusterSummaryDoc, NamedClusterDoc
from api.schemas.snapshot import ClusterDoc
from api.store.clusters import ClusterStore, StoredCluster
from api.store.connection import Database
from api.store.texts import Body

CLUSTERS_PATH = "/v1/clusters"


class Clusters:
    """What clients ask of clusters."""

    def __init__(self, database: Database) -> None:
        self._store = ClusterStore(database)

    def put(self, name: str, document: ClusterDoc, version: int | None) -> tuple[ClusterSummaryDoc, bool]:
        """Write a cluster; the second value is whether it is new.

        Parameters
        ----------
        version
            Which one is changed; None: whichever there is.

        Raises
        ------
        InputError
            When it is no legal cluster.
        PreconditionFailedError
            When it is of another version by now.
        """
        cluster_from_document(document)
        written = self._store.put(name, Body.of(document.model_dump_json()), time.time(), version)
        if written is None:
            known = self._store.cluster(name)
            has = "there is none" if known is None else f"it has version {known.version}"
            raise PreconditionFailedError(
                f"cluster {name!r} is not of version {version} ({has}); get it and change that"
            )
        return _summary(self._found(name), document), written == 1

    def cluster(self, name: str) -> NamedClusterDoc:
        """Look at a cluster; NotFoundError when there is none."""
        stored = self._found(name)
        document = ClusterDoc.model_validate_json(stored.body.text)
        return NamedClusterDoc(**dict(_summary(stored, document)), cluster=document)

    def text(self, name: str) -> str | None:
        """The document of a cluster as JSON text; None when there is none."""
        stored = self._store.cluster(name)
        return None if stored is None else stored.body.text

    def page(self, limit: int, after: str | None) -> ClusterList:
        """List clusters by name, those behind `after`."""
        # One more than asked for tells whether there is a next page.
        stored = self._store.page(limit + 1, after)
        shown = stored[:limit]
        following = None
        if len(stored) > limit:
            following = f"{CLUSTERS_PATH}?limit={limit}&after={quote(shown[-1].name, safe='')}"
        documents = (ClusterDoc.model_validate_json(each.body.text) for each in shown)
        return ClusterList(clusters=tuple(map(_summary, shown, documents)), next=following)

    def delete(self, name: str) -> None:
        """Delete a cluster; NotFoundError when there is none. Plans that were made with it keep what they need."""
        if not self._store.delete(name):
            raise _no_cluster(name)

    def _found(self, name: str) -> StoredCluster:
        stored = self._store.cluster(name)
        if stored is None:
            raise _no_cluster(name)
        return stored


def _no_cluster(name: str) -> NotFoundError:
    return NotFoundError(f"there is no cluster {name!r}; PUT it first")


def _summary(stored: StoredCluster, document: ClusterDoc) -> ClusterSummaryDoc:
    path = f"{CLUSTERS_PATH}/{quote(stored.name, safe='')}"
    return ClusterSummaryDoc(
        name=stored.name,
        version=stored.version,
        updated_at=time_of(stored.updated_at_s),
        num_nodes=len(document.nodes),
        num_gpus=sum(node.num_gpus for node in document.nodes),
        links=ClusterLinksDoc(self=path, calendar=f"{path}/calendar"),
    )
