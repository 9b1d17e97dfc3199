"""`hpcsampler doctor`: what was found on this machine, what is missing, and how to mend it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import locale
import os
import platform
import resource
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import launch, runtime
from .._version import __version__
from ..errors import HpcsamplerError
from ..protocol.identity import identify
from ..settings import load, unknown_variables

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Callable, Iterator, Mapping

    from ..runtime import RuntimeDirectory

Level = Literal["ok", "note", "problem"]

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tensorflow-rocm", "intel-tensorflow")
"""Distributions that bring the module `tensorflow`."""
_OLDEST_TENSORFLOW = (2, 15)
_FEW_FILES = 256
_IMPORT_S = 120.0
_NVML_S = 10.0
"""Calls into the driver can hang for good on a GPU that has fallen off the bus."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and where something can be done, what."""

    topic: str
    level: Level
    text: str


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> ArgumentParser:
    """Add `doctor` and its flags."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what was found on this machine, and how to mend what is wrong",
        description="Look at all that hpcsampler needs. Exit code 0 if nothing keeps it from working, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(arguments: Namespace) -> int:
    """Print every check; 1 if there is a problem."""
    checks = list(examine(os.environ))
    healthy = all(check.level != "problem" for check in checks)
    if arguments.json:
        print(json.dumps({"schema": 1, "healthy": healthy, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        width = max(len(check.topic) for check in checks)
        for check in checks:
            print(f"{check.level:<7}  {check.topic:<{width}}  {check.text}")
    return 0 if healthy else 1


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """All checks, in the order in which one thing builds on another."""
    yield Check("hpcsampler", "ok", f"{__version__} in {Path(__file__).parent.parent}")
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")
    yield from libraries()
    yield settings(environ)
    for text in unknown_variables(environ):
        yield Check("settings", "note", text)
    directory = runtime.locate(environ, os.getuid())
    yield runtime_directory(directory)
    yield daemon(directory)
    yield tensorflow(_version_of_first(_TENSORFLOW), found=importlib.util.find_spec("tensorflow") is not None)
    yield keras(_version_of_first(("keras", "tf-keras")))
    if importlib.util.find_spec("tensorflow") is not None:
        yield hooks()
    yield launcher(environ)
    yield within(_NVML_S, gpus)
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield terminal(environ, locale.getpreferredencoding(do_setlocale=False), in_terminal=sys.stdout.isatty())


def libraries() -> Iterator[Check]:
    """The libraries beneath us."""
    for module, distribution in (("zmq", "pyzmq"), ("msgpack", "msgpack"), ("numpy", "numpy"), ("wrapt", "wrapt")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            yield Check(module, "problem", f"does not load ({error}): pip install {distribution}")
        else:
            yield Check(module, "ok", _version_of_first((distribution,)))
    textual = _version_of_first(("textual",))
    if textual:
        yield Check("textual", "ok", textual)
    else:
        yield Check("textual", "note", "not installed: top needs it in a terminal: pip install 'hpcsampler[top]'")


def settings(environ: Mapping[str, str]) -> Check:
    """Whether the settings in force can be read, and whether they turn sampling off."""
    try:
        in_force = load(environ)
    except HpcsamplerError as error:
        return Check("settings", "problem", str(error))
    if not in_force.enabled:
        return Check("settings", "note", "sampling is switched off: attach() does nothing (HPCSAMPLER_ENABLED)")
    return Check("settings", "ok", f"daemon {in_force.daemon}, sends every {in_force.flush_ms:g} ms")


def runtime_directory(directory: RuntimeDirectory) -> Check:
    """Whether sockets and locks can live there."""
    try:
        there = runtime.foresee(directory)
    except HpcsamplerError as error:
        return Check("runtime directory", "problem", str(error))
    return Check("runtime directory", "ok", f"{directory.path}{'' if there else ', not there yet: attach() makes it'}")


def daemon(directory: RuntimeDirectory) -> Check:
    """Whether one runs."""
    pid = launch.daemon_pid(directory)
    if pid is None:
        return Check("daemon", "ok", "none runs: attach() starts one, or hpcsampler daemon start")
    return Check("daemon", "ok", f"runs, pid {pid}, log {directory.log}")


def tensorflow(version: str, *, found: bool) -> Check:
    """Which TensorFlow a training with this Python would import. It is not imported: that takes seconds, and GPUs."""
    if not found:
        return Check(
            "tensorflow", "note",
            "not in this Python: nothing to attach to here; trainings need hpcsampler in their own environment",
        )  # fmt: skip
    if not version:
        return Check("tensorflow", "ok", "installed, in an unknown version")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST_TENSORFLOW:
        oldest = ".".join(map(str, _OLDEST_TENSORFLOW))
        return Check("tensorflow", "note", f"{version}: older than {oldest}, the oldest that is tested")
    return Check("tensorflow", "ok", version)


def keras(version: str) -> Check:
    """Which Keras would be hooked."""
    return Check("keras", "ok", version or "not installed: custom loops are sampled all the same")


def hooks() -> Check:
    """What can and can't be hooked, tried in a process of its own: importing the frameworks takes seconds."""
    frameworks = [name for name in ("tensorflow", "keras") if importlib.util.find_spec(name) is not None]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hpcsampler.sampler.hooks", *frameworks],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_IMPORT_S, check=True,
        )  # fmt: skip
        report = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Check("hooks", "problem", f"{' and '.join(frameworks)} did not import within {_IMPORT_S:g} s")
    except (subprocess.CalledProcessError, OSError, ValueError, IndexError) as error:
        return Check("hooks", "problem", f"importing {' and '.join(frameworks)} failed ({error}): try it by hand")
    if report["problems"]:
        return Check(
            "hooks", "note",
            f"{len(report['hooked'])} in place, but {'; '.join(report['problems'])}: what they would show stays absent",
        )  # fmt: skip
    return Check("hooks", "ok", f"all {len(report['hooked'])} in place in {' and '.join(frameworks)}")


