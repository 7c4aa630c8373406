"""So many at once, so many every second, no more."""

from api.common.token_bucket import TokenBucket


def test_a_burst_then_the_average() -> None:
    now_s = [100.0]
    bucket = TokenBucket(2.0, 3, lambda: now_s[0])
    assert [bucket.wait_s() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    now_s[0] += 0.25
    # What was refused has taken nothing.
    assert bucket.wait_s() == 0.25
    now_s[0] += 0.25
    assert [bucket.wait_s() for _ in range(2)] == [0.0, 0.5]
    now_s[0] += 1000.0
    assert [bucket.wait_s() > 0 for _ in range(4)] == [False, False, False, True]
