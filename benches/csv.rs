//! Throughput of the CSV reader: cutting a stream into splits or parts, finding out types, parsing into columns.
//!
//! `cargo bench --bench csv`; bytes are those of the text. Three tables with the same values, written in three ways.

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardify::{
    format::{
        RecordReader,
        csv::{CsvOptions, CsvSource, sniff},
    },
    record::{PartSizes, SourceRange},
};

/// Bytes of each table, about.
const SIZE: usize = 8 << 20;

/// A name, and how a text and a number are written.
type Form = (&'static str, fn(&str) -> String, fn(&str) -> String);

const FORMS: [Form; 3] = [
    ("plain", str::to_owned, str::to_owned),
    ("all_quoted", |text| format!("\"{text}\""), |number| format!("\"{number}\"")),
    ("newlines", |text| format!("\"{}\"", text.replace("; ", "\r\nand \"\"then\"\" ")), str::to_owned),
];

/// A table of visits: identifiers, a time, numbers, a few words, and a note that is sometimes long.
fn table((_, text, number): Form) -> String {
    let mut out = "id,time,rate,weight,age,stay,ward,note\n".to_owned();
    let mut seed = 7_u64;
    while out.len() < SIZE {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = |shift: u32, below: u64| (seed >> shift) % below;
        let stay = if draw(20, 20) == 0 { String::new() } else { number(&draw(22, 40).to_string()) };
        let fields = [
            text(&format!("PAT-{:05}", draw(33, 100_000))),
            text(&format!("20{:02}-0{}-1{} 1{}:07:41", draw(40, 25), 1 + draw(41, 9), draw(42, 10), draw(43, 10))),
            number(&format!("{}.{}", 40 + draw(44, 90), draw(45, 10))),
            number(&format!("{}.{:02}", 9 + draw(46, 120), draw(47, 100))),
            number(&draw(48, 100).to_string()),
            stay,
            text(["oncology", "emergency", "icu", "cardiology"][usize::try_from(draw(50, 4)).unwrap_or(0)]),
            text(&"stable; tolerating diet; ".repeat(usize::try_from(draw(52, 5)).unwrap_or(0))),
        ];
        out.push_str(&fields.join(","));
        out.push('\n');
    }
    out
}

fn source(text: &str) -> Option<CsvSource> {
    sniff(&text.as_bytes()[..256 << 10], false, &CsvOptions::default())
}

fn ranges(source: &CsvSource, text: &str) -> Vec<SourceRange> {
    let cursor = std::io::Cursor::new(text.as_bytes().to_vec());
    source.ranges(Box::new(cursor), 1 << 20, 1 << 27).map_while(Result::ok).collect()
}

fn read(criterion: &mut Criterion) {
    for form in FORMS {
        let text = table(form);
        let Some(source) = source(&text) else { continue };
        let pieces = ranges(&source, &text);
        let fields = pieces.first().map(|range| source.infer(range)).unwrap_or_default();
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        let mut group = criterion.benchmark_group("csv");
        group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(20);
        group.bench_function(BenchmarkId::new("range", form.0), |bench| {
            bench.iter(|| {
                let input = Box::new(text.as_bytes());
                source
                    .ranges(input, 1 << 20, 1 << 27)
                    .map_while(Result::ok)
                    .map(|s| s.content_bytes().len())
                    .sum::<usize>()
            });
        });
        group.bench_function(BenchmarkId::new("parts", form.0), |bench| {
            let sizes = PartSizes {
                source_bytes: text.len() as u64,
                part_bytes: 2 << 20,
                range_bytes: 1 << 20,
                max_record_bytes: 1 << 27,
            };
            bench.iter(|| source.parts(Box::new(text.as_bytes()), &sizes).map_or(0, |parts| parts.len()));
        });
        group.bench_function(BenchmarkId::new("infer", form.0), |bench| {
            bench.iter(|| pieces.iter().for_each(|range| drop(black_box(source.infer(range)))));
        });
        group.bench_function(BenchmarkId::new("parse", form.0), |bench| {
            bench.iter(|| pieces.iter().for_each(|range| drop(black_box(source.parse(range, &schema)))));
        });
        group.finish();
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
