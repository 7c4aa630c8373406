"""Which option each job should have, were only the number of nodes scarce: a lower bound on all plans.

Sets       p jobs, o options of job p, t change points (starts of options)
Data       v_po  lower bound on what option o of job p costs alone,  n_o nodes that it needs,
           c_t   nodes that anybody may use who begins before and ends after t
Variables  z_po  job p runs by option o, binary

  minimise   sum_po v_po z_po
  s.t.       once[p]:  sum_o z_po = 1
             room[t]:  sum of n_o z_po over the options that last at t <= c_t

Every plan is such a point, and costs no less: each of its placings costs at least what its option costs alone.
"""

import numpy as np
from scipy import sparse

from models.placement.ahead.instance import AheadInstance
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector


def master_problem(instance: AheadInstance, values: list[FloatVector]) -> MatrixProblem:
    """The program with `values` v_po, one (O_p,) for each job; options worth infinity are closed."""
    jobs, instants = instance.jobs, np.array(instance.change_points)
    sizes = [len(job.options) for job in jobs]
    costs = np.concatenate(values)
    usable = np.isfinite(costs)
    options = [option for job in jobs for option in job.options]
    starts, ends = (np.array([getattr(option, name) for option in options]) for name in ("start_s", "end_s"))
    nodes = np.array([option.shape.num_nodes for option in options], dtype=np.float64)
    lasting = (starts[None, :] <= instants[:, None]) & (instants[:, None] < ends[None, :])
    owners = np.repeat(np.arange(len(jobs)), sizes)
    once = sparse.csr_array((np.ones(len(options)), (owners, np.arange(len(options)))))
    room = sparse.csr_array(lasting * nodes[None, :])
    return MatrixProblem(
        name="ahead-master",
        sense=Sense.MINIMIZE,
        objective=np.where(usable, costs, 0.0),
        matrix=sparse.csc_array(sparse.vstack([once, room])),
        row_lower=np.concatenate([np.ones(len(jobs)), np.full(instants.size, -np.inf)]),
        row_upper=np.concatenate([np.ones(len(jobs)), _room(instance, lasting)]),
        lower=np.zeros(len(options)),
        upper=usable.astype(np.float64),
        integrality=np.ones(len(options), dtype=np.bool_),
    )


def _room(instance: AheadInstance, lasting: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]") -> FloatVector:
    """Nodes of the classes that some option that lasts at each instant (T, O) may use, (T,)."""
    options = [option for job in instance.jobs for option in job.options]
    usable = np.array([np.isfinite(option.node_cost) for option in options])
    return np.array([float(instance.class_size[usable[row].any(axis=0)].sum()) for row in lasting])
