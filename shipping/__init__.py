"""How a wheel is built; not part of it."""
