"""Snapshots, clusters by name, their calendars, and reservations."""

from typing import Literal

from stowplan.client import documents as d
from stowplan.client.group import Group, Kind, posted
from stowplan.client.operation import Listing, Operation
from stowplan.client.steps import Items, Request, Steps, request

_CLUSTER = "/v1/clusters/{name}"
_RESERVATION = "/v1/reservations/{reservation_id}"


class Snapshots(Group[Kind]):
    """`/v1/snapshots`."""

    @Operation
    def create(self, body: d.SnapshotBody) -> Steps[d.SnapshotReceiptDoc]:
        """Store a snapshot, whole or as what has changed; requests name it by its `snapshot_id` then.

        The same content is stored once.
        """
        return self.json(request("POST", "/v1/snapshots", body=body))

    @Operation
    def get(self, snapshot_id: str) -> Steps[d.SnapshotDoc]:
        """Give a snapshot."""
        return self.json(request("GET", "/v1/snapshots/{snapshot_id}", snapshot_id))

    @Operation
    def read(self, body: d.ImportBody) -> Steps[d.ImportedSnapshotDoc]:
        """Make a snapshot of what a scheduler says."""
        return self.json(request("POST", "/v1/snapshots:import", body=body))


class Clusters(Group[Kind]):
    """`/v1/clusters`."""

    @Operation
    def put(self, name: str, body: d.ClusterDoc, *, version: int | None = None) -> Steps[d.ClusterSummaryDoc]:
        """Write a cluster under a name; with `version` only where it still has that version."""
        return self.json(_put(_CLUSTER, name, body, version))

    @Operation
    def get(self, name: str) -> Steps[d.NamedClusterDoc]:
        """Give a cluster as it was written last."""
        return self.json(request("GET", _CLUSTER, name))

    @Listing
    def list(self) -> Items[d.ClusterSummaryDoc]:
        """Give clusters by name."""
        return self.pages(request("GET", "/v1/clusters"), "clusters")

    @Operation
    def delete(self, name: str) -> Steps[None]:
        """Delete a cluster."""
        return self.json(request("DELETE", _CLUSTER, name))


class Calendars(Group[Kind]):
    """`/v1/clusters/{name}/calendar`."""

    @Operation
    def get(self, name: str) -> Steps[d.CalendarDoc]:
        """Give the calendar of a cluster."""
        return self.json(request("GET", f"{_CLUSTER}/calendar", name))

    @Operation
    def put(self, name: str, body: d.CalendarBody, *, version: int | None = None) -> Steps[d.CalendarDoc]:
        """Write it; with `version` only where it still has that version."""
        return self.json(_put(f"{_CLUSTER}/calendar", name, body, version))

    @Operation
    def icalendar(self, name: str) -> Steps[str]:
        """Give it for calendar programs."""
        return self.text(request("GET", f"{_CLUSTER}/calendar.ics", name))

    @Operation
    def figure(self, name: str, *, picture: Literal["svg", "png"] = "svg") -> Steps[bytes]:
        """Draw it."""
        return self.content(request("GET", f"{_CLUSTER}/calendar/figure.{picture}", name))


class Reservations(Group[Kind]):
    """`/v1/reservations`."""

    @Operation
    def create(self, body: d.ReservationBody, *, key: str | None = None) -> Steps[d.ReservationDoc]:
        """Propose a reservation."""
        return self.json(posted("/v1/reservations", body=body, key=key))

    @Operation
    def confirm(self, reservation_id: str) -> Steps[d.ReservationDoc]:
        """Confirm what was proposed."""
        return self.json(request("POST", f"{_RESERVATION}:confirm", reservation_id))

    @Operation
    def get(self, reservation_id: str) -> Steps[d.ReservationDoc]:
        """Give a reservation."""
        return self.json(request("GET", _RESERVATION, reservation_id))

    @Listing
    def list(self, *, cluster: str | None = None) -> Items[d.ReservationDoc]:
        """Give reservations from the newest to the oldest, of one cluster or of all."""
        return self.pages(request("GET", "/v1/reservations", query={"cluster": cluster}), "reservations")

    @Operation
    def delete(self, reservation_id: str) -> Steps[d.ReservationDoc | None]:
        """Cancel a reservation, or delete one that is over."""
        return self.json(request("DELETE", _RESERVATION, reservation_id))


def _put(template: str, name: str, body: object, version: int | None) -> Request:
    if version is None:
        return request("PUT", template, name, body=body)
    # Whoever does not know whether the first attempt was written cannot tell it from a change by somebody else.
    return request("PUT", template, name, body=body, repeatable=False, If_Match=f'"{version}"')
