r"""GPU type and count of every job, now and over a horizon, as a mixed-integer program, declared in CVXPY.

A plan of the present alone cannot know whether a change pays, whether it is better to wait for the GPUs of a job that
soon ends, or who should have GPUs first: that depends on what is left of the jobs, and on who will have what later.
Here every job has a schedule to its end; what it has now is decided, the rest is the plan behind it, made anew with
the next decision.

Sets
  i          jobs that are planned (all but the pinned ones)
  c          configurations (nodes, GPUs, type), as Sia has them
  k          intervals 0..K-1 from t_k to t_(k+1); the first is as long as until the next plan, each is longer than the
             one before by the same factor, and the last ends when all that is left can be done, see `instance`
  P          pairs (i, c) that may be chosen now: those that Sia offers, but for those with no fewer GPUs of the type
             than another one in which the job ends no later
  L_i        configurations that job i may have later: corners of the concave hull of its speed over GPUs of a type
  S_i        schedules of job i:
               c          from now to the end, (i, c) in P
               c, c'@k    c from now, c' in L_i from t_k to the end
               c, -@1     c in the first interval, then nothing before the horizon
               c'@k       nothing now, c' in L_i from t_k to the end
               -          nothing before the horizon
             a job with a reservation has those alone that begin with what it reserved
Data
  T_ic       what is left of job i in configuration c: work left / goodput, in seconds
  p_i        what a running job loses with a change or by leaving: restart_price x restart cost; what a waiting job
             takes to start: restart cost. For so long it holds its GPUs and does no work. Nothing where it stays
  e_s        when job i ends under schedule s: after a change at t to c' at t + p_i + (1 - share of work done) T_ic';
             what has nothing before the horizon goes on then, as fast as it goes
  w_i        weight of job i over the weight of all jobs
  l_i        1 + sum_j max_s w_j e_s for a job as old as `longest_wait_s`, else 0
  n_stk      GPUs of type t that schedule s has on average over interval k
  N_tk       GPUs of type t on average over interval k, less what the calendar has closed
Variables
  x_ic in {0,1}     job i has configuration c now
  y_s in [0,1]      share of schedule s: what is planned of later intervals is fluid

min  sum_i sum_(s in S_i) w_i e_s y_s + sum_i l_i (1 - sum_c x_ic)

  one_schedule[i]                 sum_(s in S_i) y_s = 1
  now[i,c]                        sum_(s in S_i that begin with c) y_s = x_ic        (i, c) in P
  capacity[type], blocks[type,2^k], whole_nodes[type]    on x, what makes the present placeable on nodes, see
                                  `models.placement.placeability`
  capacity[type]@k                sum_s n_stk y_s <= N_tk                            k = 1..K-1

The objective is the mean time until jobs end, by weight, from now. Times are those of whole schedules, so that what a
change loses, and what running slowly costs, is counted where it arises, and the relaxation is strong: fractional are at
most as many jobs as there are rows that couple jobs.

Of a job of which it is not known how much is left a guess is planned, see `instance`.

`goodput`: one interval, in which w_i e_s are Sia's utilities and penalties, in its sense: Sia's program, and its plan.
"""

from models.allocation.horizon.assembly import assemble
from models.allocation.horizon.instance import HorizonInstance
from models.formulation import Formulation
from solver.problem import MatrixProblem


class HorizonFormulation(Formulation):
    """The program of one instance."""

    def __init__(self, instance: HorizonInstance) -> None:
        self.instance = instance
        self.problem: MatrixProblem = assemble(instance)
