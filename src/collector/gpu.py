"""The node's GPUs, as NVML tells it, read in a thread of their own: a driver that lost a GPU can hang.

A machine without a GPU or a driver is normal and said so in words. Each value stands alone: what this GPU or
this driver does not support is absent, and not asked for again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcsampler.protocol.snapshot import GpuValues

HUNG_S: Final = 2.0
"""A call that takes longer is said to hang; most take microseconds, some tens of milliseconds."""
RETRY_S: Final = 30.0
"""How often a driver that did not answer well is tried anew."""
SLOW_S: Final = 1.0
"""How often what changes slowly is read: temperature, clocks, limits, processes."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment."""

    index: int
    uuid: str
    name: str
    values: GpuValues
    """The keys of a snapshot's GPU that are known; without those that this class has itself."""
    pids: frozenset[int] = frozenset()
    """Processes with a compute context on it."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class GpuState:
    """All GPUs at one moment, and `ok` or why there are none."""

    status: str
    gpus: tuple[GpuReading, ...] = ()


class GpuSampler:
    """Reads all GPUs every `interval_s` seconds, in a thread."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._state = GpuState("looking for GPUs")
        # Set for as long as a round of calls lasts. Written by the thread, read by the daemon: single
        # attributes, each replaced as a whole.
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="hpcsampler-nvml", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a thread that hangs in the driver is left to the end of the process."""
        self._stop.set()
        self._thread.join(timeout=0.2)

    def state(self) -> GpuState:
        """Give the newest reading; no values while a call hangs: old ones would be taken for new."""
        busy_since = self._busy_since
        if busy_since is None or (hung_s := time.monotonic() - busy_since) < HUNG_S:
            return self._state
        silent = f"NVML has not answered for {hung_s:.0f} s: the driver hangs"
        return GpuState(silent, tuple(replace(gpu, values={}, error=silent) for gpu in self._state.gpus))

    def _run(self) -> None:
        self._busy_since = time.monotonic()
        try:
            import pynvml
        except ImportError:
            self._finish(GpuState("nvidia-ml-py is not installed: pip install nvidia-ml-py"))
            return
        while not self._stop.is_set():
            try:
                self._busy_since = time.monotonic()
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                    self._finish(GpuState("no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"))
                    return
                self._finish(GpuState(f"NVML does not start: {error}"))
            else:
                self._read_until_lost(pynvml)
            self._stop.wait(RETRY_S)

    def _read_until_lost(self, nvml: Any) -> None:
        """Read until told to stop, or until no GPU answers: then NVML is to be started anew."""
        try:
            devices = [_Device(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            self._finish(GpuState(f"NVML does not list the GPUs: {error}"))
            devices = []
        if not devices:
            self._finish(GpuState("the NVIDIA driver knows of no GPU"))
        slow_at = 0.0
        while devices and not self._stop.is_set():
            self._busy_since = now = time.monotonic()
            slow = now >= slow_at
            if slow:
                slow_at = now + SLOW_S
            gpus = tuple(device.read(slow=slow) for device in devices)
            lost = all(gpu.error for gpu in gpus)
            self._finish(GpuState(gpus[0].error if lost else "ok", gpus))
            if lost:
                break
            self._stop.wait(max(0.0, self._interval_s - (time.monotonic() - now)))
        try:
            self._busy_since = time.monotonic()
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # it is started anew all the same
        self._busy_since = None

    def _finish(self, state: GpuState) -> None:
        self._state = state
        self._busy_since = None


def _no_values() -> GpuValues:
    return {}


@dataclass
class _Device:
    """One GPU and what is known of it so far."""

    nvml: Any
    index: int
    handle: Any = None
    uuid: str = ""
    name: str = ""
    _unsupported: set[str] = field(default_factory=set)
    _slow: GpuValues = field(default_factory=_no_values)
    _pids: frozenset[int] = frozenset()

    def read(self, *, slow: bool) -> GpuReading:
        nvml = self.nvml
        try:
            if self.handle is None:
                self.handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
                self.uuid = _text(nvml.nvmlDeviceGetUUID(self.handle))
                self.name = _text(nvml.nvmlDeviceGetName(self.handle))
            if slow:
                self._read_slow()
            values = self._slow.copy()
            if (rates := self._ask("utilization", nvml.nvmlDeviceGetUtilizationRates)) is not None:
                values["utilization"] = rates.gpu / 100
            if (memory := self._ask("memory", nvml.nvmlDeviceGetMemoryInfo)) is not None:
                values["memory_used_bytes"] = memory.used
                values["memory_total_bytes"] = memory.total
            if (milliwatts := self._ask("power", nvml.nvmlDeviceGetPowerUsage)) is not None:
                values["power_w"] = milliwatts / 1000
        except nvml.NVMLError as error:
            return GpuReading(self.index, self.uuid, self.name or "unknown", {}, frozenset(), str(error))
        return GpuReading(self.index, self.uuid, self.name, values, self._pids)

    def _read_slow(self) -> None:
        nvml = self.nvml
        slow: GpuValues = {}
        if (milliwatts := self._ask("power limit", nvml.nvmlDeviceGetEnforcedPowerLimit)) is not None:
            slow["power_limit_w"] = milliwatts / 1000
        degrees = self._ask("temperature", nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        if degrees is not None:
            slow["temperature_c"] = degrees
        if (mhz := self._ask("SM clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)) is not None:
            slow["sm_clock_mhz"] = mhz
        if (mhz := self._ask("memory clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)) is not None:
            slow["memory_clock_mhz"] = mhz
        self._slow = slow
        processes = self._ask("processes", nvml.nvmlDeviceGetComputeRunningProcesses)
        self._pids = frozenset(process.pid for process in processes or ())

    def _ask(self, what: str, call: Callable[..., Any], *arguments: int) -> Any:
        """Ask for one value; None if there is none. Only an error that concerns the whole GPU is raised."""
        nvml = self.nvml
        if what in self._unsupported:
            return None
        try:
            return call(self.handle, *arguments)
        except nvml.NVMLError as error:
            if error.value in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
                self._unsupported.add(what)
            elif error.value in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED}:
                raise
            return None


def _text(value: str | bytes) -> str:
    """Bindings before 12 give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
