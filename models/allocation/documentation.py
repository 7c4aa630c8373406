"""What several policies say of themselves in the same words."""

PARALLEL_PLANS = "GPUs per job, and on them the 3D plan with ranks, hostfile and stage bounds"
REASONS = "for every job without GPUs the reason, the counts behind it and what would make it fit"
PREDICTIONS = (
    "the speed expected where a job is placed, and a warning where slow tiers make it less than was planned with"
)
