"""What of the TensorFlow and Keras that are installed here the tests must know, without importing them."""

from __future__ import annotations

from importlib import metadata


def _version(*distributions: str) -> tuple[int, ...]:
    """The first two numbers of the first of these that is installed; none of any if there is none."""
    for distribution in distributions:
        try:
            return tuple(int(number) for number in metadata.version(distribution).split(".")[:2])
        except metadata.PackageNotFoundError:
            continue
    return ()


KERAS = _version("keras")
STAGES = _version("tensorflow-cpu", "tensorflow") >= (2, 17)
"""TensorFlow tells what the stages of an input pipeline do."""
ORBAX = KERAS > () and any(file.name == "orbax_checkpoint.py" for file in metadata.files("keras") or ())
"""Keras has a callback that writes checkpoints with Orbax."""
