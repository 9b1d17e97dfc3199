"""The command line: bad usage is one line and exit code 2, and nothing heavy is loaded to say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hpcsampler import __version__
from hpcsampler.cli import COMMANDS, main


def test_says_its_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"hpcsampler {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["--colour"], *([command, "--no-such-flag"] for command in COMMANDS)],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_bad_usage_is_one_line_that_says_where_to_look(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "--help" in said


@pytest.mark.parametrize("command", [*COMMANDS, "daemon run"])
@pytest.mark.parametrize("wrong", [["--no-such-flag"], ["--no-such-flag", "1", "--", "x"]])
def test_bad_usage_of_a_command_leads_to_its_own_help(command, wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), *wrong])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    if command not in {"daemon", "stacks"}:  # they ask for their action, their rank, first
        assert said.startswith(f"hpcsampler {command}: ")
        assert "--no-such-flag" in said or "required: RANK" in said
    assert f"(see hpcsampler {command} --help)" in said or command == "daemon"


@pytest.mark.parametrize(
    "arguments", ["top --onc", "run --ran 1 -- true", "doctor --js", "daemon run --ling 3", "--vers"],
)
def test_flags_are_not_to_be_shortened(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--rank x", "--rank is 'x': write a whole number from 0"),
        ("--world-size 0", "--world-size is '0': write a whole number from 1"),
        ("--daemon maybe", "--daemon is 'maybe': write auto, never or an address"),
        ("--rank 5 --world-size 2", "--rank is 5, but --world-size is 2: write a rank from 0 to 1"),
    ],
)
def test_a_flag_of_run_that_can_not_be_is_named_as_it_was_written(flags, said, capsys):
    assert main(["run", *flags.split(), "--", "true"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"hpcsampler: {said}")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("command", ["daemon status", "top --once"])
def test_a_variable_that_means_nothing_is_told_with_the_nearest(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCSAMPLER_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HPCSAMPLER_WORLDSIZE", "2")
    assert main(command.split()) == 1
    told = capsys.readouterr().err.splitlines()
    said = "'HPCSAMPLER_WORLDSIZE' is set, but means nothing: the nearest that does is HPCSAMPLER_WORLD_SIZE"
    assert told.count(f"hpcsampler: {said}") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: hpcsampler")


def test_help_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from hpcsampler.cli import build_parser\n"
        "build_parser()\n"
        "print(sorted({'zmq', 'numpy', 'textual', 'tensorflow', 'psutil', 'pynvml', 'wrapt'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_not_load_the_others(command):
    """`top` has half a second to its first frame, and `run` is in the way of every rank's start."""
    program = (
        "import sys\n"
        "from hpcsampler.cli import main\n"
        "try:\n"
        f"    main([{command!r}, '--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "loaded = [name.rpartition('.')[2] for name in sys.modules if name.startswith('hpcsampler.commands.')]\n"
        "print(loaded, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == f"[{command!r}]\n"


def test_a_reader_that_has_gone_is_no_error():
    command = f"{sys.executable} -m hpcsampler doctor --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
