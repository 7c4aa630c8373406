"""Which way to train is best on every number of GPUs, when each was planned by itself."""

from collections.abc import Sequence

from models.parallelism.request import Alternative, MissingPoint, Offer, ParallelAnswer
from models.parallelism.results import how_close
from models.parallelism.training import Training


def best_trained(offer: Offer, ways: Sequence[tuple[Training, ParallelAnswer]]) -> ParallelAnswer:
    """Join the answers to one offer: per count the fastest point with its grids, and all ways beside it.

    Of equally fast ways the first one is taken. Where a count has no point, what comes closest to one says why.
    """
    parts = [_of_count(offer, count, ways) for count in offer.counts]
    return ParallelAnswer(
        points=tuple(point for part in parts for point in part.points),
        missing=tuple(missing for part in parts for missing in part.missing),
        grids=tuple(grid for part in parts for grid in part.grids),
        alternatives=tuple(other for part in parts for other in part.alternatives),
        warnings=tuple(issue for part in parts for issue in part.warnings),
    )


def _of_count(offer: Offer, count: int, ways: Sequence[tuple[Training, ParallelAnswer]]) -> ParallelAnswer:
    points = {training: point for training, way in ways for point in way.points if point.num_gpus == count}
    missing = {training: none for training, way in ways for none in way.missing if none.num_gpus == count}
    fastest = sorted(points, key=lambda way: (not points[way].fits, points[way].estimate.iteration.total_s))
    without = [training for training, _ in ways if training in missing]
    best = next(iter(fastest or sorted(without, key=lambda training: _distance(missing[training]))))
    answer = next(way for training, way in ways if training == best)
    name = offer.gpu_type.name
    return ParallelAnswer(
        points=(points[best],) if fastest else (),
        missing=() if fastest else (missing[best],),
        grids=tuple(grid for grid in answer.grids if grid.num_gpus == count),
        alternatives=(
            *(
                Alternative(gpu_type=name, num_gpus=count, training=training, estimate=points[training].estimate)
                for training in fastest
            ),
            *(
                Alternative(
                    gpu_type=name, num_gpus=count, training=training, estimate=None, why=_why(missing[training])
                )
                for training in without
            ),
        ),
        warnings=answer.warnings,
    )


def _distance(missing: MissingPoint) -> tuple[bool, float]:
    return min((how_close(rejection) for rejection in missing.rejections), default=(True, 0.0))


def _why(missing: MissingPoint) -> str:
    return f"{missing.rejections[0].candidate}: {missing.rejections[0].detail}" if missing.rejections else "no plan"
