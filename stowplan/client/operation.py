"""Operations written once: called by a client that blocks, awaited by one that does not."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from stowplan.client.drivers import AsyncDriver, SyncDriver
from stowplan.client.group import Group
from stowplan.client.steps import Items, Steps

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Operation(Generic[Arguments, Result]):
    """A method of a group with one result; as an attribute of the class it is itself."""

    def __init__(self, steps: Callable[Concatenate[Any, Arguments], Steps[Result]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[SyncDriver], owner: type) -> Callable[Arguments, Result]: ...
    @overload
    def __get__(self, group: Group[AsyncDriver], owner: type) -> Callable[Arguments, Coroutine[Any, Any, Result]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        """Bind it to its group."""
        return self if group is None else _bound(self.steps, group, group.driver.run)


class Listing(Generic[Arguments, Result]):
    """A method of a group that gives one thing after another."""

    def __init__(self, steps: Callable[Concatenate[Any, Arguments], Items[Result]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[SyncDriver], owner: type) -> Callable[Arguments, Iterator[Result]]: ...
    @overload
    def __get__(self, group: Group[AsyncDriver], owner: type) -> Callable[Arguments, AsyncIterator[Result]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        """Bind it to its group."""
        return self if group is None else _bound(self.steps, group, group.driver.follow)


def _bound(steps: Callable[..., Any], group: Group[Any], carry_out: Callable[[Any], Any]) -> Callable[..., Any]:
    @wraps(steps)
    def call(*arguments: Any, **options: Any) -> Any:
        return carry_out(steps(group, *arguments, **options))

    return call
