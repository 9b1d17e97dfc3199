"""A Keras callback that writes a rank's figures into `logs`, so that TensorBoard, W&B and MLflow get them unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from .protocol.phases import Phase
from .sampler import api

if TYPE_CHECKING:
    from collections.abc import MutableMapping


_FIRST_WAIT_S = 1.0


class StallLogs(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """At the end of each epoch: where its time went, as shares of it (`hpcsampler/input`, …), and the goodput.

    Put it before the callbacks that write `logs` somewhere: Keras hands the same dict from one to the next. Without
    a daemon, or while not attached, nothing is written.
    """

    def __init__(self, prefix: str = "hpcsampler/", wait_s: float = 0.0) -> None:
        """wait_s: how long the end of an epoch may wait for figures that reach until then.

        Without waiting they are the newest that have come, of some tenths of a second before; what is after them is
        the next epoch's.
        """
        super().__init__()
        self._prefix = prefix
        self._wait_s = wait_s
        self._before: dict[str, float] = {}

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Remember the totals until here. The one wait that there is: the daemon has nobody to make figures for yet."""
        found = api.snapshot(max(self._wait_s, _FIRST_WAIT_S))
        if found is not None:
            self._before = found["totals_s"]

    def on_epoch_end(self, epoch: int, logs: MutableMapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Write what the epoch's time went to."""
        found = api.snapshot(self._wait_s)
        if found is None or logs is None:
            return
        totals = found["totals_s"]
        # All phases each time: whoever writes a table takes its columns from the first row.
        spent = {p.label: totals.get(p.label, 0.0) - self._before.get(p.label, 0.0) for p in Phase}
        self._before = found["totals_s"]
        whole = sum(spent.values())
        if whole <= 0 or min(spent.values()) < 0:
            return  # a new daemon counts from anew: of this epoch it has seen a part
        for phase, seconds in spent.items():
            logs[f"{self._prefix}{phase}"] = seconds / whole
        if "goodput" in found:
            logs[f"{self._prefix}goodput"] = found["goodput"]
