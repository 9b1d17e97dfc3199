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
STEPS_LEAST: Final = 5
"""Steps that it takes during a write, and before it, to say how much it slowed them."""
SETTLED_NS: Final = 2_000_000_000
"""So long after a write, all steps that ended during it are known."""
_MOST: Final = (1 << 63) - 1


class Account:
    """The checkpoints and traces of one rank since attach."""

    def __init__(self) -> None:
        self._written = 0
        self._restored = 0
        self._blocked_s = 0.0
        self._bytes = 0
        self._last: CheckpointIncident | None = None
        self._rated: tuple[int, float | None] | None = None
        """Of which checkpoint it was said how much it slowed the steps, and how much; None: too few steps to tell."""
        self._traced = 0
        self._retraced = 0
        self._tracing_s = 0.0
        self._last_trace: TraceIncident | None = None
        self._functions: dict[str, tuple[int, str]] = {}
        """How often each was traced again, and why the latest time."""

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
        else:
            self._written += 1
            self._blocked_s += made.blocked_s
            self._bytes += made.bytes or 0
        self._bytes = min(self._bytes, _MOST)
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
            return
        self._retraced += 1
        count, _ = self._functions.get(trace.function, (0, ""))
        if count or len(self._functions) < FUNCTIONS_MOST:
            self._functions[trace.function] = count + 1, trace.changed

    def rate(self, timeline: Timeline) -> None:
        """Compare the steps during the last write in the background with those before it. About once a second."""
        last = self._last
        if last is None or last.background_s is None or last.complete_s is None:
            return
        if self._rated is not None and self._rated[0] == last.ordinal:
            return
        end_ns = last.at_ns + int(last.complete_s * 1e9)
        begin_ns = end_ns - int(last.background_s * 1e9)
        during = timeline.step_median_ms(begin_ns, end_ns, STEPS_LEAST)
        before = timeline.step_median_ms(max(last.at_ns - (end_ns - begin_ns), 0), last.at_ns, STEPS_LEAST)
        if during is not None and before:
            self._rated = last.ordinal, during / before - 1
        elif timeline.now_ns > end_ns + SETTLED_NS:
            self._rated = last.ordinal, None

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
        if last.background_s is not None:
            record["background_s"] = last.background_s
        elif last.background:
            record["pending"] = True
        if self._rated is not None and self._rated[0] == last.ordinal and self._rated[1] is not None:
            record["step_inflation"] = self._rated[1]
        return {
            "count": self._written,
            "seconds": self._blocked_s,
            "bytes": self._bytes,
            "restored": self._restored,
            "last": record,
        }

    def traces(self) -> Traces | None:
        """Those since attach; None if there were none."""
        last = self._last_trace
        if last is None:
            return None
        worst: list[TracedFunction] = [
            {"function": function, "count": count, "changed": changed}
            for function, (count, changed) in sorted(
                self._functions.items(), key=lambda item: item[1][0], reverse=True,
            )[:WORST_MOST]
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
