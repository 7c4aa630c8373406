"""The peak of the memory of a process: it grows with what is taken, and stays."""

from solver.memory import peak_memory_bytes

_TAKEN = 64 * 2**20


def test_the_peak_is_that_of_all_that_was_taken() -> None:
    before = peak_memory_bytes()
    assert before is not None
    # Written to, and beyond whatever earlier tests have given back.
    taken = b"x" * (before + _TAKEN)
    after = peak_memory_bytes()
    assert after is not None
    assert after >= before + _TAKEN
    del taken
    last = peak_memory_bytes()
    assert last is not None
    assert abs(last - after) <= 2**20
