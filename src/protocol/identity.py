"""Which rank of which job a process is, from what its launcher left in the environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Identity:
    """A rank's place in its job. `source` says who told: for `hpcsampler doctor`."""

    job: str
    rank: int
    local_rank: int
    world_size: int
    source: str


@dataclass(frozen=True, slots=True)
class _Launcher:
    name: str
    rank: tuple[str, ...]
    local_rank: tuple[str, ...]
    world_size: tuple[str, ...]
    needs: str = ""
    """A further variable that must be there for this launcher's others to mean anything."""


# The most specific first. mpirun inside a Slurm allocation leaves both kinds of variables, and its own are right;
# Slurm's are right only in a job step (srun): the batch script itself has SLURM_PROCID=0 and the whole job's NTASKS.
_LAUNCHERS = (
    _Launcher("Horovod", ("HOROVOD_RANK",), ("HOROVOD_LOCAL_RANK",), ("HOROVOD_SIZE",)),
    _Launcher(
        "Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",),
    ),
    _Launcher(
        "MVAPICH2", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_SIZE",),
    ),
    _Launcher("Slurm", ("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
              needs="SLURM_STEP_ID"),
    _Launcher("PMI", ("PMI_RANK",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("PMI_SIZE",)),
    _Launcher("PMIx", ("PMIX_RANK",), ("PMIX_LOCAL_RANK",), ("PMIX_SIZE",)),
    _Launcher("torchrun", ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), needs="WORLD_SIZE"),
)
_DIGITS = 10
"""No job has so many ranks; the wire takes no number without end."""
_JOB_MOST = 256
_JOB_VARIABLES = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE",
)


def identify(
    environ: Mapping[str, str],
    *,
    program: str,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> Identity:
    """The place of a process with this environment; what is given wins over what is found.

    A process without a launcher is rank 0 of 1, and its job is named after `program`. Variables that hold no
    number are passed over.
    """
    found = _from_launcher(environ) or _from_tf_config(environ) or (0, 0, 1, "single process")
    found_rank, local_rank, found_size, source = found
    if rank is not None:
        source = "given"
        local_rank = local_rank if rank == found_rank else rank
        found_rank = rank
    if world_size is not None:
        found_size = world_size
    if job is None:
        job = next((environ[name] for name in _JOB_VARIABLES if environ.get(name)), program)[:_JOB_MOST]
    return Identity(job, found_rank, local_rank, max(found_size, found_rank + 1), source)


def _from_launcher(environ: Mapping[str, str]) -> tuple[int, int, int, str] | None:
    for launcher in _LAUNCHERS:
        rank = _number(environ, launcher.rank)
        if rank is None or (launcher.needs and launcher.needs not in environ):
            continue
        local_rank = _number(environ, launcher.local_rank)
        size = _number(environ, launcher.world_size)
        return rank, rank if local_rank is None else local_rank, rank + 1 if size is None else size, launcher.name
    return None


def _from_tf_config(environ: Mapping[str, str]) -> tuple[int, int, int, str] | None:
    """Chief (or master) first, then the workers, as TensorFlow numbers them; parameter servers are no ranks."""
    try:
        config = json.loads(environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        kind, index = str(task["type"]), int(task["index"])
        addresses = [str(a) for name in ("chief", "master", "worker") for a in cluster.get(name, ())]
        offset = sum(len(cluster.get(name, ())) for name in ("chief", "master")) if kind == "worker" else 0
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None
    rank = offset + index
    if kind not in {"chief", "master", "worker"} or not 0 <= rank < len(addresses):
        return None
    host = addresses[rank].rpartition(":")[0]
    local_rank = sum(address.rpartition(":")[0] == host for address in addresses[:rank])
    return rank, local_rank, len(addresses), "TF_CONFIG"


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) < _DIGITS:
            return int(text)
    return None
