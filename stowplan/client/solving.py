"""What plans and trains beside plans for clusters: comparisons, 3D plans, calibrations, replays, forecasters."""

from typing import Any, Literal

from stowplan.client import documents as d
from stowplan.client.events import Event, followed
from stowplan.client.group import WAIT_LIMIT_S, Group, Kind, posted
from stowplan.client.operation import Listing, Operation
from stowplan.client.steps import Items, Steps, request

_COMPARISON = "/v1/solver-comparisons/{comparison_id}"
_CALIBRATION = "/v1/calibrations/{calibration}"
_REPLAYS = "/v1/replays/{replays_id}"
_FORECASTER = "/v1/forecasters/{forecaster}"
Picture = Literal["svg", "png"]


class Comparisons(Group[Kind]):
    """`/v1/solver-comparisons`."""

    @Operation
    def create(
        self, body: d.ComparisonBody, *, key: str | None = None, wait_s: float | None = None
    ) -> Steps[d.ComparisonDoc]:
        """Ask for a comparison of solvers on an instance."""
        return self.json(posted("/v1/solver-comparisons", body=body, key=key, wait_s=wait_s))

    @Operation
    def wait(self, comparison_id: str, *, timeout_s: float = WAIT_LIMIT_S) -> Steps[d.ComparisonDoc]:
        """Wait until it is final."""
        return self.final(_COMPARISON, comparison_id, timeout_s)

    @Operation
    def get(self, comparison_id: str) -> Steps[d.ComparisonDoc]:
        """Give it as it stands."""
        return self.json(request("GET", _COMPARISON, comparison_id))

    @Listing
    def list(self) -> Items[d.ComparisonSummary]:
        """Give comparisons from the newest to the oldest."""
        return self.pages(request("GET", "/v1/solver-comparisons"), "comparisons")

    @Operation
    def delete(self, comparison_id: str) -> Steps[d.ComparisonDoc | None]:
        """Stop it where it runs, else delete it."""
        return self.json(request("DELETE", _COMPARISON, comparison_id))

    @Operation
    def figure(self, comparison_id: str) -> Steps[str]:
        """Draw it as SVG."""
        return self.text(request("GET", f"{_COMPARISON}/figure.svg", comparison_id))


class ParallelPlans(Group[Kind]):
    """`/v1/parallel-plans`: nothing is stored."""

    @Operation
    def create(self, body: d.ParallelPlanBody) -> Steps[d.ParallelPlanAnswer]:
        """Plan one job in three dimensions."""
        return self.json(request("POST", "/v1/parallel-plans", body=body))

    @Operation
    def export(self, body: d.ExportBody) -> Steps[d.ExportDoc]:
        """Give the files with which launchers and frameworks put a job where a plan has it."""
        return self.json(request("POST", "/v1/parallel-plans:export", body=body))

    @Operation
    def figure(self, body: d.ParallelPlanBody, *, picture: Picture = "svg") -> Steps[bytes]:
        """Draw the answer to the same request."""
        return self.content(request("POST", "/v1/parallel-plans/figure.{picture}", picture, body=body))


class Calibrations(Group[Kind]):
    """`/v1/calibrations`."""

    @Operation
    def create(self, body: d.CalibrationBody, *, key: str | None = None) -> Steps[d.CalibratedSystemDoc]:
        """Make factors of what a site has measured."""
        return self.json(posted("/v1/calibrations", body=body, key=key))

    @Listing
    def list(self) -> Items[d.CalibrationSummary]:
        """Give calibrations of this site from the newest to the oldest, without those that are shipped."""
        return self.pages(request("GET", "/v1/calibrations"), "calibrations")

    @Operation
    def get(self, calibration: str) -> Steps[d.CalibratedSystemDoc]:
        """Give a calibration, also one that is shipped."""
        return self.json(request("GET", _CALIBRATION, calibration))

    @Operation
    def delete(self, calibration: str) -> Steps[None]:
        """Delete a calibration."""
        return self.json(request("DELETE", _CALIBRATION, calibration))


