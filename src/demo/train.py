"""One rank of the demo: a Keras convnet, fed by a pipeline that is either fast or slow.

The slow one is what many first pipelines look like: it decodes the crops in full size and resizes them anew in every
epoch, one at a time and only when the training asks. The fast one reads them already resized, decodes several at a
time, and has the next batches ready.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import hpcsampler

from .images import CLASSES, CROPS, SMALL_PX, default_folder, image_set, write

if TYPE_CHECKING:
    from .images import ImageSet

BATCH = 16
STEPS_PER_EPOCH = 300
VALIDATION_STEPS = 12


def pipeline(images: ImageSet, kind: str, seed: int) -> tf.data.Dataset:
    """Endless batches of images in 0-1 and labels: decoded, augmented, shuffled, batched and, if fast, prefetched."""

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_single_example(
            record,
            {"jpeg": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)},
        )
        image = tf.image.convert_image_dtype(tf.io.decode_jpeg(features["jpeg"], channels=3), tf.float32)
        if kind == "slow":
            image = tf.image.resize(image, (SMALL_PX, SMALL_PX), antialias=True)
        return tf.ensure_shape(image, (SMALL_PX, SMALL_PX, 3)), features["label"]

    def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Not mirrored: the label says on which side of the photograph the crop is.
        image = tf.image.random_brightness(image, 0.2)
        image = tf.image.random_contrast(image, 0.8, 1.2)
        return tf.clip_by_value(image, 0, 1), label

    parallel = tf.data.AUTOTUNE if kind == "fast" else None
    records = tf.data.TFRecordDataset([str(images.small if kind == "fast" else images.large)])
    batches = (
        records.shuffle(CROPS, seed=seed)
        .repeat()
        .map(decode, num_parallel_calls=parallel)
        .map(augment, num_parallel_calls=parallel)
        .batch(BATCH, drop_remainder=True)
    )
    if kind == "fast":
        return batches.prefetch(tf.data.AUTOTUNE)
    # tf.data would mend the worst of it by itself: run maps in parallel, fuse the last with the batch, prefetch.
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return batches.with_options(options)


def convnet() -> Any:
    """A small one: some 30 ms a step on one core."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((SMALL_PX, SMALL_PX, 3)),
            layers.Conv2D(24, 5, strides=2, activation="relu"),
            layers.Conv2D(48, 3, strides=2, activation="relu"),
            layers.Conv2D(96, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(CLASSES),
        ],
    )
    model.compile(
        optimizer="adam",
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> int:
    """Train for --epochs, or until something ends it."""
    parser = ArgumentParser(prog="python -m hpcsampler.demo.train", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--pipeline", choices=("fast", "slow"), default="fast")
    parser.add_argument("--data", type=Path, default=default_folder(os.environ), help="folder of the images")
    parser.add_argument("--epochs", type=int, default=1_000_000)
    arguments = parser.parse_args()

    hpcsampler.attach(job="demo", rank=arguments.rank, world_size=arguments.world_size)

    # Two ranks share a small machine: about one core for each, and no GPU memory taken ahead.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.keras.utils.set_random_seed(arguments.rank)

    images = image_set(arguments.data)
    if not images.ready:
        write(images)
    convnet().fit(
        pipeline(images, arguments.pipeline, seed=arguments.rank),
        steps_per_epoch=STEPS_PER_EPOCH,
        epochs=arguments.epochs,
        validation_data=pipeline(images, "fast", seed=arguments.rank + arguments.world_size),
        validation_steps=VALIDATION_STEPS,
        shuffle=False,  # the pipeline does that
        verbose=2,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
