"""Where Python waits for what a device computes, and for copies between devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ext import _calls, _events
from ...protocol.phases import Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from .patches import Patches


def install(patches: Patches) -> None:
    """Wrap what reads, or copies, an eager tensor."""
    from tensorflow.python.eager import context, executor
    from tensorflow.python.framework import ops

    # `.numpy()`, `float()`, `bool()`, `int()`, `print()` and Keras's logs all come through here.
    tensor = ops._EagerTensorBase  # noqa: SLF001 - the only place that they share
    patches.wrap(tensor, "_numpy", _waits, takes=1)
    patches.wrap(context.Context, "sync_executors", _waits, takes=1)
    patches.wrap(executor.Executor, "wait", _waits, takes=1)
    patches.wrap(tensor, "_copy_nograd", _copies, takes=3)


def _waits(original: Callable[..., Any]) -> Callable[..., Any]:
    return _calls.timed_wait(original, Phase.DEVICE)


def _copies(original: Callable[..., Any]) -> Callable[..., Any]:
    """A copy to where the tensor is already is none."""
    phase, begin, end = int(Phase.TRANSFER), int(Kind.BEGIN), int(Kind.END)

    def copy(tensor: Any, ctx: Any = None, device_name: Any = None) -> Any:
        if not (_events.recording() and _events.drives() and _elsewhere(tensor, ctx, device_name)):
            return original(tensor, ctx, device_name)
        _events.emit(phase, begin)
        try:
            return original(tensor, ctx, device_name)
        finally:
            _events.emit(phase, end)

    return copy


def _elsewhere(tensor: Any, ctx: Any, device_name: Any) -> bool:
    """Whether that device is another than the tensor's: `CPU:0` is `/job:localhost/…/device:CPU:0`."""
    name = device_name or getattr(ctx, "device_name", None)
    if not name:
        return False
    try:
        return not str(tensor.backing_device).upper().endswith(str(name).upper())
    except Exception:  # noqa: BLE001 - a tensor whose computing failed raises here; the copy shall say so
        return False
