//! How fast JSON Lines become columns: the usual rows, and those that need more than a comparison with the row before.

use std::{fmt::Write as _, hint::black_box};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardify::{
    format::{
        Parsed, RecordReader,
        json::{JsonSource, Mode},
    },
    record::SourceRange,
    schema,
};

const BYTES: usize = 4 << 20;

/// Rows made by `row` from their number and a number that looks random.
fn split(row: impl Fn(&mut String, u64, u64)) -> SourceRange {
    let mut text = String::with_capacity(BYTES + 4096);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0.. {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        row(&mut text, number, state >> 33);
        text.push('\n');
        if text.len() >= BYTES {
            break;
        }
    }
    SourceRange::of_bytes(0, Bytes::from(text))
}

/// Scalars of every kind, as a database dumps them.
fn flat(out: &mut String, number: u64, random: u64) {
    let note = &"transferred from ward 4; labs pending; tolerating diet; advised rest, fluids; family present"
        [..8 + (random % 80) as usize];
    let _ = write!(
        out,
        r#"{{"id":"PAT-{:05}","visit":{number},"at":"2024-08-08 14:41:57","rate":{}.{},"weight":{}.{:02},"age":{},"#,
        random % 100_000,
        40 + random % 120,
        random % 10,
        40 + random % 80,
        random % 100,
        random % 100
    );
    let _ = write!(out, r#""smoker":{},"days":null,"ward":"oncology","note":"{note}"}}"#, random.is_multiple_of(3));
}

/// The same as most libraries write it, with a space behind colons and commas.
fn spaced(out: &mut String, number: u64, random: u64) {
    let mut row = String::new();
    flat(&mut row, number, random);
    out.push_str(&row.replace("\":", "\": ").replace(",\"", ", \""));
}

/// Long text with line ends and quotes in it, not all of it ASCII.
fn escaped(out: &mut String, number: u64, random: u64) {
    let _ = write!(out, r#"{{"id":{number},"text":""#);
    for part in 0..4 + random % 30 {
        let _ = write!(out, r#"Zeile {part}: \"Größe\" und \u00dcbergröße\n\t{random}\\n"#);
    }
    out.push_str("\"}");
}

/// Lists, and objects in objects.
fn nested(out: &mut String, number: u64, random: u64) {
    let _ =
        write!(out, r#"{{"id":{number},"who":{{"name":{{"first":"A{random}","last":"B"}},"age":{}}},"#, random % 90);
    let _ = write!(
        out,
        r#""vector":[0.{random},-1.5,0.8414709848078965,2e-3],"tags":[{{"k":"a","v":1}},{{"k":"b","v":2}}]}}"#
    );
}

/// Keys that only some rows have.
fn sparse(out: &mut String, number: u64, random: u64) {
    let _ = write!(out, r#"{{"id":{number}"#);
    for key in 0..16 {
        if random >> key & 1 == 1 {
            let _ = write!(out, r#","key_{key}":{}"#, random >> key);
        }
    }
    out.push('}');
}

/// Appends a row, made from its number and a number that looks random.
type Row = fn(&mut String, u64, u64);

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json/parse");
    let kinds: [(&str, Row); 5] =
        [("flat", flat), ("spaced", spaced), ("escaped", escaped), ("nested", nested), ("sparse", sparse)];
    for (name, row) in kinds {
        let split = split(row);
        let source = JsonSource::new(Mode::Lines);
        let schema = schema::schema_of(&source.infer(&split));
        assert!(matches!(source.parse(&split, &schema), Ok(Parsed::Block(block)) if block.rejects.is_empty()));
        group.throughput(Throughput::Bytes(split.bytes_in()));
        group.bench_with_input(BenchmarkId::from_parameter(name), &split, |bencher, split| {
            bencher.iter(|| source.parse(black_box(split), &schema));
        });
    }
    group.finish();
}

fn infer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json/infer");
    let split = split(flat);
    group.throughput(Throughput::Bytes(split.bytes_in()));
    group.bench_function("flat", |bencher| bencher.iter(|| JsonSource::new(Mode::Lines).infer(black_box(&split))));
    group.finish();
}

fn cut(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json/splits");
    let split = split(flat);
    group.throughput(Throughput::Bytes(split.bytes_in()));
    group.bench_function("lines", |bencher| {
        bencher.iter(|| JsonSource::new(Mode::Lines).ranges(Box::new(split.content_bytes()), 1 << 20, 1 << 30).count());
    });
    group.finish();
}

criterion_group!(benches, parse, infer, cut);
criterion_main!(benches);
