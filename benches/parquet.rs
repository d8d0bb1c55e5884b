//! Encoding and compressing a row group, by kind of column: `cargo bench --bench parquet`.

use std::{hint::black_box, sync::Arc};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    datatypes::Schema,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shardify::{codec::Codec, format::parquet::ParquetEncoder, record::size::logical_bytes};

const ROWS: usize = 400_000;

/// Numbers without pattern, the same in every run.
fn noise() -> impl FnMut(u64) -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// Column names with their arrays; one value in 25 is null where a column has nulls at all.
fn columns() -> Vec<(&'static str, ArrayRef)> {
    let mut random = noise();
    let mut floats = |places: f64, range: u64| -> ArrayRef {
        Arc::new(Float64Array::from_iter(
            (0..ROWS).map(|_| (random(25) > 0).then(|| (random(range) as f64 / places * 100.0).round() / 100.0)),
        ))
    };
    let (rounded, exact) = (floats(10.0, 2000), floats(1e9, u64::MAX >> 12));
    let mut random = noise();
    let phrases = ["patient stable", "reports mild headache", "no known allergies", "labs pending", "discharged home"];
    let mut note = || (0..random(6)).map(|_| phrases[usize::try_from(random(5)).unwrap_or(0)]).collect::<Vec<_>>();
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| note().join("; "))));
    let mut random = noise();
    let wards = ["cardiology", "oncology", "emergency", "neurology"];
    vec![
        ("rounded", rounded),
        ("exact", exact),
        ("small", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| random(100).cast_signed())))),
        ("sequence", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|i| 7 * i as i64)))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                (0..ROWS).map(|_| (random(200_000_000) * 1_000_000).cast_signed()),
            )),
        ),
        (
            "ward",
            Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| wards[usize::try_from(random(4)).unwrap_or(0)]))),
        ),
        ("patient", Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| format!("PAT-{:05}", random(50_000)))))),
        ("visit", Arc::new(StringArray::from_iter_values((0..ROWS).map(|i| format!("V{i:09}"))))),
        ("note", notes),
    ]
}

fn row_groups(criterion: &mut Criterion) {
    let columns = columns();
    for codec in [Codec::None, Codec::Snappy, Codec::Zstd(3)] {
        let mut group = criterion.benchmark_group(format!("parquet/{codec}"));
        group.sample_size(10);
        for (name, column) in &columns {
            let Ok(batch) = RecordBatch::try_from_iter_with_nullable([(name, Arc::clone(column), true)]) else {
                return;
            };
            let schema = Arc::new(Schema::new(batch.schema().fields().clone()));
            let Ok(encoder) = ParquetEncoder::new(&schema, codec, &[]) else { return };
            let batches = [batch];
            group.throughput(Throughput::Bytes(logical_bytes(&batches[0])));
            group.bench_function(*name, |bencher| bencher.iter(|| black_box(encoder.encode(&batches))));
        }
        group.finish();
    }
}

criterion_group!(benches, row_groups);
criterion_main!(benches);
