"""Real workers of one `MultiWorkerMirroredStrategy` on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.environment import environment

if TYPE_CHECKING:
    from types import TracebackType

WORKLOAD = Path(__file__).parents[1] / "integration" / "workloads" / "workers.py"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for made in sockets:
        made.bind(("127.0.0.1", 0))
    ports = [made.getsockname()[1] for made in sockets]
    for made in sockets:
        made.close()
    return ports


class Workers:
    """Started at once, one for each mode; gone at the end of the block, however it ends."""

    def __init__(self, directory: Path, modes: list[str], *arguments: str, **more: str) -> None:
        ports = ",".join(str(port) for port in free_ports(len(modes)))
        self.processes = [
            subprocess.Popen(
                [sys.executable, WORKLOAD, str(index), ports, mode, *arguments],
                env=environment(directory, **more), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for index, mode in enumerate(modes)
        ]

    def outputs(self) -> list[str]:
        """What each said until it ended by itself."""
        said = [process.communicate(timeout=200)[0] for process in self.processes]
        assert all(process.returncode == 0 for process in self.processes), said
        return said

    def __enter__(self) -> Workers:  # noqa: PYI034 - `Self` is in typing from 3.11 on only
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None,
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
