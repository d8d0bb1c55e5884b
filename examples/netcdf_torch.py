#!/usr/bin/env python3
"""A series of grids: NetCDF -> patches in Parquet shards -> torch, with a stop in the middle of an epoch.

    python examples/netcdf_torch.py [OUT]
"""

import sys

import torch

import shardify

LAT, LON = 2, 2


def collate(rows):
    """A batch of patches; cells without a value are NaN."""
    cells = [[float("nan") if cell is None else cell for cell in row["t2m"]] for row in rows]
    return torch.tensor(cells).reshape(-1, LAT, LON)


def main(out):
    # A record is a patch of 2 x 2 cells of a day; the last patch of a dimension is moved back so that it ends at the edge.
    report = shardify.convert("testdata/arrays/grid.nc", out=out, record_dim="time", patch=[f"lat={LAT}", f"lon={LON}"])
    print(f"{report.records_out} patches in {report.shards_added} shards")

    patches = shardify.open(out).torch(seed=1, columns=["t2m"])
    loader = torch.utils.data.DataLoader(patches, batch_size=3, num_workers=2, collate_fn=collate)
    seen = []
    for step, batch in enumerate(loader):
        seen.append(batch)
        if step == 1:  # The job is stopped here. A checkpoint holds the state of each rank.
            state = patches.state_dict(batches=step + 1, batch_size=3, workers=2)
            break

    # It goes on with another number of workers. What was read is not read again, and nothing is omitted.
    patches.load_state_dict([state])
    seen += torch.utils.data.DataLoader(patches, batch_size=3, num_workers=0, collate_fn=collate)
    cells = torch.cat(seen)
    print(f"{len(cells)} patches read, mean {cells.nanmean():.3f} K")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/patches")
