"""What each policy is for, what it needs and what it gives."""

from api.schemas.parameters import PARAMETERS
from api.schemas.service import PolicyDoc, PolicyListDoc

_ARENA_SOURCE = (
    "Arena: Efficiently training large models via dynamic scheduling and adaptive parallelism co-design, section 3.5"
)
_ARENA_NEEDS = (
    "jobs with a throughput_table, or with a transformer or operators, for which 3D plans are made",
    "priorities; deadlines and remaining iterations where the objective asks for them",
    "where jobs run now (current), and with which plan (parallel_plan)",
)
_SUIKA_SOURCE = (
    "Suika: Efficient and high-quality rescheduling of 3D-parallelized LLM training jobs in shared clusters, "
    "section 3.2"
)
_SUIKA_NEEDS = (
    "jobs with a transformer or operators; min_gpus is the basic demand",
    "where jobs run now (current), with which plan (parallel_plan), and what earlier plans added (expansions)",
)
_PLANS = "GPUs per job, and on them the 3D plan with ranks, hostfile and stage bounds"
_REASONS = "for every job without GPUs the reason, the counts behind it and what would make it fit"


def _policy(name: str, title: str, source: str, needs: tuple[str, ...], gives: tuple[str, ...]) -> PolicyDoc:
    parameters = PARAMETERS[name].model_json_schema()
    return PolicyDoc(name=name, title=title, source=source, needs=needs, gives=gives, parameters=parameters)


POLICIES = PolicyListDoc(
    policies=(
        _policy(
            "sia",
            "GPU type and count for every job, by goodput",
            "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling (SOSP 2023), Eqs. 2-5",
            (
                "jobs with a performance: goodput (parameters or observations), throughput_table or goodput_table; or "
                "with a transformer or operators, for which 3D plans are made",
                "where jobs run now (current), to price restarts and to move as little as possible",
            ),
            (
                "GPU type, GPU count, batch size and concrete GPUs per job; the 3D plan of jobs that have a model",
                _REASONS,
                "bound and gap of the integer program",
            ),
        ),
        _policy(
            "arnold",
            "Nodes and rank order for one large pre-training job, by communication groups and minipods",
            "Arnold: Efficient pre-training of LLMs via topology-aware communication alignment, Eqs. 1-10",
            (
                "a cluster with tiers, one of them the minipod tier",
                "a job with parallelism (tp, pp, dp), and transformer or the parameter alpha",
            ),
            (
                "communication matrix with a node in every cell, spreads of DP and PP groups over minipods",
                "hosts in rank order",
                "bound and gap of the integer program",
            ),
        ),
        _policy(
            "arena",
            "GPU type, count and 3D plan for every job, by the paper's event-driven algorithm",
            f"{_ARENA_SOURCE}, Algorithm 1",
            _ARENA_NEEDS,
            (_PLANS, _REASONS, "the bound of the integer program on the same event, and the gap to it"),
        ),
        _policy(
            "arena-ilp",
            "GPU type, count and 3D plan for every job, by integer programming",
            f"{_ARENA_SOURCE}, Eqs. 5-7",
            _ARENA_NEEDS,
            (_PLANS, _REASONS, "bound and gap of the integer program"),
        ),
        _policy(
            "suika",
            "Start waiting jobs, and grow running ones onto free GPUs, by the paper's algorithm",
            f"{_SUIKA_SOURCE}, Algorithm 2",
            _SUIKA_NEEDS,
            (_PLANS, _REASONS, "the bound of the integer program on the same scale-outs, and the gap to it"),
        ),
        _policy(
            "suika-ilp",
            "Start waiting jobs, and grow running ones onto free GPUs, by integer programming",
            f"{_SUIKA_SOURCE}, Problem 1",
            _SUIKA_NEEDS,
            (_PLANS, _REASONS, "bound and gap of the integer program"),
        ),
    )
)
