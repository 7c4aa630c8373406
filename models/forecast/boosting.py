"""Gradient boosting of discrete hazards: how likely a job ends in an interval of time that it has reached.

Time is cut at knots, so that about as many of the jobs that ended do so in each interval. A job gives an example for
every interval that it lasted through (it did not end there), and one for that in which it ended; one that still runs
gives those that it lasted through, so that censored jobs say what they know and no more. LightGBM learns

    logit P(ends in interval b | reached b, features) = base_b + trees(features, b)

from base_b, the share of all jobs: without trees it is the trivial predictor. How many trees there are is told by the
jobs that follow, which it does not learn from. Arnold (appendix G) has classes of time by LightGBM; hazards are their
form that knows of running jobs, and gives the rest of what has lasted a while.

The only module that needs LightGBM; its models are stored as their text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.forecast.curves import Curves
from models.forecast.extra import require_lightgbm
from models.forecast.features import FEATURES, NAMED, FeatureMatrix
from models.forecast.history import LEAST_S
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

NUM_INTERVALS = 30
# Behind the last of these, few jobs end: some knots that grow by a factor, to twice the longest job.
_NUM_TAIL = 8
_SHORTEST_S = 60.0
_MOST_TREES = 400
_PATIENCE = 20
_PARAMETERS = {
    "objective": "binary",
    "metric": "binary_logloss",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 200,
    "feature_fraction": 0.8,
    "cat_smooth": 50.0,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
# Jobs whose examples are in memory at a time.
_CHUNK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """A trained model. `knots_s` from 1 s on; `base` of the intervals between them; `model` LightGBM's text, empty
    without trees."""

    knots_s: tuple[float, ...]
    base: tuple[float, ...]
    model: str


def knots_of(ended_s: FloatVector) -> FloatVector:
    """Knots for jobs that took so long."""
    inner = np.unique(np.quantile(ended_s, np.linspace(0.0, 1.0, NUM_INTERVALS + 1)[1:-1]))
    inner = inner[inner > _SHORTEST_S]
    first = inner[-1] if inner.size else _SHORTEST_S
    tail = np.geomspace(first, max(2.0 * float(ended_s.max()), 1.5 * first), _NUM_TAIL)
    knots: FloatVector = np.concatenate([[LEAST_S], inner if inner.size else [_SHORTEST_S], tail[1:]])
    return knots


def learn(features: FeatureMatrix, lasted_s: FloatVector, ended: Mask, num_learned: int, threads: int = 1) -> Hazards:
    """Learn from the first so many jobs, with as many trees as are best for the others.

    Parameters
    ----------
    features
        (jobs, features), as `features_of`.
    lasted_s, ended
        (jobs,) how long each has lasted, and whether it ended then.
    threads
        More than one help where no other process is busy: they wait for each other at every node of every tree.
    """
    require_lightgbm()
    # A third of a second, and a package that need not be there.
    import lightgbm

    knots = knots_of(lasted_s[:num_learned][ended[:num_learned]])
    parts = [slice(0, num_learned), slice(num_learned, None)]
    examples = [_examples(features[part], lasted_s[part], ended[part], knots) for part in parts]
    intervals, labels = examples[0][0][:, -1].astype(np.int64), examples[0][1]
    num = len(knots) - 1
    share = (np.bincount(intervals, labels, num) + 0.5) / (np.bincount(intervals, minlength=num) + 1.0)
    base = np.log(share / (1.0 - share))
    named = [FEATURES.index(name) for name in NAMED]
    sets: list[Any] = []
    for rows, is_end in examples:
        offsets = base[rows[:, -1].astype(np.int64)]
        reference = sets[0] if sets else None
        sets.append(lightgbm.Dataset(rows, is_end, init_score=offsets, reference=reference, categorical_feature=named))
    stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
    parameters = {**_PARAMETERS, "num_threads": threads}
    booster = lightgbm.train(parameters, sets[0], _MOST_TREES, valid_sets=sets[1:], callbacks=[stop])
    text = booster.model_to_string(num_iteration=booster.best_iteration)
    return Hazards(knots_s=tuple(knots.tolist()), base=tuple(base.tolist()), model=text)


def curves(hazards: Hazards, features: FeatureMatrix, threads: int = 1) -> Curves:
    """What a model says of jobs with these features, (jobs, features)."""
    require_lightgbm()
    import lightgbm

    booster = lightgbm.Booster(model_str=hazards.model)
    base = np.array(hazards.base)
    intervals = np.arange(len(base), dtype=np.float32)
    rows = [
        _cumulative(
            booster.predict(_crossed(features[k : k + _CHUNK], intervals), raw_score=True, num_threads=threads), base
        )
        for k in range(0, len(features), _CHUNK)
    ]
    found = np.concatenate(rows) if rows else np.zeros((0, len(base) + 1))
    return Curves(knots_s=np.array(hazards.knots_s), hazards=found)


def _examples(
    features: FeatureMatrix, lasted_s: FloatVector, ended: Mask, knots: FloatVector
) -> tuple[FeatureMatrix, FloatVector]:
    """An example for every interval that a job lasted through, or ended in: features with the interval, and whether."""
    last = np.minimum(np.searchsorted(knots, lasted_s, side="right") - 1, len(knots) - 2)
    num: IntVector = last + ended
    jobs = np.repeat(np.arange(len(num)), num)
    intervals = np.arange(len(jobs)) - np.repeat(np.cumsum(num) - num, num)
    rows = np.column_stack([features[jobs], intervals.astype(np.float32)])
    return rows, ((intervals == last[jobs]) & ended[jobs]).astype(np.float64)


def _crossed(features: FeatureMatrix, intervals: FeatureMatrix) -> FeatureMatrix:
    """Every job with every interval, job by job."""
    return np.column_stack([np.repeat(features, len(intervals), axis=0), np.tile(intervals, len(features))])


def _cumulative(trees: Sequence[float], base: FloatVector) -> FloatMatrix:
    """Cumulative hazards at the knots from what trees add to the base; -log(1 - P(ends)) is log(1 + exp(logit))."""
    logits = np.asarray(trees).reshape(-1, len(base)) + base
    steps = np.logaddexp(0.0, logits)
    return np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
