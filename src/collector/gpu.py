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
"""How often memory, clocks, temperature and processes are read; utilisation and power are each time."""
RARE_S: Final = 30.0
"""How often what only an administrator changes is read: limits."""


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
        # Both written by the thread, read by the daemon: single attributes, each replaced as a whole.
        self._found: tuple[str, tuple[_Device, ...]] = ("looking for GPUs", ())
        # Set for as long as a round of calls lasts.
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
        status, devices = self._found
        gpus = tuple(device.reading() for device in devices)
        busy_since = self._busy_since
        if busy_since is None or (hung_s := time.monotonic() - busy_since) < HUNG_S:
            return GpuState(status, gpus)
        silent = f"NVML has not answered for {hung_s:.0f} s: the driver hangs"
        return GpuState(silent, tuple(replace(gpu, values={}, error=silent) for gpu in gpus))

    def _run(self) -> None:
        self._busy_since = time.monotonic()
        try:
            import pynvml
        except ImportError:
            self._finish("nvidia-ml-py is not installed: pip install nvidia-ml-py")
            return
        while not self._stop.is_set():
            try:
                self._busy_since = time.monotonic()
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                    self._finish("no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)")
                    return
                self._finish(f"NVML does not start: {error}")
            else:
                self._read_until_lost(pynvml)
            self._stop.wait(RETRY_S)

    def _read_until_lost(self, nvml: Any) -> None:
        """Read until told to stop, or until no GPU answers: then NVML is to be started anew."""
        try:
            devices = tuple(_Device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
            if not devices:
                self._finish("the NVIDIA driver knows of no GPU")
        except nvml.NVMLError as error:
            self._finish(f"NVML does not list the GPUs: {error}")
            devices = ()
        while devices and not self._stop.is_set():
            self._busy_since = now = time.monotonic()
            lost = [device for device in devices if not device.read(now)]
            if len(lost) == len(devices):
                self._finish(lost[0].reading().error, devices)
                break
            self._finish("ok", devices)
            self._stop.wait(max(0.0, self._interval_s - (time.monotonic() - now)))
        try:
            self._busy_since = time.monotonic()
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # it is started anew all the same
        self._busy_since = None

    def _finish(self, status: str, devices: tuple[_Device, ...] = ()) -> None:
        self._found = (status, devices)
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
    _rare: GpuValues = field(default_factory=_no_values)
    _slow_at: float = 0.0
    _rare_at: float = 0.0
    _pids: frozenset[int] = frozenset()
    _failed: bool = False
    """A question of this round was not answered."""
    _kept: GpuValues = field(default_factory=_no_values)
    """What is read slowly, and `_rare`: never changed, only replaced."""
    _newest: tuple[Any, int | None, GpuValues, frozenset[int], str] = (None, None, {}, frozenset(), "")
    """Utilisation rates, mW, what is kept, pids and what is wrong: replaced as a whole."""

    def read(self, now: float) -> bool:
        """Read at `now` (s) what is due: a call costs more than all else here. False if the GPU is lost."""
        nvml = self.nvml
        self._failed = False
        try:
            if self.handle is None:
                self.handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
                self.uuid = _text(nvml.nvmlDeviceGetUUID(self.handle))
                self.name = _text(nvml.nvmlDeviceGetName(self.handle))
            rates = self._ask("utilization", nvml.nvmlDeviceGetUtilizationRates)
            milliwatts = self._ask("power", nvml.nvmlDeviceGetPowerUsage)
            # Of a GPU that gives no answer, values that were kept would be taken for new: they are asked for anew.
            silent = self._failed and rates is None and milliwatts is None
            if silent or now >= self._slow_at:
                self._slow_at = now + SLOW_S
                if silent or now >= self._rare_at:
                    self._rare_at = now + RARE_S
                    self._rare = self._read_rare()
                self._kept = {**self._read_slow(), **self._rare}
        except nvml.NVMLError as error:
            self._slow_at = self._rare_at = 0.0  # should it come back, nothing is known of it
            self._newest = (None, None, {}, frozenset(), str(error))
            return False
        self._newest = (rates, milliwatts, self._kept, self._pids, "")
        return True

    def reading(self) -> GpuReading:
        """Give what was read last. Safe from another thread; made here, for fewer are looked at than are read."""
        rates, milliwatts, kept, pids, error = self._newest
        values = kept.copy()
        if rates is not None:
            values["utilization"] = rates.gpu / 100
        if milliwatts is not None:
            values["power_w"] = milliwatts / 1000
        return GpuReading(self.index, self.uuid, self.name or "unknown", values, pids, error)

    def _read_slow(self) -> GpuValues:
        nvml = self.nvml
        slow: GpuValues = {}
        if (memory := self._ask("memory", nvml.nvmlDeviceGetMemoryInfo)) is not None:
            slow["memory_used_bytes"] = memory.used
            slow["memory_total_bytes"] = memory.total
        degrees = self._ask("temperature", nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        if degrees is not None:
            slow["temperature_c"] = degrees
        if (mhz := self._ask("SM clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)) is not None:
            slow["sm_clock_mhz"] = mhz
        if (mhz := self._ask("memory clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)) is not None:
            slow["memory_clock_mhz"] = mhz
        processes = self._ask("processes", nvml.nvmlDeviceGetComputeRunningProcesses)
        self._pids = frozenset(process.pid for process in processes or ())
        return slow

    def _read_rare(self) -> GpuValues:
        rare: GpuValues = {}
        if (milliwatts := self._ask("power limit", self.nvml.nvmlDeviceGetEnforcedPowerLimit)) is not None:
            rare["power_limit_w"] = milliwatts / 1000
        return rare

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
            else:
                self._failed = True
            return None


def _text(value: str | bytes) -> str:
    """Bindings before 12 give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
