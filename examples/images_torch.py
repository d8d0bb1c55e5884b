#!/usr/bin/env python3
"""Images with labels: a folder -> tar shards -> webdataset -> torch DataLoader.

    python examples/images_torch.py [OUT]
"""

import io
import json
import sys

import torch
import webdataset
from PIL import Image

import shardify

PICTURES = ("jpeg", "gif", "webp")


def decoded(sample):
    """A sample as a tensor of 3 x 64 x 64 and its label."""
    (name,) = (name for name in sample if name.rpartition(".")[2] in PICTURES)
    image = Image.open(io.BytesIO(sample[name])).convert("RGB").resize((64, 64))
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(64, 64, 3)
    return pixels.permute(2, 0, 1).float() / 255, json.loads(sample["json"])["label"]


def main(out):
    # Files whose names are equal up to the first dot are one sample.
    report = shardify.convert("testdata/files/images", out=out, include=["*.rgb.jpeg", "*.webp", "*.gif", "*.json"], target_shard="64KiB")
    print(f"{report.records_out} samples in {report.shards_added} shards")

    samples = shardify.open(out).webdataset(empty_check=False).select(lambda sample: "json" in sample).map(decoded)
    loader = torch.utils.data.DataLoader(samples, batch_size=2, num_workers=2)
    labels = []
    for images, batch in loader:
        assert images.shape[1:] == (3, 64, 64)
        labels += batch.tolist()
    print(f"labels {sorted(labels)}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/images")
