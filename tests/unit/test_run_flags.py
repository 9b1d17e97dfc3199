"""Whether a command's own Python flags keep the sampler out: told before the command starts."""

from __future__ import annotations

import pytest

from hpcsampler.commands.run import environment, ignores_environment
from hpcsampler.settings import Settings


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python train.py", ""),
        ("python -I train.py", "-I"),
        ("/usr/bin/python3.12 -uE -m train", "-E"),
        ("python -X dev -W error -S train.py", "-S"),
        ("python -Xdev -Werror::ImportWarning train.py", ""),
        ("python -m train -I", ""),
        ("python -c print(1) -E", ""),
        ("python train.py -I", ""),
        ("python --check-hash-based-pycs always train.py -I", ""),
        ("python - -I", ""),
        ("mpirun -n 4 python -I train.py", "-I"),
        ("bash -I", ""),
        ("python", ""),
        ("python -X", ""),
    ],
)
def test_flags_of_python_that_keep_sitecustomize_out_are_seen(command, flag):
    assert ignores_environment(command.split()) == flag


@pytest.mark.parametrize(("before", "rest"), [({}, []), ({"PYTHONPATH": ""}, []), ({"PYTHONPATH": "a:b"}, ["a", "b"])])
def test_the_users_pythonpath_stays_behind_ours(before, rest):
    first, *others = environment(before, Settings(), [])["PYTHONPATH"].split(":")
    assert first.endswith("/inject")
    assert others == rest
