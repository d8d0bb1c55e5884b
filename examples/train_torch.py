#!/usr/bin/env python3
"""Training on the CPU: pictures -> Parquet shards -> a small model on two ranks, stopped, and continued on three.

    python examples/train_torch.py [OUT]

The pictures are made here: noisy copies of ten shapes. Each rank is a process, as `torchrun` starts them.
"""

import json
import pathlib
import shutil
import sys

import numpy
import torch
import torch.distributed
import torch.multiprocessing

import shardify

PICTURES, BATCH = 2016, 48
STEPS = PICTURES // BATCH


def pictures(path):
    """Ten shapes of 8 x 8 pixels, and noise."""
    rng = numpy.random.default_rng(1)
    shapes = rng.integers(0, 200, (10, 8, 8))
    labels = rng.integers(0, 10, PICTURES)
    pixels = shapes[labels] + rng.integers(0, 56, (PICTURES, 8, 8))
    numpy.savez(path, pixels=pixels.astype("uint8"), label=labels)


def train(rank, ranks, folder, first, last):
    """Steps first to last of one rank. A checkpoint has the model, and the state of the loader, which is the same on all ranks."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks-{ranks}", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    # Every rank opens the same version; rank and number of ranks are those of torch.distributed.
    loader = shardify.open(f"{folder}/shards", at=1).loader(global_batch_size=BATCH, seed=1, columns=["pixels", "label"])
    if first:
        checkpoint = torch.load(f"{folder}/checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        loader.load_state_dict(checkpoint["loader"])

    lines, step = [], first
    while step < last:
        for batch in loader:  # one epoch, or what is left of it
            columns = batch.torch()
            loss = torch.nn.functional.cross_entropy(model(columns["pixels"] / 255), columns["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lines.append({"step": batch.step, "epoch": batch.epoch, "loss": loss.item(), "records": batch.records.tolist()})
            step = batch.step + 1
            if step == last:
                break
    if rank == 0:
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, f"{folder}/checkpoint.pt")
    with open(f"{folder}/seen-{first}-{rank}.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    torch.distributed.destroy_process_group()


def main(out):
    folder = pathlib.Path(out).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pictures(folder / "pictures.npz")
    report = shardify.convert(folder / "pictures.npz", out=folder / "shards", shards=4)
    print(f"{report.records_out} pictures in {report.shards_added} shards")

    # Two ranks stop in the first epoch; three go on to the end of the second.
    torch.multiprocessing.spawn(train, (2, folder, 0, 17), nprocs=2)
    torch.multiprocessing.spawn(train, (3, folder, 17, 2 * STEPS), nprocs=3)

    lines = [json.loads(line) for path in folder.glob("seen-*.jsonl") for line in path.read_text().splitlines()]
    for epoch in range(2):
        numbers = [number for line in lines if line["epoch"] == epoch for number in line["records"]]
        print(f"epoch {epoch}: {len(numbers)} pictures seen, {len(set(numbers))} different ones")
    losses = {line["step"]: line["loss"] for line in lines}
    print(f"loss {losses[0]:.3f} at step 0, {losses[16]:.3f} before the stop, {losses[17]:.3f} after it, {losses[2 * STEPS - 1]:.3f} at the end")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/digits")
