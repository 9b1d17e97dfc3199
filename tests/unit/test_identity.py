"""Who a rank is, as each launcher tells it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcsampler.protocol.identity import Identity, identify

SLURM_JOB = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}


def tf_config(kind: str, index: int, **cluster: list[str]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Identity("train.py", 0, 0, 1, "single process")),
        (
            SLURM_JOB | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "6"},
            Identity("77", 5, 1, 6, "Slurm"),
        ),
        # The batch script itself: not one of the 8 ranks.
        (SLURM_JOB, Identity("77", 0, 0, 1, "single process")),
        # mpirun within a Slurm job step: its own word counts.
        (
            SLURM_JOB
            | {
                "SLURM_STEP_ID": "0", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
            },
            Identity("77", 3, 3, 4, "Open MPI"),
        ),
        (
            {"HOROVOD_RANK": "1", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "9"},
            Identity("train.py", 1, 0, 2, "Horovod"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, Identity("train.py", 1, 1, 2, "PMI")),
        ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "n.1"}, Identity("n.1", 3, 3, 4, "PMIx")),
        (
            {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "r"},
            Identity("r", 2, 0, 4, "torchrun"),
        ),
        # A bare RANK may mean anything.
        ({"RANK": "2"}, Identity("train.py", 0, 0, 1, "single process")),
        ({"PMI_RANK": "one"}, Identity("train.py", 0, 0, 1, "single process")),
        ({"PBS_JOBID": "9.server"}, Identity("9.server", 0, 0, 1, "single process")),
        (tf_config("worker", 1, worker=["a:1", "a:2"]), Identity("train.py", 1, 1, 2, "TF_CONFIG")),
        (tf_config("worker", 0, chief=["a:1"], worker=["b:1"]), Identity("train.py", 1, 0, 2, "TF_CONFIG")),
        (tf_config("chief", 0, chief=["a:1"], worker=["b:1"]), Identity("train.py", 0, 0, 2, "TF_CONFIG")),
        (tf_config("ps", 0, worker=["a:1"], ps=["b:1"]), Identity("train.py", 0, 0, 1, "single process")),
        (tf_config("worker", 9, worker=["a:1"]), Identity("train.py", 0, 0, 1, "single process")),
        ({"TF_CONFIG": "{"}, Identity("train.py", 0, 0, 1, "single process")),
        ({"TF_CONFIG": "[]"}, Identity("train.py", 0, 0, 1, "single process")),
        ({"TF_CONFIG": '{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1e400}}'},
         Identity("train.py", 0, 0, 1, "single process")),
        ({"TF_CONFIG": "[" * 100_000}, Identity("train.py", 0, 0, 1, "single process")),
        ({"PMI_RANK": "9" * 30}, Identity("train.py", 0, 0, 1, "single process")),
        ({"SLURM_JOB_ID": "x" * 100_000}, Identity("x" * 256, 0, 0, 1, "single process")),
    ],
)
def test_launchers(environ, expected):
    assert identify(environ, program="train.py") == expected


def test_what_is_given_wins():
    environ = {"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_JOB_ID": "77"}
    assert identify(environ, program="p", job="mine", rank=3, world_size=8) == Identity("mine", 3, 3, 8, "given")


def test_the_world_holds_at_least_this_rank():
    assert identify({}, program="p", rank=3).world_size == 4


tf_config_keys = st.sampled_from(["cluster", "task", "worker", "type", "index"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tf_config_keys, inner),
    max_leaves=12,
)


@given(json_values)
def test_no_tf_config_is_too_strange(value):
    identity = identify({"TF_CONFIG": json.dumps(value)}, program="p")
    assert 0 <= identity.rank < identity.world_size


@given(
    st.dictionaries(
        st.sampled_from(["RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_ID"]),
        st.text(max_size=6) | st.integers().map(str),
    ),
)
def test_no_environment_is_too_strange(environ):
    identity = identify(environ, program="p")
    assert 0 <= identity.rank < identity.world_size
