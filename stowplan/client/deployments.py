"""Deployments, what their jobs have measured, and the service itself."""

from typing import Any

from stowplan.client import documents as d
from stowplan.client.group import Group, Kind, items_of
from stowplan.client.operation import Listing, Operation
from stowplan.client.steps import Items, Steps, request

_DEPLOYMENT = "/v1/deployments/{deployment_id}"
_JOB = "/v1/jobs/{job_id}"


class Deployments(Group[Kind]):
    """`/v1/deployments`. What starts or moves ranks is not sent twice unless it has reached nobody."""

    @Operation
    def create(self, body: d.DeploymentBody) -> Steps[d.DeploymentDoc]:
        """Start a training by a plan."""
        return self.json(request("POST", "/v1/deployments", body=body, repeatable=False))

    @Listing
    def list(self) -> Items[d.DeploymentDoc]:
        """Give deployments from the newest to the oldest."""
        yield from items_of((yield from self.json(request("GET", "/v1/deployments")))["deployments"])

    @Operation
    def get(self, deployment_id: str) -> Steps[d.DeploymentDoc]:
        """Give phase, runs, steps and loss."""
        return self.json(request("GET", _DEPLOYMENT, deployment_id))

    @Operation
    def reconfigure(self, deployment_id: str, body: d.ReconfigureBody) -> Steps[d.DeploymentDoc]:
        """Move it to another plan."""
        return self.json(request("POST", f"{_DEPLOYMENT}:reconfigure", deployment_id, body=body, repeatable=False))

    @Operation
    def stop(self, deployment_id: str) -> Steps[d.DeploymentDoc]:
        """Write a checkpoint and end."""
        return self.json(request("POST", f"{_DEPLOYMENT}:stop", deployment_id))

    @Operation
    def logs(self, deployment_id: str, *, rank: int = 0, run: int | None = None) -> Steps[str]:
        """Give what a rank has printed so far."""
        return self.text(request("GET", f"{_DEPLOYMENT}/logs", deployment_id, query={"rank": rank, "run": run}))


class Jobs(Group[Kind]):
    """`/v1/jobs`: what they have measured."""

    @Operation
    def post_metrics(self, job_id: str, body: d.MetricsBody) -> Steps[d.MetricsReceiptDoc]:
        """Tell steps of a job; what was told before is not kept twice."""
        return self.json(request("POST", f"{_JOB}/metrics", job_id, body=body))

    @Listing
    def metrics(self, job_id: str) -> Items[d.StepSummaryDoc]:
        """Give steps from the newest launch and step on."""
        return self.pages(request("GET", f"{_JOB}/metrics", job_id), "steps")

    @Operation
    def performance(self, job_id: str) -> Steps[d.JobPerformanceDoc]:
        """Say how what was predicted compares with what was measured."""
        return self.json(request("GET", f"{_JOB}/performance", job_id))


class Service(Group[Kind]):
    """What the service says of itself, and examples."""

    @Operation
    def policies(self) -> Steps[d.PolicyListDoc]:
        """Give policies with their parameters."""
        return self.json(request("GET", "/v1/policies"))

    @Operation
    def examples(self) -> Steps[d.ExampleListDoc]:
        """Give the names of examples."""
        return self.json(request("GET", "/v1/examples"))

    @Operation
    def example(self, example_id: str) -> Steps[Any]:
        """Give the request of an example, to be posted."""
        return self.json(request("GET", "/v1/examples/{example_id}", example_id))

    @Operation
    def ready(self) -> Steps[d.HealthDoc]:
        """Say whether plans can be asked for; a problem where they cannot."""
        return self.json(request("GET", "/readyz"))


class Tokens(Group[Kind]):
    """`/v1/tokens`, and who changed what."""

    @Operation
    def create(self, body: d.TokenBody) -> Steps[d.NewTokenDoc]:
        """Make a token, which is told once: not sent twice unless it has reached nobody."""
        return self.json(request("POST", "/v1/tokens", body=body, repeatable=False))

    @Listing
    def list(self) -> Items[d.TokenDoc]:
        """Give tokens from the newest to the oldest, without what they are."""
        return self.pages(request("GET", "/v1/tokens"), "tokens")

    @Operation
    def revoke(self, token_id: str) -> Steps[d.TokenDoc]:
        """Revoke a token."""
        return self.json(request("POST", "/v1/tokens/{token_id}:revoke", token_id))

    @Listing
    def audit(self, *, client: str | None = None) -> Items[d.AuditEntryDoc]:
        """Give who changed what, from the newest to the oldest."""
        return self.pages(request("GET", "/v1/audit", query={"client": client}), "entries")