class Replays(Group[Kind]):
    """`/v1/replays`."""

    @Operation
    def create(self, body: d.ReplayBody, *, key: str | None = None, wait_s: float | None = None) -> Steps[d.ReplayDoc]:
        """Say what policies would have made of a trace of jobs."""
        return self.json(posted("/v1/replays", body=body, key=key, wait_s=wait_s))

    @Operation
    def wait(self, replays_id: str, *, timeout_s: float = WAIT_LIMIT_S) -> Steps[d.ReplayDoc]:
        """Wait until all are final."""
        return self.final(_REPLAYS, replays_id, timeout_s)

    @Operation
    def get(self, replays_id: str) -> Steps[d.ReplayDoc]:
        """Say how far they are."""
        return self.json(request("GET", _REPLAYS, replays_id))

    @Listing
    def list(self) -> Items[d.ReplaySummary]:
        """Give replays from the newest to the oldest."""
        return self.pages(request("GET", "/v1/replays"), "replays")

    @Listing
    def events(self, replays_id: str, *, after: int = 0) -> Items[Event]:
        """Follow replays to their end: `state` and `progress`."""
        return followed(f"{_REPLAYS}/events", replays_id, after, self.retries)

    @Operation
    def report(self, replays_id: str) -> Steps[d.ReplayReportDoc]:
        """Give all figures and jobs."""
        return self.json(request("GET", f"{_REPLAYS}/report", replays_id))

    @Operation
    def figure(self, replays_id: str, *, picture: Picture = "svg") -> Steps[bytes]:
        """Draw them."""
        return self.content(request("GET", f"{_REPLAYS}/figure.{picture}", replays_id))

    @Operation
    def delete(self, replays_id: str) -> Steps[d.ReplayDoc | None]:
        """Stop them where they run, else delete them."""
        return self.json(request("DELETE", _REPLAYS, replays_id))


class Forecasters(Group[Kind]):
    """`/v1/forecasters`."""

    @Operation
    def create(
        self, body: d.ForecasterBody, *, key: str | None = None, wait_s: float | None = None
    ) -> Steps[d.ForecasterDoc]:
        """Learn from a history how long jobs last."""
        return self.json(posted("/v1/forecasters", body=body, key=key, wait_s=wait_s))

    @Operation
    def wait(self, forecaster: str, *, timeout_s: float = WAIT_LIMIT_S) -> Steps[d.ForecasterDoc]:
        """Wait until it has learned, or failed."""
        return self.final(_FORECASTER, forecaster, timeout_s)

    @Operation
    def get(self, forecaster: str) -> Steps[d.ForecasterDoc]:
        """Give it as it stands."""
        return self.json(request("GET", _FORECASTER, forecaster))

    @Listing
    def list(self) -> Items[d.ForecasterSummary]:
        """Give forecasters from the newest to the oldest."""
        return self.pages(request("GET", "/v1/forecasters"), "forecasters")

    @Operation
    def predict(self, forecaster: str, body: d.ForecastBody) -> Steps[d.ForecastsDoc]:
        """Say how much longer jobs last."""
        return self.json(request("POST", f"{_FORECASTER}:predict", forecaster, body=body))

    @Operation
    def report(self, forecaster: str) -> Steps[d.ForecasterReportDoc]:
        """Say how well it did on what it had not seen."""
        return self.json(request("GET", f"{_FORECASTER}/report", forecaster))

    @Operation
    def record(self, forecaster: str) -> Steps[dict[str, Any]]:
        """Give what `stowplan plan --forecaster` reads."""
        return self.json(request("GET", f"{_FORECASTER}/record", forecaster))

    @Operation
    def figure(self, forecaster: str, *, picture: Picture = "svg") -> Steps[bytes]:
        """Draw how well it did."""
        return self.content(request("GET", f"{_FORECASTER}/figure.{picture}", forecaster))

    @Operation
    def delete(self, forecaster: str) -> Steps[d.ForecasterDoc | None]:
        """Stop it where it learns, else delete it."""
        return self.json(request("DELETE", _FORECASTER, forecaster))
