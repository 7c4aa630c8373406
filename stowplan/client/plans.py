"""Plans: ask for one, wait for it, follow it, look at it, stop it; what would be if."""

from collections.abc import Sequence

from stowplan.client import documents as d
from stowplan.client.events import Event, followed
from stowplan.client.group import WAIT_LIMIT_S, Group, Kind, posted
from stowplan.client.operation import Listing, Operation
from stowplan.client.steps import Items, Steps, request

_PLAN = "/v1/plans/{plan_id}"


class Plans(Group[Kind]):
    """`/v1/plans`."""

    @Operation
    def create(self, body: d.PlanBody, *, key: str | None = None, wait_s: float | None = None) -> Steps[d.PlanDoc]:
        """Ask for a plan; the answer comes at once, or when the plan is final, after `wait_s` at the latest."""
        return self.json(posted("/v1/plans", body=body, key=key, wait_s=wait_s))

    @Operation
    def solve(self, body: d.PlanBody, *, key: str | None = None, timeout_s: float = WAIT_LIMIT_S) -> Steps[d.PlanDoc]:
        """Ask for a plan and wait until it is final."""
        plan = yield from self.json(posted("/v1/plans", body=body, key=key))
        final: d.PlanDoc = yield from self.final(_PLAN, plan["id"], timeout_s)
        return final

    @Operation
    def wait(self, plan_id: str, *, timeout_s: float = WAIT_LIMIT_S) -> Steps[d.PlanDoc]:
        """Wait until a plan is final."""
        return self.final(_PLAN, plan_id, timeout_s)

    @Operation
    def get(self, plan_id: str) -> Steps[d.PlanDoc]:
        """Give the plan as it stands."""
        return self.json(request("GET", _PLAN, plan_id))

    @Listing
    def list(self, *, status: Sequence[d.PlanStatus] = ()) -> Items[d.PlanSummary]:
        """Give plans from the newest to the oldest."""
        return self.pages(request("GET", "/v1/plans", query={"status": [*status]}), "plans")

    @Listing
    def events(self, plan_id: str, *, after: int = 0) -> Items[Event]:
        """Follow a plan to its end: `state`, `incumbent` and `bound`, all of them or those behind event `after`."""
        return followed(f"{_PLAN}/events", plan_id, after, self.retries)

    @Operation
    def cancel(self, plan_id: str, *, wait_s: float | None = None) -> Steps[d.PlanDoc]:
        """Stop a plan; the best one found so far is kept."""
        return self.json(request("POST", f"{_PLAN}:cancel", plan_id, wait_s=wait_s))

    @Operation
    def delete(self, plan_id: str) -> Steps[None]:
        """Delete a final plan."""
        return self.json(request("DELETE", _PLAN, plan_id))

    @Operation
    def input(self, plan_id: str) -> Steps[d.PlanBody]:
        """Give the request behind a plan, defaults filled in; it can be posted again."""
        return self.json(request("GET", f"{_PLAN}/input", plan_id))

    @Operation
    def figure(self, plan_id: str) -> Steps[str]:
        """Draw a plan as SVG."""
        return self.text(request("GET", f"{_PLAN}/figure.svg", plan_id))

    @Operation
    def model(self, plan_id: str) -> Steps[str]:
        """Give the program behind a plan, in MPS format."""
        return self.text(request("GET", f"{_PLAN}/model.mps", plan_id))

    @Operation
    def export_job(
        self, plan_id: str, job_id: str, to: Sequence[str], *, options: Sequence[str] = ()
    ) -> Steps[d.ExportDoc]:
        """Give the files with which launchers and frameworks put a job where the plan has it."""
        query = {"to": [*to], "option": [*options]}
        return self.json(request("GET", f"{_PLAN}/jobs/{{job_id}}/export", plan_id, job_id, query=query))

    @Operation
    def export(self, plan_id: str, to: str, *, options: Sequence[str] = ()) -> Steps[d.PlanExportDoc]:
        """Give the files with which a scheduler is told what the plan wants."""
        return self.json(request("GET", f"{_PLAN}/export", plan_id, query={"to": to, "option": [*options]}))

    @Operation
    def export_beside(self, plan_id: str, body: d.PlanExportBody) -> Steps[d.PlanExportDoc]:
        """Give the same, with options that are documents."""
        return self.json(request("POST", f"{_PLAN}:export", plan_id, body=body))

    @Operation
    def what_if(
        self, plan_id: str, body: d.WhatIfBody, *, key: str | None = None, timeout_s: float = WAIT_LIMIT_S
    ) -> Steps[d.WhatIfDoc]:
        """Plan variants of the request of a final plan, and say what differs; why a job is not there (`place`).

        Waits until all variants are final.
        """
        asked = posted(f"{_PLAN}:what-if", plan_id, body=body, key=key)
        answer: d.WhatIfDoc = yield from self.json(asked)
        # The same key gives the same variants, with the differences that are known by then.
        for variant in answer["variants"]:
            if variant["plan"] is not None:
                yield from self.final(_PLAN, variant["plan"]["id"], timeout_s)
        final: d.WhatIfDoc = yield from self.json(asked)
        return final

    @Operation
    def difference(self, plan_id: str, other_id: str) -> Steps[d.PlanDifferenceDoc]:
        """Say what differs in another plan."""
        return self.json(request("GET", f"{_PLAN}/differences/{{other_id}}", plan_id, other_id))

    @Operation
    def difference_figure(self, plan_id: str, other_id: str) -> Steps[str]:
        """Draw both plans beside each other, as SVG."""
        return self.text(request("GET", f"{_PLAN}/differences/{{other_id}}/figure.svg", plan_id, other_id))

    @Operation
    def validate(self, body: d.PlanBody) -> Steps[d.ValidationDoc]:
        """Say what can be said about a request without solving it."""
        return self.json(request("POST", "/v1/plans:validate", body=body))

    @Operation
    def verify(self, body: d.VerifyBody) -> Steps[d.VerificationDoc]:
        """Check a placement by anybody."""
        return self.json(request("POST", "/v1/placements:verify", body=body))
