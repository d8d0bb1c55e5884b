#!/usr/bin/env python3
"""A table: CSV -> Parquet shards -> Ray Data, as Ray Train reads it: in batches, a part for each worker.

    python examples/csv_ray.py [OUT]
"""

import sys

import ray

import shardify

WORKERS = 2


def main(out):
    report = shardify.convert("testdata/csv/titanic.csv", out=out, id="PassengerId", target_shard="16KiB")
    print(f"{report.records_out} rows in {report.shards_added} shards")

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    rows = shardify.open(out).ray().select_columns(["Pclass", "Survived"])
    survived = {"first class": 0, "others": 0}
    # In Ray Train, worker N gets its part from `ray.train.get_dataset_shard("train")`.
    for part in rows.split(WORKERS):
        for batch in part.iter_batches(batch_size=128, batch_format="numpy"):
            first = batch["Pclass"] == 1
            survived["first class"] += int(batch["Survived"][first].sum())
            survived["others"] += int(batch["Survived"][~first].sum())
    ray.shutdown()
    print(f"survived {survived}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/table")
