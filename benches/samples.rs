//! Framing of samples: what it costs to make tar members and TFRecord examples of files that are in memory.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shardify::{
    format::{Framed, Framing, Keyed, tar::TarFraming, tfrecord::TfRecordFraming},
    record::{Part, Payload, Sample},
};

/// Samples of an image, a document and a class, as trees of training data have them.
fn samples() -> (Payload, Vec<String>, u64) {
    let noise: Bytes = (0..1_u32 << 20).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let part = |extension: &str, start: usize, length: usize| Part {
        extension: extension.to_owned(),
        bytes: noise.slice(start..start + length),
    };
    let sample = |i: usize| Sample {
        key: format!("{:03}/{i:06}", i % 100),
        origin: format!("{:03}/{i:06}.{{cls,jpg,json}}", i % 100),
        subject: None,
        parts: vec![
            part("cls", i, 3),
            part("jpg", i * 977 % 900_000, 8192 + i * 31 % 4096),
            part("json", i * 13 % 900_000, 200),
        ],
    };
    let samples: Vec<Sample> = (0..400).map(sample).collect();
    let keys = samples.iter().map(|sample| sample.key.clone()).collect();
    let bytes = samples.iter().map(Sample::byte_count).sum();
    (Payload::Samples(samples), keys, bytes)
}

fn framing(criterion: &mut Criterion) {
    let (payload, keys, bytes) = samples();
    let framings: [(&str, &dyn Framing); 2] = [("tar", &TarFraming), ("tfrecord", &TfRecordFraming)];
    let mut group = criterion.benchmark_group("frame samples");
    group.throughput(Throughput::Bytes(bytes));
    for (name, framing) in framings {
        let mut out = Framed::default();
        let mut once = || {
            out.bytes.clear();
            out.lengths.clear();
            let framed = framing.frame(Keyed::new(&payload, &keys), &mut out);
            assert!(framed.is_ok(), "{framed:?}");
            black_box(&out);
        };
        group.bench_function(name, |bencher| bencher.iter(&mut once));
    }
    group.finish();
}

criterion_group!(benches, framing);
criterion_main!(benches);
