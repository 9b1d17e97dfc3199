"""Checkpoints that are written in odd ways: what is told of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcsampler.ext import _events
from hpcsampler.protocol.incidents import CheckpointIncident
from hpcsampler.sampler.hooks.checkpoints import CheckpointHooks
from hpcsampler.sampler.incidents import Incidents
from hpcsampler.sampler.names import Names


class Options:
    """As `tf.train.CheckpointOptions(enable_async=True)`."""

    experimental_enable_async_checkpoint = True


class Writer:
    """Something like Keras's model."""

    def save(self, path: Path, options: Options | None = None) -> None:
        if options is None:
            path.write_bytes(b"1" * 10)


@pytest.fixture
def incidents() -> Iterator[Incidents]:
    _events.open_ring(64)
    before = _events.set_driver(threading.get_ident())
    _events.record(True)
    found = Incidents()
    hooks = CheckpointHooks(Names(), found)
    original, Writer.save = Writer.save, hooks._checkpoint("Writer.save")(Writer.save)  # type: ignore[method-assign]
    hooks._in_background = lambda: threading.current_thread().name == "of TensorFlow"
    yield found
    Writer.save = original  # type: ignore[method-assign]
    _events.record(False)
    _events.set_driver(before)
    while _events.drain():
        pass


def only(incidents: Incidents) -> CheckpointIncident:
    (made,) = incidents.take()
    assert isinstance(made, CheckpointIncident)
    return made


def test_what_a_thread_beside_the_training_writes_does_not_block_it(incidents: Incidents, tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: Writer().save(tmp_path / "m.keras"))
    thread.start()
    thread.join()
    made = only(incidents)
    assert (made.background, made.blocked_s, made.bytes) == (True, 0.0, 10)
    assert made.background_s is not None
    assert made.background_s == made.complete_s


def test_what_the_training_writes_itself_blocks_it(incidents: Incidents, tmp_path: Path) -> None:
    Writer().save(tmp_path / "m.keras")
    made = only(incidents)
    assert not made.background
    assert made.blocked_s > 0


def test_a_write_in_the_background_that_fails_is_not_being_written_for_ever(
    incidents: Incidents, tmp_path: Path,
) -> None:
    path = tmp_path / "nowhere" / "m.keras"
    failed: list[OSError] = []

    def write() -> None:
        try:
            Writer().save(path)
        except OSError as error:
            failed.append(error)

    Writer().save(path, Options())
    assert only(incidents).background_s is None
    thread = threading.Thread(target=write, name="of TensorFlow")
    thread.start()
    thread.join()
    made = only(incidents)
    assert failed
    assert made.background_s is not None
    assert made.bytes is None


def test_a_checkpoint_that_fails_is_none_and_fails_as_it_did(incidents: Incidents, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Writer().save(tmp_path / "nowhere" / "m.keras")
    assert incidents.take() == []
