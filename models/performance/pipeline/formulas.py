r"""Makespans of GPipe, 1F1B and ZB-H1 in closed form: the longest path of the schedule, found without walking it.

Stages i = 0 .. S - 1 with f_i, b_i per micro-batch, N micro-batches, w_i = S - 1 - i forward passes ahead (GPipe: N -
1), a_i = min(w_i, N - 1). F_i = sum_{k<=i} f_k, B_i likewise; transfers to and from the stages before are part of both.
tau_i: what stage i still does when its gradients are there (exposed reduction, optimiser).

A path is given by the stage M where it stays. It runs forward over the first micro-batch to a stage j >= M, on the way
waits a_j further forward passes at the slowest stage so far, and comes back to M with the first gradient:

    E_M = max_{j>=M} ( F_j + a_j max_{i<=j} f_i + B_j ) - B_{M-1}

The end is the same backwards in time: from the last forward pass of M on to j >= M, back to q <= j, where it waits a_j
backward passes, back to i <= q, whose tau_i follows:

    X_M = max_{j>=M} ( F_j + B_j + max_{q<=j} ( a_j b_q + max_{i<=q} ( tau_i - B_{i-1} ) ) ) - F_{M-1}

Between the two M works without pause, N - 2 - w_M times f_M + b_M:

    T = max_M  E_M + X_M + (N - 2 - w_M) (f_M + b_M)                                              where w_M <= N - 2

Where w_M >= N - 1, M makes all forward passes first; there the path is E_M, then N - 1 backward passes at q <= M; or
N - 1 forward passes at i <= M, then X_M - f_M. All paths that leave out a stage's turn for that of others are
dominated, since c_M = f_M + b_M is the largest on the path; the tests compare with the simulator, which agrees to
rounding.

Transfers beside computation (not blocking) can be the bottleneck: from M forward to M + k and back takes k + 1 turns.
The path takes as many of these rounds, for the best k, as fit. It leaves out rounds of mixed length, and links that
are late themselves: a lower bound then, within 2 % while a transfer takes at most a fifth of a forward pass.

ZB-H1. b is of the inputs, v_i of the weights. Waiting b_q is b_q + v_q from the q-th micro-batch on, tau_i gets
min(i + 1, N) v_i, turns of M have v_M but for the first M. In those others may be slower, so the path may first wait
n = M turns at a stage k > M (or k turns), or k - 1 turns at k < M and come with the M-th micro-batch; with N <= S it
may also wait at k and then only return. Exact to rounding for N > S, a lower bound within 0.5 % otherwise.

Every formula is a maximum of sums of times of passes of real paths: it rises with all of them, scales with them, and is
never above the simulated makespan.
"""

from dataclasses import replace

import numpy as np

from models.performance.pipeline.line import Counts, Line
from models.performance.pipeline.schedule import ScheduleKind
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray
from stowplan.errors import InputError


def pipeline_makespan_s(
    kind: ScheduleKind, times: StageTimes, num_micro_batches: Counts, extra_s: FloatArray | None = None
) -> FloatArray:
    """Seconds from the start of an iteration until the last stage is done, (...).

    Parameters
    ----------
    times
        (..., S). Stages that a plan does not have are 0, and stand behind those that it has.
    num_micro_batches
        (...)
    extra_s
        (..., S) tau: exposed reduction and optimiser of a stage; None: nothing.

    Raises
    ------
    InputError
        For schedules of several chunks (see `interleaved`, `split`).
    """
    line = _line(kind, times, num_micro_batches)
    return _longest_path(line, line.tail(extra_s))


def pipeline_parts_s(
    kind: ScheduleKind, times: StageTimes, num_micro_batches: Counts, extra_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The makespan in three parts, as Suika's formula has them: the first micro-batch, forward and back (weights of
    ZB-H1 aside); what the others add; what `extra_s` adds. Arguments and errors as for `pipeline_makespan_s`."""
    line = _line(kind, times, num_micro_batches)
    passes = _longest_path(line, line.tail(None))
    warm_up = line.forward_end[..., -1] + line.backward_end[..., -1]
    return warm_up, passes - warm_up, _longest_path(line, line.tail(extra_s)) - passes


def _line(kind: ScheduleKind, times: StageTimes, num_micro_batches: Counts) -> Line:
    if kind not in (ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B, ScheduleKind.ZERO_BUBBLE):
        raise InputError(f"{kind} schedules have several chunks and no closed form here; simulate them")
    return Line.of(kind, times, num_micro_batches)


def _longest_path(line: Line, tail: FloatArray | None) -> FloatArray:
    entry, leave = line.entry(), line.leave(tail)
    middle = line.first_turns(entry, later=True) + line.stay
    if line.beside:
        middle = np.maximum(middle, line.first_turns(entry, later=False) + line.rounds_between())
    paths = np.where(line.turning, middle + leave, 0.0)
    if not line.turning.all():
        filled = line.exists & ~line.turning
        all_backward = entry + line.late_backward(tail)
        all_forward = line.forward_end + (line.count - 1) * line.slowest_forward + leave - line.forward
        paths = np.where(filled, np.maximum(all_backward, all_forward), paths)
        if line.weight is not None:
            paths = np.maximum(paths, line.returning(entry, tail))
    return np.asarray(paths.max(axis=-1))


def lower_bound_s(
    kind: ScheduleKind, times: StageTimes, num_micro_batches: Counts, extra_s: FloatArray | None = None
) -> FloatArray:
    """What the makespan is never below, (...): the first micro-batch comes to a stage, which does all its work without
    a pause; its last gradient goes back to a stage before, which ends with what it does then.

    Arguments as for `pipeline_makespan_s`; the closed form is never below it, and not much dearer.
    """
    line = Line.of(kind, times, num_micro_batches)
    extra = np.zeros(1) if extra_s is None else np.asarray(extra_s)
    work = line.forward_start + line.count * (line.forward + line.backward)
    before = np.maximum.accumulate(np.broadcast_to(extra, work.shape) - line.backward_start, axis=-1)
    bound = work + line.backward_start + before
    if line.weight is not None:
        # The gradient of the inputs need not wait for any weights, or these are what comes last.
        bound = np.maximum(bound, work + line.count * line.weight + extra)
    return np.asarray(bound.max(axis=-1))


def upper_bound_s(times: StageTimes, num_micro_batches: Counts, extra_s: FloatArray | None = None) -> FloatArray:
    """What GPipe and 1F1B never exceed, (...): sum_i c_i + (N - 1) (max f + max b) + max_i (tau_i - B_{i-1}).

    With max c in place of max f + max b it is Suika's formula (A.2). Where b_i / f_i is the same for all stages, the
    two are equal, and that is a bound too. Transfers count as if they blocked, which is never faster.
    """
    line = Line.of(ScheduleKind.ONE_F_ONE_B, replace(times, blocking=True), num_micro_batches)
    slowest = line.forward.max(axis=-1) + line.backward.max(axis=-1)
    after = 0.0 if extra_s is None else (extra_s - line.backward_start).max(axis=-1)
    return np.asarray(line.turn.sum(axis=-1) + (line.count[..., 0] - 1) * slowest + after)
