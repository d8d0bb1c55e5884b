#!/usr/bin/env python3
"""A table as tf.train.Example: CSV -> TFRecord shards -> tf.data, or the package `tfrecord` where TensorFlow is not installed.

    python examples/tfrecord_tf.py [OUT]
"""

import sys

import shardify

try:
    import tensorflow
except ImportError:
    tensorflow = None


def ages_by_tensorflow(dataset):
    """The ages of those who survived; an absent feature is a null."""
    features = {
        "Age": tensorflow.io.FixedLenFeature([], tensorflow.float32, float("nan")),
        "Survived": tensorflow.io.FixedLenFeature([], tensorflow.int64),
    }
    batches = dataset.tf(num_parallel_reads=2).batch(32).map(lambda batch: tensorflow.io.parse_example(batch, features))
    for batch in batches.prefetch(1):
        for age, survived in zip(batch["Age"].numpy(), batch["Survived"].numpy(), strict=True):
            if survived and age == age:
                yield float(age)


def ages_by_tfrecord(dataset):
    """The same without TensorFlow."""
    from tfrecord.reader import tfrecord_loader

    for path in dataset.paths():
        for record in tfrecord_loader(path, None):
            if record["Survived"][0] and "Age" in record:
                yield float(record["Age"][0])


def main(out):
    report = shardify.convert("testdata/csv/titanic.csv", out=out, id="PassengerId", to="tfrecord", target_shard="64KiB")
    print(f"{report.records_out} records in {report.shards_added} shards")

    ages = sorted((ages_by_tensorflow if tensorflow else ages_by_tfrecord)(shardify.open(out)))
    print(f"{len(ages)} ages, mean {sum(ages) / len(ages):.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/tfrecord")
