"""One solver a file, all behind the protocol of `solver.backends.base`."""
