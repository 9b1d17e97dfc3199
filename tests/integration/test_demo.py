"""`hpcsampler demo` without a terminal: real trainings, a few frames, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcsampler.cli import main
from hpcsampler.commands import demo
from hpcsampler.demo.folder import remove_left_over

DEMO = [sys.executable, "-m", "hpcsampler", "demo"]


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """The images, made once for this module."""
    folder = tmp_path_factory.mktemp("images")
    maker = [sys.executable, "-m", "hpcsampler.demo.images", "--data", str(folder)]
    subprocess.run(maker, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    """Temporary files go where the test can look for them; a user's own settings change nothing."""
    (tmp_path / "t").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "t"), "HPCSAMPLER_ENABLED": "0", "HPCSAMPLER_DAEMON": "never"}


def processes_with(text: str) -> list[str]:
    """Command lines that hold the text."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            lines.append(line)
    return lines


def assert_nothing_is_left(environ: dict[str, str]) -> None:
    assert list(Path(environ["TMPDIR"]).iterdir()) == []
    # A look at the snapshot that was just starting ends by itself.
    deadline = time.monotonic() + 10
    while left := processes_with(environ["TMPDIR"]):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_the_images_are_real_and_labelled_all_over(images):
    program = (
        "import sys, collections, tensorflow as tf\n"
        "from pathlib import Path\n"
        "from hpcsampler.demo.images import CLASSES, CROPS, CROP_PX, SMALL_PX, image_set\n"
        "files = image_set(Path(sys.argv[1]))\n"
        "labels = []\n"
        "for path, size in ((files.large, CROP_PX), (files.small, SMALL_PX)):\n"
        "    seen = []\n"
        "    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():\n"
        "        example = tf.train.Example.FromString(record)\n"
        "        jpeg = example.features.feature['jpeg'].bytes_list.value[0]\n"
        "        assert tf.io.decode_jpeg(jpeg).shape == (size, size, 3)\n"
        "        seen.append(example.features.feature['label'].int64_list.value[0])\n"
        "    assert len(seen) == CROPS and set(seen) == set(range(CLASSES)), collections.Counter(seen)\n"
        "    labels.append(seen)\n"
        "assert labels[0] == labels[1]\n"
    )
    subprocess.run([sys.executable, "-c", program, str(images)], check=True, timeout=200)


def test_frames_show_which_rank_is_starved(images, environ):
    done = subprocess.run(
        [*DEMO, "--seconds", "12", "--data", str(images)],
        env=environ, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("goodput") == demo.FRAMES
    last = done.stdout.rsplit("goodput", 1)[1]
    goodputs = re.findall(r"^ +(\d) +training .*? (\d+) % ", last, re.MULTILINE)
    assert [rank for rank, _ in goodputs] == ["0", "1"], last
    assert "waits for input" in last
    assert_nothing_is_left(environ)


def start(images: Path, environ: dict[str, str]) -> tuple[subprocess.Popen[str], list[int]]:
    """A demo that has started its ranks, and their pids."""
    demonstration = subprocess.Popen(
        [*DEMO, "--data", str(images)], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = []
    for line in demonstration.stdout:
        pids += [int(pid) for pid in re.findall(r"pid (\d+)", line)]
        if line.startswith("waiting"):
            break
    return demonstration, pids


def test_a_rank_that_dies_is_told_with_its_last_words(images, environ):
    demonstration, pids = start(images, environ)
    os.kill(pids[1], signal.SIGKILL)
    _, said = demonstration.communicate(timeout=200)
    assert demonstration.returncode == 1
    assert said.startswith("hpcsampler: rank 1 ended early with exit code -9: the last lines of ")
    assert processes_with(environ["TMPDIR"]) == []
    log = Path(re.search(r"last lines of (\S+):", said)[1])
    assert log.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_early_it_leaves_nothing(images, environ, number, code):
    demonstration, pids = start(images, environ)
    demonstration.send_signal(number)
    demonstration.communicate(timeout=200)
    assert demonstration.returncode == code
    assert_nothing_is_left(environ)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that its parent has not asked after has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_ranks_end_with_a_demo_that_was_killed(images, environ, monkeypatch):
    demonstration, pids = start(images, environ)
    demonstration.kill()
    demonstration.communicate()
    assert len(pids) == len(demo.PIPELINES)
    # They are still importing TensorFlow: what ends them is none of their own code.
    deadline = time.monotonic() + 2
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline, "a rank lives on alone"
        time.sleep(0.02)
    monkeypatch.setattr("tempfile.tempdir", environ["TMPDIR"])
    assert len(list(Path(environ["TMPDIR"]).iterdir())) == 1
    remove_left_over()
    assert_nothing_is_left(environ)


def test_it_ends_soon_in_the_midst_of_training(images, environ):
    demonstration, pids = start(images, environ)
    (folder,) = Path(environ["TMPDIR"]).iterdir()
    deadline = time.monotonic() + 120
    while not all("Epoch 1" in (folder / f"rank{rank}.log").read_text() for rank in range(len(pids))):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    begin = time.monotonic()
    demonstration.send_signal(signal.SIGTERM)
    demonstration.communicate(timeout=60)
    assert time.monotonic() - begin < 4  # of the 10 s that ranks took to end by themselves
    assert_nothing_is_left(environ)


@pytest.mark.parametrize("module", ["tensorflow", "sklearn", "PIL"])
def test_what_is_missing_is_named_with_its_extra(monkeypatch, capsys, module):
    found = demo.importlib.util.find_spec
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None if name == module else found(name))
    assert main(["demo"]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"needs {module}: pip install 'hpcsampler[" in said


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_that_can_not_be_is_one_line(capsys, seconds):
    try:
        code = main(["demo", "--seconds", seconds])
    except SystemExit as left:
        code = left.code
    assert code == 2
    said = capsys.readouterr().err
    assert f"--seconds: {seconds!r} is no time: write seconds above 0 (see hpcsampler demo --help)" in said
    assert len(said.splitlines()) == 1
