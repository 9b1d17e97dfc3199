"""Fixtures of tests that talk to a real daemon: `pytest_plugins = ["tests.support.daemon_fixtures"]`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import zmq

from tests.support.daemons import DaemonProcess, Viewer
from tests.support.ranks import Rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Context(zmq.Context):
    """Keeps its sockets, so that none is collected while open: that would warn."""

    kept: ClassVar[list[zmq.Socket]] = []

    def socket(self, *arguments, **options) -> zmq.Socket:
        made = super().socket(*arguments, **options)
        self.kept.append(made)
        return made


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    made = _Context()
    yield made
    made.destroy(linger=0)
    _Context.kept.clear()


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    made = DaemonProcess()
    yield made
    made.close()


@pytest.fixture
def viewer(context: zmq.Context, daemon: DaemonProcess) -> Viewer:
    return Viewer(context, daemon.directory.snapshots_address)


@pytest.fixture
def join(context: zmq.Context, daemon: DaemonProcess) -> Callable[..., Rank]:
    """Makes a rank that has said hello to the daemon."""

    def make(number: int = 0, **changes: object) -> Rank:
        rank = Rank(context, daemon.events, number, **changes)
        rank.hello()
        return rank

    return make


@pytest.fixture(scope="session")
def simulated_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a scripted NVML, for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parents[1] / "nvml" / "nvml.c"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True,
    )
    return folder
