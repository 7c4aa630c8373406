"""What published schemas say of the objects that we write or change: no field that they have not, all that they need.

Kubernetes, JobSet and TrainJob by the models of kubeflow-trainer-api. Of what has no package in Python, the fields that
we write, from the published definitions: Kueue v0.19.2 (`config/components/crd/bases/kueue.x-k8s.io_workloads.yaml`,
the rules of `apis/kueue/v1beta2/workload_types.go`), LeaderWorkerSet v0.9.0
(`config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml`).
"""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from kubeflow_trainer_api.models.io_k8s_api_core_v1_pod_template_spec import IoK8sApiCoreV1PodTemplateSpec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Positive = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Short = Annotated[str, Field(max_length=63)]
PodSetName = Annotated[str, Field(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Level = Annotated[str, Field(max_length=317)]


class Strict(BaseModel):
    """Nothing beside the fields, whose names are in camelCase there."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class PodSetUpdate(Strict):
    """Of an answer; both versions."""

    name: PodSetName
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, Short] = {}


class CheckState(Strict):
    """An item of `status.admissionChecks`; both versions."""

    name: Annotated[str, Field(min_length=1, max_length=316)]
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    last_transition_time: datetime
    message: Annotated[str, Field(max_length=32768)]
    requeue_after_seconds: Count | None = None
    retry_count: Count | None = None
    pod_set_updates: Annotated[list[PodSetUpdate], Field(max_length=10)] = []


class DomainOld(Strict):
    """v1beta1."""

    values: Annotated[list[Short], Field(min_length=1, max_length=16)]
    count: Positive


class TopologyOld(Strict):
    """v1beta1."""

    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]
    domains: list[DomainOld]

    def expanded(self) -> list[str]:
        """Host of every pod, by rank."""
        return [domain.values[-1] for domain in self.domains for _ in range(domain.count)]


class Individual(Strict):
    """v1beta2."""

    prefix: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    suffix: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    roots: Annotated[list[Short], Field(min_length=1, max_length=100_000)]


class LevelValues(Strict):
    """v1beta2."""

    universal: Short | None = None
    individual: Individual | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        assert (self.universal is None) != (self.individual is None)
        return self


class PodCounts(Strict):
    """v1beta2."""

    universal: Positive | None = None
    individual: Annotated[list[Positive], Field(min_length=1, max_length=100_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        assert (self.universal is None) != (self.individual is None)
        return self


class Slice(Strict):
    """v1beta2."""

    domain_count: Positive
    values_per_level: Annotated[list[LevelValues], Field(min_length=1, max_length=16)]
    pod_counts: PodCounts

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        assert self.pod_counts.individual is None or len(self.pod_counts.individual) == self.domain_count
        for values in self.values_per_level:
            assert values.individual is None or len(values.individual.roots) == self.domain_count
        return self


class TopologyNew(Strict):
    """v1beta2."""

    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]
    slices: Annotated[list[Slice], Field(max_length=1000)]

    @model_validator(mode="after")
    def _levels(self) -> Self:
        assert all(len(one.values_per_level) == len(self.levels) for one in self.slices)
        return self

    def expanded(self) -> list[str]:
        """Host of every pod, by rank."""
        hosts = []
        for one in self.slices:
            values, counts = one.values_per_level[-1], one.pod_counts.individual or [one.pod_counts.universal or 0]
            found = values.individual
            names = (
                [values.universal or ""]
                if found is None
                else [f"{found.prefix or ''}{root}{found.suffix or ''}" for root in found.roots]
            )
            for k in range(one.domain_count):
                hosts += [names[k % len(names)]] * counts[k % len(counts)]
        return hosts


TOPOLOGIES: dict[str, type[TopologyOld] | type[TopologyNew]] = {"v1beta1": TopologyOld, "v1beta2": TopologyNew}


class LeaderWorkerTemplate(Strict):
    """Of a LeaderWorkerSet."""

    worker_template: dict[str, Any]
    leader_template: dict[str, Any] | None = None
    size: Positive = 1
    restart_policy: Literal["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"] | None = None

    @model_validator(mode="after")
    def _templates(self) -> Self:
        for template in (self.worker_template, self.leader_template):
            assert template is None or known(IoK8sApiCoreV1PodTemplateSpec, template)
        return self


class NetworkConfig(Strict):
    """Of a LeaderWorkerSet."""

    subdomain_policy: Literal["Shared", "UniquePerReplica"]


class LeaderWorkerSetSpec(Strict):
    """`spec` of a LeaderWorkerSet."""

    replicas: Count = 1
    leader_worker_template: LeaderWorkerTemplate
    network_config: NetworkConfig | None = None
    startup_policy: Literal["LeaderCreated", "LeaderReady"] | None = None


def known(model: Any, document: dict[str, Any]) -> bool:
    """Whether a model of kubeflow-trainer-api has every field: types are checked on the way in, and what it does not
    know is lost on the way out."""
    return bool(model.from_dict(document).to_dict() == document)
