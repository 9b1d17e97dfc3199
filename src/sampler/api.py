"""What a training script calls. Light: until `attach()`, nothing but the ring is loaded."""

from __future__ import annotations

import _thread
import os

from ..ext import _events
from .names import Names

TYPE_CHECKING = False  # importing `typing` would cost a third of the whole import; type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import TypeVar, overload

    from ..protocol.snapshot import RankSnapshot
    from .session import Session

    _F = TypeVar("_F", bound=Callable[..., object])

_names = Names()
_spans: dict[tuple[str, bool], _events.Span] = {}
_session: Session | None = None
_lock = _thread.RLock()


def _complain(error: Exception) -> None:
    from .session import say_once

    say_once(f"hpcsampler.mark() takes a name and a number: {error}")


class Mark(_events.Marks):  # type: ignore[misc] # final for all but this: a function of ours around it would cost more
    """`mark(name, value=0)`: something happened, with a whole number or a float.

    For loss values, batch sizes, events: `hpcsampler.mark("loss", float(loss))`. `top` shows the last value of each
    name. Costs nothing while not recording, and raises nothing.
    """

    __slots__ = ()

    @property
    def __signature__(self) -> Signature:
        """For `help()` and editors, which find none in compiled code."""
        from inspect import Parameter, Signature

        either = Parameter.POSITIONAL_OR_KEYWORD
        return Signature([Parameter("name", either), Parameter("value", either, default=0)])


mark = Mark(_names.phases, _names.phase, _complain)


def attach(
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    daemon: str | None = None,
    strict: bool = False,
) -> bool:
    """Start sampling this process; True if it does. A second call changes nothing.

    Before or after `import tensorflow`; functions that were traced before stay without marks until they are retraced.

    job, rank, world_size: who this rank is, if its launcher (Slurm, MPI, torchrun, Horovod, TF_CONFIG) does not say.
    What is given here wins over everything, `hpcsampler run --job` and HPCSAMPLER_JOB too.
    daemon: "auto" starts the node's daemon if there is none, "never" only uses a running one, an address (ipc://…)
    names one. None: as HPCSAMPLER_DAEMON or the settings file says, else "auto".
    strict: raise what keeps the sampler from working (`hpcsampler.HpcsamplerError`), instead of saying it once in a
    warning and leaving the training alone.
    """
    global _session  # noqa: PLW0603 - a process has one
    from ..settings import unknown_variables
    from .session import Session, say_once

    with _lock:
        if _session is not None:
            return True
        try:
            session = Session.start(
                _names, job=job, rank=rank, world_size=world_size, daemon=daemon, on_fork=_forget,
            )
        except Exception as error:
            if strict:
                raise
            say_once(f"hpcsampler does not sample this process: {error}")
            return False
        _session = session
    if session is None:
        return False
    for text in unknown_variables(os.environ):
        say_once(f"hpcsampler: {text}")
    return True


def detach() -> None:
    """Stop sampling, say goodbye to the daemon, and put back everything that was wrapped."""
    global _session
    with _lock:
        session, _session = _session, None
        if session is not None:
            session.close("detach")


def pause() -> None:
    """Stop recording, at the cost of a load and a branch per event; hooks stay in place."""
    if _session is not None:
        _events.pause()


def resume() -> None:
    """Go on recording after `pause()`."""
    if _session is not None:
        _events.resume()


if TYPE_CHECKING:
    @overload
    def step(count: int = 1, /) -> _events.StepSpan: ...
    @overload
    def step(count: _F, /) -> _F: ...


def step(count: int | _F = 1, /) -> _events.StepSpan | _F:
    """One training step of a loop of your own: `with hpcsampler.step(): …`, or `@hpcsampler.step` on a function.

    count: how many steps the block is, if it is more than one. A block that an exception leaves counts none.
    Around the call of a `tf.function`, not inside one.
    """
    if isinstance(count, int):
        return _STEP if count == 1 else _events.StepSpan(count)
    decorated: _F = _STEP(count)  # type: ignore[assignment] # the same signature, says functools.wraps
    return decorated


def phase(name: str, *, productive: bool = False) -> _events.Span:
    """A phase of your own, as context manager or decorator: `with hpcsampler.phase("augment"): …`.

    productive: count its time as productive in the goodput, not as a stall.
    """
    name = str(name)
    span = _spans.get((name, productive))
    if span is None:
        number = _names.phase(name)
        span = _events.Span(number, 0, productive)
        if number:  # a name made up anew for each step must not be kept for ever
            _spans[name, productive] = span
    return span


def snapshot(wait_s: float = 0.5) -> RankSnapshot | None:
    """This rank's own figures, as `hpcsampler top --json` has them; None while not attached or without a daemon.

    wait_s: how long to wait, at most, for figures that reach until now: they pass through the daemon. 0 gives the
    newest that have come, at once. `age_s` says how old they are. After half a second or more in which nothing came,
    say without a daemon, no call waits until something has come. From the first call on the daemon makes a snapshot
    several times a second, as for a viewer.
    """
    session = _session
    return session.snapshot(wait_s) if session is not None else None


_STEP = _events.StepSpan(1)


def _forget() -> None:
    """In a forked child: it is not attached, whatever its parent was."""
    global _session, _lock  # noqa: PLW0603 - of the process
    _session = None
    _lock = _thread.RLock()
    _names.renew_lock()
