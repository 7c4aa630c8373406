"""The backends, and every name that options may ask for. Light: nobody has to load a solver to know them."""

from collections.abc import Mapping

# `auto`: the exact algorithm of the problem where there is one, else the decomposition, which takes what has the
# structure and leaves the rest to HiGHS. `exact`: that algorithm and nothing else; it belongs to a policy.
AUTO = "auto"
EXACT = "exact"
# Name -> `module:attribute`; called without arguments, it makes a `solver.backends.base.Backend` of that name.
BACKENDS: Mapping[str, str] = {
    "decomposition": "solver.backends.decomposition:DecompositionBackend",
    "highs": "solver.backends.highs:HighsBackend",
    "portfolio": "solver.backends.portfolio:PortfolioBackend",
    "scip": "solver.backends.scip:ScipBackend",
}
SOLVER_NAMES: tuple[str, ...] = tuple(sorted((AUTO, EXACT, *BACKENDS)))
