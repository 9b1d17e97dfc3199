"""The environment of a program under test: its own runtime directory, nothing of a launcher's."""

from __future__ import annotations

import os
from pathlib import Path

_LAUNCHERS = ("SLURM_", "OMPI_", "PMI", "MV2_", "HOROVOD_", "TF_CONFIG", "HPCSAMPLER_", "RANK", "WORLD_SIZE")


def environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    # oneDNN's choice of kernels may depend on the moment; results must not.
    return {**kept, "HPCSAMPLER_RUNTIME_DIR": str(directory), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0",
            "PYTHONWARNINGS": "ignore", **more}