def launcher(environ: Mapping[str, str]) -> Check:
    """Who a process started from here would be."""
    identity = identify(environ, program="(the program's name)")
    return Check(
        "launcher", "ok",
        f"{identity.source}: rank {identity.rank} of {identity.world_size}, local rank {identity.local_rank},"
        f" job {identity.job}",
    )  # fmt: skip


def gpus() -> Check:
    """What NVML says of driver and GPUs."""
    try:
        import pynvml
    except ImportError as error:
        return Check("gpu", "problem", f"the NVML bindings do not load ({error}): pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return Check(
            "gpu", "note",
            "no NVIDIA driver on this machine: GPU columns stay empty, which is normal on a CPU node",
        )  # fmt: skip
    except pynvml.NVMLError as error:
        return Check("gpu", "problem", f"the NVIDIA driver does not answer ({error}): see nvidia-smi and dmesg")
    try:
        names = [
            str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index)))
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
        version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        return Check("gpu", "problem", f"a GPU does not answer ({error}): see nvidia-smi and dmesg")
    finally:
        pynvml.nvmlShutdown()
    if not names:
        return Check("gpu", "note", f"NVIDIA driver {version}, but no GPU that you may use")
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return Check("gpu", "ok", f"{kinds}, NVIDIA driver {version}")


def within(seconds: float, check: Callable[[], Check]) -> Check:
    """What a check finds, unless it hangs."""
    found: list[Check] = []
    thread = threading.Thread(target=lambda: found.append(check()), daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        return Check(
            check.__name__, "problem",
            f"no answer within {seconds:g} s: a GPU may be lost (see nvidia-smi and dmesg)",
        )  # fmt: skip
    return found[0]


def open_files(limit: int) -> Check:
    """The daemon holds a descriptor or two for each rank, and so does ZeroMQ."""
    if limit < _FEW_FILES:
        return Check("open files", "note", f"at most {limit} (ulimit -n): the daemon may run out with many ranks")
    return Check("open files", "ok", f"at most {limit}")


def terminal(environ: Mapping[str, str], encoding: str, *, in_terminal: bool) -> Check:
    """Whether `top` can draw."""
    if not in_terminal:
        return Check("terminal", "ok", "none here: top --once and top --json print without one")
    kind = environ.get("TERM", "")
    if kind in {"", "dumb"}:
        return Check("terminal", "note", f"TERM is {kind!r}: top needs a terminal that can move its cursor")
    if encoding.replace("-", "").upper() != "UTF8":
        return Check("terminal", "note", f"{kind}, encoding {encoding}: bars need UTF-8 (export LC_ALL=C.UTF-8)")
    colours = "24-bit colours" if environ.get("COLORTERM") in {"truecolor", "24bit"} else "256 colours or fewer"
    return Check("terminal", "ok", f"{kind}, UTF-8, {'no colours (NO_COLOR)' if environ.get('NO_COLOR') else colours}")


def _version_of_first(distributions: tuple[str, ...]) -> str:
    """Version of the first that is installed, or nothing. Reads metadata only."""
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
