from collections.abc import Callable
from typing import Any, final

@final
class Batches:
    def __init__(self, key: int) -> None: ...
    def leave(self) -> None: ...

@final
class TimedMethod:
    def __init__(self, callback: Any, method: str, key: int) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class Substitution:
    stand_ins: list[Any] | None
    def __init__(self, real: list[Any], stand_ins: list[Any] | None) -> None: ...

@final
class ListMethod:
    def __init__(
        self,
        original: Callable[..., Any],
        method: str,
        key: int,
        attribute: str,
        substitute: Callable[[Any, str], Substitution],
    ) -> None: ...

def batch_begin(timed: ListMethod, batches: Batches, phase: int) -> Callable[..., Any]: ...
def batch_end(timed: ListMethod, batches: Batches, phase: int) -> Callable[..., Any]: ...
def between(timed: ListMethod, batches: Batches) -> Callable[..., Any]: ...
