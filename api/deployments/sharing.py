"""What a service tells others on its database of its deployments, and hears of theirs.

Its own are looked at in their folders and nowhere else: the database has what was told last. Of those that lie in other
folders it can say how far they are, and ask for their end; all else takes the service that has the folder.
"""

import json
import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.common.errors import StoreError
from api.deployments.present import told_document
from api.schemas.deployment_answer import DeploymentDoc
from api.store.connection import Database
from api.store.deployments import DeploymentStore, KnownDeployment, ToldDeployment
from api.store.leases import Leases
from executor.gpu_holders import Holder, seen_from
from executor.lifecycle import DeploymentState
from executor.locks import locked
from executor.records import write_text

# How often steps are told; what changes otherwise is told at once.
_NEWS_S = 2.0
_AGAIN_S = 10.0
_PLACE, _LOCK = "place", "place.lock"
_logger = logging.getLogger("stowplan.api.deployments.sharing")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What was said of a deployment last, until when that is enough, and whether it is this service's to say."""

    state: DeploymentState
    until_s: float
    document: DeploymentDoc | None
    is_ours: bool


class DeploymentSharing:
    """Deployments of one service, in `folder` if it has any, among those of all services on `database`."""

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._store = DeploymentStore(database)
        self._leases = Leases(database)
        self._folder = folder
        self._host = socket.gethostname()
        self._said: dict[str, _Said] = {}
        # What there is no more, and could not be forgotten yet.
        self._left: set[str] = set()
        # Not before, since the database is away.
        self._again_s = 0.0

    def claim(
        self, id_: str, job_id: str, holders: Sequence[Holder], refuse: Callable[[Iterator[KnownDeployment]], None]
    ) -> None:
        """Have a deployment that is about to start or to change; `refuse` raises where others have what it needs.

        It is told of those that this service does not find in its folder.
        """
        place = self._own_place()

        def look(others: Sequence[KnownDeployment]) -> None:
            # What another service of the same folder starts just now stands in no folder yet.
            refuse(each for each in others if each.told.place != place or not each.told.document)

        new = ToldDeployment(
            id=id_, place=place, host=self._host, job_id=job_id, started_at_s=time.time(), holders=_text(holders)
        )
        self._said.pop(id_, None)
        self._store.claim(new, look)

    def tell(
        self, id_: str, state: DeploymentState, look: Callable[[], tuple[DeploymentDoc, Sequence[Holder]]]
    ) -> bool:
        """Tell of a deployment if there is news; False where another service that lives looks after it."""
        said, now_s = self._said.get(id_), time.monotonic()
        is_ours = said is None or said.is_ours
        is_said = said is not None and said.state == state
        if said is not None and is_said and (now_s < said.until_s or (state.phase.final and is_ours)):
            return is_ours
        if now_s < self._again_s:
            return is_ours
        document, holders = look()
        if said is None or not said.is_ours or said.document != document:
            told = ToldDeployment(
                id=id_,
                place=self._own_place(),
                host=self._host,
                job_id=document.job_id,
                started_at_s=state.runs[0].started_at_s,
                holders=_text(holders),
                document=document.model_dump_json(),
            )
            try:
                is_ours = self._store.tell(told, is_over=state.phase.final)
            except StoreError as error:
                self._is_away("other services are not told of", id_, error)
                return is_ours
        self._said[id_] = _Said(state=state, until_s=now_s + _NEWS_S, document=document, is_ours=is_ours)
        return is_ours

    def forget(self, id_: str) -> None:
        """There is no such deployment any more; where the database is away, `forget_left` says so later."""
        self._said.pop(id_, None)
        self._left.add(id_)
        self.forget_left()

    def forget_left(self) -> None:
        """Forget what could not be forgotten before: a claim would be in everybody's way until this service ends."""
        left = frozenset(self._left)
        if not left or time.monotonic() < self._again_s:
            return
        try:
            self._store.forget(left)
        except StoreError as error:
            self._is_away("other services go on to know of", ", ".join(sorted(left)), error)
        else:
            self._left.difference_update(left)

    def forget_all_but(self, ids: Callable[[], Sequence[str]]) -> None:
        """Forget what was told of this folder, and is not in it any more."""
        place = self._place()
        if place is None:
            return
        # The folder second: what is started meanwhile stands there before it is told.
        told = set(self._store.ids(place))
        if gone := told - set(ids()):
            for id_ in gone:
                self._said.pop(id_, None)
            self._store.forget(gone)

    def known(self, id_: str) -> KnownDeployment | None:
        """What was told of a deployment, whosever it is."""
        return self._store.known(id_)

    def elsewhere(self) -> list[DeploymentDoc]:
        """All that lie in other folders and can be read, from the newest to the oldest."""
        found = []
        for known in self._store.elsewhere(self._place()):
            try:
                found.append(told_document(known))
            except StoreError as error:
                _logger.warning("%s is not shown: %s", known.told.id, error)
        return found

    def ask_stop(self, id_: str) -> None:
        """Ask the service that looks after it to stop it, now or when there is one again."""
        self._leases.ask_end(id_)

    def restart_cost_s(self, job_id: str) -> float | None:
        """The newest measured cost of a change of plan of a job."""
        found = self._store.newest(job_id, "restart_cost_s")
        return None if found is None else float(found)

    def gpus_elsewhere(self, known: KnownDeployment) -> Iterator[Holder]:
        """Who has which GPUs of another deployment, by the hosts at which this service reaches them."""
        for holder in json.loads(known.told.holders):
            told = Holder(gpus=frozenset((host, gpu) for host, gpu in holder["gpus"]), what=holder["what"])
            yield seen_from(self._host, told, known.told.host)

    def is_on_this_host(self, known: KnownDeployment) -> bool:
        """Whether its folder may be read here."""
        return known.told.host == self._host

    def _place(self) -> str | None:
        """Name of the folder, which it keeps wherever it is mounted; None while nobody has named it."""
        if self._folder is None:
            return None
        try:
            return (self._folder / _PLACE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _own_place(self) -> str:
        assert self._folder is not None  # noqa: S101 - who has none has nothing to tell
        if (place := self._place()) is not None:
            return place
        with locked(self._folder / _LOCK):
            if (place := self._place()) is None:
                place = uuid.uuid4().hex
                write_text(self._folder / _PLACE, place)
        return place

    def _is_away(self, what: str, ids: str, error: StoreError) -> None:
        # To find out takes seconds, in which nobody looks after the others.
        self._again_s = time.monotonic() + _AGAIN_S
        _logger.warning("%s %s: %s", what, ids, error)


def _text(holders: Sequence[Holder]) -> str:
    return json.dumps([{"what": holder.what, "gpus": sorted(holder.gpus)} for holder in holders])
