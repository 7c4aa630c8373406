"""How long things last: distributions of time, and what foretells them."""
