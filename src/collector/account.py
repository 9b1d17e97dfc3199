"""What a rank told of its checkpoints and traces, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpcsampler.protocol.incidents import CheckpointIncident, TraceIncident

if TYPE_CHECKING:
    from hpcsampler.ext._timeline import Timeline
    from hpcsampler.protocol.incidents import Incident
    from hpcsampler.protocol.snapshot import CheckpointRecord, Checkpoints, TracedFunction, Traces

FUNCTIONS_MOST: Final = 256
"""Functions whose traces are counted each on its own."""
WORST_MOST: Final = 5
ANEW_LEAST: Final = 4
"""So many functions of one name may be made, say with each of several models, before it looks like a loop that does."""
ANEW: Final = "a new tf.function of that name each time"
STEPS_LEAST: Final = 5
"""Steps that it takes during a write, and before it, to say how much it slowed them."""
_MOST: Final = (1 << 63) - 1


class Account:
    """The checkpoints and traces of one rank since attach."""

    def __init__(self) -> None:
        self._written = 0
        self._restored = 0
        self._blocked_s = 0.0
        self._restored_s = 0.0
        self._bytes = 0
        self._last: CheckpointIncident | None = None
        self._unrated: CheckpointIncident | None = None
        """The latest write in the background of which it was not yet said how much it slowed the steps."""
        self._inflation: float | None = None
        """How much the latest did for which that could be told."""
        self._traced = 0
        self._retraced = 0
        self._tracing_s = 0.0
        self._last_trace: TraceIncident | None = None
        self._made: dict[str, int] = {}
        """How many functions of each name were traced for the first time."""
        self._functions: dict[str, tuple[int, str, int]] = {}
        """How often each was traced again; why, and when, the latest time."""

    def take(self, incident: Incident) -> None:
        """Add one."""
        if isinstance(incident, CheckpointIncident):
            self._take_checkpoint(incident)
        else:
            self._take_trace(incident)

    def _take_checkpoint(self, made: CheckpointIncident) -> None:
        if made.background_s is not None and self._is_told(made):
            self._bytes += made.bytes or 0  # the time for which it blocked was counted when it began
        elif made.restored:
            self._restored += 1
            self._restored_s += made.blocked_s
        else:
            self._written += 1
            self._blocked_s += made.blocked_s
            self._bytes += made.bytes or 0
        self._bytes = min(self._bytes, _MOST)
        if made.background_s is not None:
            self._unrated = made
        if self._last is None or made.ordinal >= self._last.ordinal:
            self._last = made

    def _is_told(self, made: CheckpointIncident) -> bool:
        """Whether this one completes another that is known."""
        return self._last is not None and made.ordinal <= self._last.ordinal

    def _take_trace(self, trace: TraceIncident) -> None:
        self._traced += 1
        if not trace.nested:
            self._tracing_s += trace.seconds
        self._last_trace = trace
        if not trace.retrace:
            self._take_first_trace(trace)
            return
        self._retraced += 1
        count, _, _ = self._functions.get(trace.function, (0, "", 0))
        if count or len(self._functions) < FUNCTIONS_MOST:
            self._functions[trace.function] = count + 1, trace.changed, trace.at_ns

    def _take_first_trace(self, trace: TraceIncident) -> None:
        """A function that is made anew in a loop is traced anew each time, and is no retrace to TensorFlow."""
        if trace.nested or trace.ordinal != 1:
            return
        count = self._made.get(trace.function, 0)
        if count or len(self._made) < FUNCTIONS_MOST:
            self._made[trace.function] = count + 1
        if count >= ANEW_LEAST and (trace.function in self._functions or len(self._functions) < FUNCTIONS_MOST):
            again = self._functions.get(trace.function, (0, "", 0))[0]
            self._functions[trace.function] = max(count, again + 1), ANEW, trace.at_ns

    def rate(self, timeline: Timeline) -> None:
        """Compare the steps during the last write in the background with those before it. About once a second."""
        made = self._unrated
        if made is None or made.background_s is None or made.complete_s is None:
            return
        end_ns = made.at_ns + int(made.complete_s * 1e9)
        if timeline.now_ns < end_ns:
            return  # steps that ended during it are still to come
        begin_ns = end_ns - int(made.background_s * 1e9)
        during = timeline.step_median_ms(begin_ns, end_ns, STEPS_LEAST)
        before = timeline.step_median_ms(max(made.at_ns - (end_ns - begin_ns), 0), made.at_ns, STEPS_LEAST)
        if during is not None and before:
            self._inflation = during / before - 1
        self._unrated = None

    def checkpoints(self, now_ns: int) -> Checkpoints | None:
        """Those since attach; None if there were none."""
        last = self._last
        if last is None:
            return None
        record: CheckpointRecord = {
            "writer": last.writer,
            "path": last.path,
            "format": last.format,
            "restored": last.restored,
            "blocked_s": last.blocked_s,
            "age_s": max(0, now_ns - last.at_ns) / 1e9,
        }
        if last.files is not None:
            record["files"] = last.files
        if last.bytes is not None:
            record["bytes"] = last.bytes
            if last.blocked_s > 0:
                record["apparent_bytes_per_s"] = last.bytes / last.blocked_s
            if last.complete_s:
                record["durable_bytes_per_s"] = last.bytes / last.complete_s
        if last.background:
            record["background"] = True
        if last.background_s is not None:
            record["background_s"] = last.background_s
        found: Checkpoints = {
            "count": self._written,
            "seconds": self._blocked_s,
            "bytes": self._bytes,
            "restored": self._restored,
            "restored_s": self._restored_s,
            "last": record,
        }
        if self._inflation is not None:
            found["step_inflation"] = self._inflation
        return found

    def traces(self, now_ns: int) -> Traces | None:
        """Those since attach; None if there were none."""
        last = self._last_trace
        if last is None:
            return None
        most = sorted(self._functions.items(), key=lambda item: item[1][0], reverse=True)
        shown = most[:WORST_MOST]
        newest = max(most, key=lambda item: item[1][2], default=None)
        if newest is not None and newest not in shown:
            shown[-1] = newest
        worst: list[TracedFunction] = [
            {"function": function, "count": count, "changed": changed, "age_s": max(0, now_ns - at_ns) / 1e9}
            for function, (count, changed, at_ns) in shown
        ]
        return {
            "count": self._traced,
            "retraces": self._retraced,
            "seconds": self._tracing_s,
            "last": {
                "function": last.function, "ordinal": last.ordinal, "seconds": last.seconds, "changed": last.changed,
            },
            "worst": worst,
        }
