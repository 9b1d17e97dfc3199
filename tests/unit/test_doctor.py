"""What `hpcsampler doctor` says of a machine."""

from __future__ import annotations

import json
import sys
import threading
from types import ModuleType

import pytest

from hpcsampler.cli import main
from hpcsampler.commands import doctor
from hpcsampler.commands.doctor import Check
from hpcsampler.runtime import RuntimeDirectory


class NvmlError(Exception):
    pass


class LibraryNotFoundError(NvmlError):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """NVML of a node with two GPUs."""
    module = ModuleType("pynvml")
    module.NVMLError, module.NVMLError_LibraryNotFound = NvmlError, LibraryNotFoundError
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: 2
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetName = lambda _handle: "NVIDIA H200"
    module.nvmlSystemGetDriverVersion = lambda: "570.1"
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def failing(error: Exception):
    def fail(*_args):
        raise error

    return fail


def test_gpus_are_counted_and_named(nvml):
    assert doctor.gpus() == Check("gpu", "ok", "2 x NVIDIA H200, NVIDIA driver 570.1")


def test_a_node_without_gpus_is_normal(nvml):
    nvml.nvmlInit = failing(LibraryNotFoundError())
    check = doctor.gpus()
    assert check.level == "note"
    assert "normal on a CPU node" in check.text


def test_a_driver_that_is_ill_is_a_problem(nvml):
    nvml.nvmlInit = failing(NvmlError("Driver/library version mismatch"))
    check = doctor.gpus()
    assert check.level == "problem"
    assert "Driver/library version mismatch" in check.text


def test_a_gpu_that_is_lost_is_a_problem(nvml):
    nvml.nvmlDeviceGetName = failing(NvmlError("GPU is lost"))
    assert "GPU is lost" in doctor.gpus().text


def test_no_gpus_to_use_is_said(nvml):
    nvml.nvmlDeviceGetCount = lambda: 0
    assert "no GPU that you may use" in doctor.gpus().text


def test_a_driver_that_hangs_does_not_hang_the_doctor():
    never = threading.Event()

    def gpu() -> Check:
        never.wait()
        return Check("gpu", "ok", "")

    check = doctor.within(0.05, gpu)
    never.set()
    assert (check.topic, check.level) == ("gpu", "problem")


@pytest.mark.parametrize(
    ("version", "found", "level", "said"),
    [
        ("2.21.0", True, "ok", "2.21.0"),
        ("2.16.0rc1", True, "ok", "2.16.0rc1"),
        ("2.9.1", True, "note", "older than 2.15"),
        ("", True, "ok", "unknown version"),
        ("", False, "note", "not in this Python"),
    ],
)
def test_tensorflow(version, found, level, said):
    check = doctor.tensorflow(version, found=found)
    assert check.level == level
    assert said in check.text


def test_a_terminal_that_top_can_not_draw_on_is_said():
    good = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    assert doctor.terminal(good, "UTF-8", in_terminal=True).text == "xterm-256color, UTF-8, 24-bit colours"
    assert doctor.terminal({"TERM": "dumb"}, "UTF-8", in_terminal=True).level == "note"
    assert "LC_ALL" in doctor.terminal(good, "ISO-8859-1", in_terminal=True).text
    assert doctor.terminal(good | {"NO_COLOR": "1"}, "utf8", in_terminal=True).text.endswith("no colours (NO_COLOR)")
    assert doctor.terminal({}, "UTF-8", in_terminal=False).level == "ok"


def test_few_open_files_are_said():
    assert doctor.open_files(64).level == "note"
    assert doctor.open_files(1024).level == "ok"


def test_a_directory_that_can_not_be_used_is_a_problem(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "d").chmod(0o777)
    check = doctor.runtime_directory(RuntimeDirectory(tmp_path / "d"))
    assert check.level == "problem"
    assert "chmod 700" in check.text


def test_a_healthy_machine_exits_0(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPCSAMPLER_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "4")
    before = "tensorflow" in sys.modules
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in {"ok", "note"} for line in lines)
    assert any("PMI: rank 1 of 4" in line for line in lines)
    assert any("none runs" in line for line in lines)
    assert any("not there yet: attach() makes it" in line for line in lines)
    assert list(tmp_path.iterdir()) == []
    assert ("tensorflow" in sys.modules) == before


def test_a_variable_that_means_nothing_is_noted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPCSAMPLER_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HPCSAMPLER_RNAK", "1")
    monkeypatch.setattr(doctor, "hooks", lambda: Check("hooks", "ok", ""))
    assert main(["doctor"]) == 0
    told = capsys.readouterr()
    assert any(line.startswith("note") and "HPCSAMPLER_RANK" in line for line in told.out.splitlines())
    assert told.err == ""


def test_a_problem_exits_1_and_json_says_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPCSAMPLER_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HPCSAMPLER_RANK", "first")
    assert main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["healthy"] is False
    assert [check["topic"] for check in answer["checks"] if check["level"] == "problem"] == ["settings"]
