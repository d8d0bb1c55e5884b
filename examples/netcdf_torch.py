#!/usr/bin/env python3
"""A series of grids: NetCDF -> patches in Parquet shards -> torch, with a stop in the middle of an epoch.

    python examples/netcdf_torch.py [OUT]
"""

import sys

import torch

import shardify

LAT, LON = 2, 2


def main(out):
    # A record is a patch of 2 x 2 cells of a day; the last patch of a dimension is moved back so that it ends at the edge.
    report = shardify.convert("testdata/arrays/grid.nc", out=out, read={"record_dim": "time", "patch": {"lat": LAT, "lon": LON}})
    print(f"{report.records_out} patches in {report.shards_added} shards")

    # A patch is an array of 2 x 2 numbers; cells without a value are NaN.
    patches = shardify.open(out).torch(global_batch_size=3, seed=1, columns=["t2m"], drop_last=False)
    seen = []
    for batch in torch.utils.data.DataLoader(patches, batch_size=None, num_workers=2):
        seen.append(batch["t2m"])
        if batch["__step__"] == 1:  # The job is stopped here. A checkpoint holds the state, which is the same on all ranks.
            state = patches.loader.state_at(2)
            break

    # It goes on without workers. What was read is not read again, and nothing is omitted.
    patches.load_state_dict(state)
    seen += [batch["t2m"] for batch in torch.utils.data.DataLoader(patches, batch_size=None)]
    cells = torch.cat(seen)
    print(f"{len(cells)} patches read, mean {cells.nanmean():.3f} K")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/patches")
