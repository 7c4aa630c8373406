"""Short tasks pass long ones; nobody waits for ever."""

from solver.queue import TaskQueue


def order(tasks: list[tuple[str, float, float]]) -> list[str]:
    """Names in the order in which they get a worker; (name, submitted_s, deadline_s)."""
    queue: TaskQueue[str] = TaskQueue()
    for name, submitted_s, deadline_s in tasks:
        queue.push(name, submitted_s, deadline_s)
    return [queue.pop() for _ in range(len(queue))]


def test_short_ones_pass_long_ones_and_equals_keep_their_order() -> None:
    tasks = [("hour", 0.0, 3600.0), ("minute", 10.0, 60.0), ("another minute", 10.0, 60.0), ("second", 20.0, 1.0)]
    assert order(tasks) == ["second", "minute", "another minute", "hour"]


def test_nobody_starves() -> None:
    # A short task every second, without end: the long one is passed by those that come while both deadlines differ.
    queue: TaskQueue[int] = TaskQueue()
    queue.push(-1, 0.0, 3600.0)
    taken = []
    for second in range(4000):
        queue.push(second, float(second), 60.0)
        taken.append(queue.pop())
    assert taken.index(-1) == 3600 - 60


def test_what_had_its_turn_has_it_again() -> None:
    queue: TaskQueue[str] = TaskQueue()
    queue.push("short", 0.0, 1.0)
    queue.push_first("again")
    assert queue.pop() == "again"


def test_tasks_are_taken_out_and_the_rest_keeps_its_order() -> None:
    queue: TaskQueue[str] = TaskQueue()
    for name, deadline_s in (("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)):
        queue.push(name, 0.0, deadline_s)
    assert queue.remove("a")
    assert not queue.remove("a")
    assert queue.clear() == ["b", "c", "d"]
    assert len(queue) == 0
    assert queue.clear() == []
