"""How often each value of a GPU is asked for, and what is shown of one that does not answer."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from hpcsampler.collector.gpu import RARE_S, SLOW_S, _Device

UNKNOWN, NOT_SUPPORTED, LOST = 999, 3, 15
FAST = {"UtilizationRates", "PowerUsage"}
SLOW = {"MemoryInfo", "Temperature", "ClockInfo", "ComputeRunningProcesses"}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class Nvml:
    """A GPU that answers, unless `wrong` says with which error it does not."""

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0
    NVML_CLOCK_MEM = 2
    NVML_ERROR_NOT_SUPPORTED = NOT_SUPPORTED
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_ERROR_UNINITIALIZED = 1
    NVMLError = NVMLError

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.wrong: dict[str, int] = {}
        self.answers = {
            "HandleByIndex": "handle", "UUID": "GPU-1", "Name": b"SIMULATED", "PowerUsage": 250_000,
            "UtilizationRates": SimpleNamespace(gpu=63), "MemoryInfo": SimpleNamespace(used=20, total=80),
            "Temperature": 50, "ClockInfo": 1410, "EnforcedPowerLimit": 400_000,
            "ComputeRunningProcesses": [SimpleNamespace(pid=7)],
        }

    def __getattr__(self, name: str):
        what = name.removeprefix("nvmlDeviceGet")

        def call(*_arguments):
            self.calls[what] += 1
            if what in self.wrong:
                raise NVMLError(self.wrong[what])
            return self.answers[what]

        return call


@pytest.fixture
def nvml() -> Nvml:
    return Nvml()


@pytest.fixture
def device(nvml: Nvml) -> _Device:
    return _Device(nvml, 0)


ALL = {
    "utilization": 0.63, "power_w": 250.0, "memory_used_bytes": 20, "memory_total_bytes": 80, "temperature_c": 50,
    "sm_clock_mhz": 1410, "memory_clock_mhz": 1410, "power_limit_w": 400.0,
}


def test_each_value_is_asked_for_as_often_as_it_changes(nvml: Nvml, device: _Device) -> None:
    for tenth in range(int(2 * RARE_S * 10)):
        assert device.read(tenth / 10)
        assert device.reading().values == ALL
    assert {what: nvml.calls[what] for what in FAST} == dict.fromkeys(FAST, 600)
    assert {what: nvml.calls[what] for what in SLOW} == {**dict.fromkeys(SLOW, 60), "ClockInfo": 120}
    assert nvml.calls["EnforcedPowerLimit"] == 2
    assert (nvml.calls["Name"], nvml.calls["UUID"]) == (1, 1)


def test_what_is_read_seldom_is_at_most_a_second_old(nvml: Nvml, device: _Device) -> None:
    device.read(10.0)
    nvml.answers["Temperature"] = 60
    device.read(10.1)
    assert device.reading().values["temperature_c"] == 50
    device.read(10.0 + SLOW_S)
    assert device.reading().values["temperature_c"] == 60


def test_nothing_is_kept_of_a_gpu_that_gives_no_answer(nvml: Nvml, device: _Device) -> None:
    device.read(10.0)
    nvml.wrong = dict.fromkeys(nvml.answers, UNKNOWN)
    assert device.read(10.1)
    assert (device.reading().values, device.reading().pids) == ({}, frozenset())
    nvml.wrong = dict.fromkeys(FAST, UNKNOWN)
    device.read(10.2)
    assert device.reading().values == {key: ALL[key] for key in ALL if key not in {"utilization", "power_w"}}


def test_one_value_that_fails_makes_the_others_neither_old_nor_dear(nvml: Nvml, device: _Device) -> None:
    nvml.wrong = {"PowerUsage": UNKNOWN}
    for tenth in range(10):
        device.read(10 + tenth / 10)
    assert device.reading().values == {key: ALL[key] for key in ALL if key != "power_w"}
    assert nvml.calls["MemoryInfo"] == 1


def test_what_a_gpu_does_not_support_is_not_asked_for_again(nvml: Nvml, device: _Device) -> None:
    nvml.wrong = dict.fromkeys([*FAST, "Temperature"], NOT_SUPPORTED)
    for tenth in range(30):
        device.read(tenth / 10)
    asked = (nvml.calls["PowerUsage"], nvml.calls["Temperature"], nvml.calls["MemoryInfo"])
    assert asked == (1, 1, 3)
    assert device.reading().values["memory_used_bytes"] == 20


def test_a_lost_gpu_has_an_error_and_no_values_and_is_read_anew_if_it_comes_back(nvml: Nvml, device: _Device) -> None:
    device.read(10.0)
    nvml.wrong = dict.fromkeys(FAST, LOST)
    assert not device.read(10.1)
    lost = device.reading()
    assert (lost.uuid, lost.error, lost.values, lost.pids) == ("GPU-1", f"error {LOST}", {}, frozenset())
    nvml.wrong = {}
    nvml.answers["EnforcedPowerLimit"] = 300_000
    assert device.read(10.2)
    assert device.reading().values == {**ALL, "power_limit_w": 300.0}
