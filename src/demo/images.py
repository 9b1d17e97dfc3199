"""The images of the demo: JPEG crops of the two photographs that scikit-learn ships, written as TFRecords once."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PIL.Image import Image

PHOTOGRAPHS = ("china.jpg", "flower.jpg")
COLUMNS, ROWS = 3, 2
CLASSES = len(PHOTOGRAPHS) * COLUMNS * ROWS
"""Which photograph, and in which cell of it the crop's centre lies."""
CROP_PX = 400
SMALL_PX = 96
"""What the model takes in: the same crops, resized once and for all."""
CROPS = 192
JPEG_QUALITY = 90
_SEED = 20


@dataclass(frozen=True, slots=True)
class ImageSet:
    """The two files: each crop as it was cut, and resized to what the model takes in."""

    large: Path
    small: Path

    @property
    def ready(self) -> bool:
        """Files appear whole or not at all, so that being there is being right."""
        return self.large.is_file() and self.small.is_file()


def default_folder(environ: Mapping[str, str]) -> Path:
    """$XDG_CACHE_HOME/hpcsampler, by default ~/.cache/hpcsampler."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcsampler"


def image_set(folder: Path) -> ImageSet:
    """The files in this folder, whether they are there or not. Their names change with what is in them."""
    return ImageSet(folder / f"crops-1-{CROP_PX}px.tfrecord", folder / f"crops-1-{SMALL_PX}px.tfrecord")


def photographs() -> list[Path]:
    """Where scikit-learn keeps them. Not imported: that takes a second. Raises `FileNotFoundError`."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("scikit-learn is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "images"
    found = [folder / name for name in PHOTOGRAPHS]
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(f"this scikit-learn ships no {path}")
    return found


def write(images: ImageSet) -> None:
    """Cut the crops and write both files; two ranks that do so at once write the same."""
    import tensorflow as tf
    from PIL import Image

    images.large.parent.mkdir(parents=True, exist_ok=True)
    opened = [Image.open(path).convert("RGB") for path in photographs()]
    chosen = random.Random(_SEED)  # noqa: S311 - the same crops everywhere
    partial = [path.with_name(f"{path.name}.{os.getpid()}") for path in (images.large, images.small)]
    try:
        with tf.io.TFRecordWriter(str(partial[0])) as large, tf.io.TFRecordWriter(str(partial[1])) as small:
            for _ in range(CROPS):
                number = chosen.randrange(len(opened))
                photograph = opened[number]
                left = chosen.randrange(photograph.width - CROP_PX + 1)
                top = chosen.randrange(photograph.height - CROP_PX + 1)
                crop = photograph.crop((left, top, left + CROP_PX, top + CROP_PX))
                column = (left + CROP_PX // 2) * COLUMNS // photograph.width
                row = (top + CROP_PX // 2) * ROWS // photograph.height
                label = (number * ROWS + row) * COLUMNS + column
                large.write(_example(crop, label))
                small.write(_example(crop.resize((SMALL_PX, SMALL_PX)), label))
        partial[0].replace(images.large)
        partial[1].replace(images.small)
    finally:
        for path in partial:
            path.unlink(missing_ok=True)


def _example(crop: Image, label: int) -> bytes:
    from tensorflow.train import BytesList, Example, Feature, Features, Int64List

    jpeg = io.BytesIO()
    crop.save(jpeg, "JPEG", quality=JPEG_QUALITY)
    example = Example(
        features=Features(
            feature={
                "jpeg": Feature(bytes_list=BytesList(value=[jpeg.getvalue()])),
                "label": Feature(int64_list=Int64List(value=[label])),
            },
        ),
    )
    serialized: bytes = example.SerializeToString()
    return serialized


def main() -> int:
    """Write what is missing in the folder given by --data."""
    parser = ArgumentParser(prog="python -m hpcsampler.demo.images", description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, default=default_folder(os.environ), help="folder for the images")
    images = image_set(parser.parse_args().data)
    if not images.ready:
        write(images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
