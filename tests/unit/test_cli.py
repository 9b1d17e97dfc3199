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
