"""What each policy is for, what it needs and what it gives."""

from api.schemas.request import ArnoldParametersDoc, SiaParametersDoc
from api.schemas.service import PolicyDoc, PolicyListDoc

POLICIES = PolicyListDoc(
    policies=(
        PolicyDoc(
            name="sia",
            title="GPU type and count for every job, by goodput",
            source="Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling (SOSP 2023), Eqs. 2-5",
            needs=(
                "jobs with a performance: goodput (parameters or observations), throughput_table or goodput_table",
                "where jobs run now (current), to price restarts and to move as little as possible",
            ),
            gives=(
                "GPU type, GPU count, batch size and concrete GPUs per job",
                "for every job without GPUs the reason, the counts behind it and what would make it fit",
                "bound and gap of the integer program",
            ),
            parameters=SiaParametersDoc.model_json_schema(),
        ),
        PolicyDoc(
            name="arnold",
            title="Nodes and rank order for one large pre-training job, by communication groups and minipods",
            source="Arnold: Efficient pre-training of LLMs via topology-aware communication alignment, Eqs. 1-10",
            needs=(
                "a cluster with tiers, one of them the minipod tier",
                "a job with parallelism (tp, pp, dp), and transformer or the parameter alpha",
            ),
            gives=(
                "communication matrix with a node in every cell, spreads of DP and PP groups over minipods",
                "hosts in rank order",
                "bound and gap of the integer program",
            ),
            parameters=ArnoldParametersDoc.model_json_schema(),
        ),
    )
)
