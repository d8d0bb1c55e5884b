//! One contract, every framed format and codec: records framed apart, compressed in units and joined by copying bytes
//! are scanned back as they were framed, and nothing that was cut off or changed passes.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{io::Cursor, sync::Arc};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::DataType,
};
use bytes::Bytes;
use proptest::prelude::*;
use shardify::{
    codec::{
        Codec,
        checksum::xxh3_64,
        stream::{Tail, open_shard_decoder},
    },
    error::Kind,
    format::{Framed, Framing, Keyed, Scanned, tar::TarFraming, tfrecord::TfRecordFraming},
    record::{Part, Payload, Sample},
};

fn framings() -> Vec<(Box<dyn Framing>, &'static [Codec])> {
    vec![
        (Box::new(TarFraming), &[Codec::None, Codec::Gzip(1), Codec::Gzip(6), Codec::Zstd(1), Codec::Zstd(3)]),
        (Box::new(TfRecordFraming), &[Codec::None, Codec::Gzip(6)]),
    ]
}

fn rows(count: usize) -> (Payload, Vec<String>) {
    let ids: ArrayRef = Arc::new((0..count).map(|i| i64::try_from(i).ok()).collect::<Int64Array>());
    let text: ArrayRef =
        Arc::new((0..count).map(|i| (i % 3 != 0).then(|| "é\"\n".repeat(i % 40))).collect::<StringArray>());
    let score: ArrayRef = Arc::new((0..count).map(|i| Some(i as f64 / 7.0)).collect::<Float64Array>());
    let batch =
        RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("text", text, true), ("score", score, true)])
            .unwrap();
    assert_eq!(batch.column(0).data_type(), &DataType::Int64);
    (Payload::Rows(batch), (0..count).map(|i| format!("row-{i:05}")).collect())
}

fn samples(first: usize, sizes: &[(usize, usize)]) -> (Payload, Vec<String>) {
    let keys: Vec<String> = (first..first + sizes.len()).map(|i| format!("dir{}/sample{i:05}", i % 3)).collect();
    let part =
        |extension: &str, size: usize| Part { extension: extension.into(), bytes: Bytes::from(vec![b'x'; size]) };
    let samples = sizes
        .iter()
        .zip(&keys)
        .map(|((a, b), key)| Sample {
            key: key.clone(),
            origin: key.clone(),
            subject: None,
            parts: vec![part("jpg", *a), part("json", *b)],
        })
        .collect();
    (Payload::Samples(samples), keys)
}

/// A shard made of several units, as files of it and of another shard would be joined.
fn shard(framing: &dyn Framing, codec: Codec, units: &[(Payload, Vec<String>)]) -> (Vec<u8>, Vec<Scanned>) {
    let mut bytes = codec.stream_header().to_vec();
    let mut tail = Tail::new(codec);
    let mut expected = Vec::new();
    let mut offset = 0;
    for (payload, keys) in units {
        let mut framed = Framed::default();
        framing.frame(Keyed::new(payload, keys), &mut framed).unwrap();
        let Framed { bytes: raw, lengths, .. } = framed;
        assert_eq!(lengths.len(), payload.len());
        assert_eq!(lengths.iter().sum::<u64>(), raw.len() as u64);
        let mut at = 0;
        for length in lengths {
            let end = at + usize::try_from(length).unwrap();
            expected.push(Scanned { offset: offset + at as u64, length, hash: xxh3_64(&raw[at..end]) });
            at = end;
        }
        offset += raw.len() as u64;
        let unit = codec.compress_unit(raw).unwrap();
        tail.add_unit(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
        bytes.extend(unit.bytes);
    }
    let unit = codec.compress_unit(framing.trailer().to_vec()).unwrap();
    tail.add_unit(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
    bytes.extend(unit.bytes);
    bytes.extend(tail.finish());
    (bytes, expected)
}

fn scan(framing: &dyn Framing, codec: Codec, bytes: Vec<u8>) -> shardify::Result<Vec<Scanned>> {
    let mut found = Vec::new();
    let mut input = open_shard_decoder(codec, Box::new(Cursor::new(bytes)))?;
    framing.scan(&mut input, &mut |scanned| {
        found.push(scanned);
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn what_was_framed_is_scanned() {
    for (framing, codecs) in framings() {
        for codec in codecs {
            for units in
                [vec![], vec![rows(100)], vec![samples(0, &[(0, 1), (511, 512), (513, 70_000)]), rows(3), rows(0)]]
            {
                let (bytes, expected) = shard(framing.as_ref(), *codec, &units);
                let found = scan(framing.as_ref(), *codec, bytes).unwrap();
                assert_eq!(found, expected, "{framing:?} {codec}");
            }
        }
    }
}

/// Every cut and every changed byte of an uncompressed shard is noticed or changes what is found; none panics.
#[test]
fn what_was_cut_or_changed_does_not_pass() {
    for (framing, _) in framings() {
        let units = [samples(0, &[(5, 3), (600, 0)]), rows(2)];
        let (bytes, expected) = shard(framing.as_ref(), Codec::None, &units);
        for cut in 0..bytes.len() {
            match scan(framing.as_ref(), Codec::None, bytes[..cut].to_vec()) {
                Ok(found) => assert!(found.len() < expected.len(), "{framing:?} cut at {cut}"),
                Err(e) => assert_eq!(e.kind(), Kind::Integrity, "{framing:?} cut at {cut}: {e}"),
            }
        }
        for at in 0..bytes.len() - framing.trailer().len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            if let Ok(found) = scan(framing.as_ref(), Codec::None, changed) {
                assert_ne!(found, expected, "{framing:?} changed at {at}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        for (framing, codecs) in framings() {
            for codec in codecs {
                let _ = scan(framing.as_ref(), *codec, bytes.clone());
            }
        }
    }

    #[test]
    fn any_samples_are_scanned(sizes in prop::collection::vec((0_usize..3_000, 0_usize..3_000), 1..30),
        cut in 0_usize..30) {
        for (framing, codecs) in framings() {
            for codec in codecs {
                let cut = cut.min(sizes.len());
                let units = [samples(0, &sizes[..cut]), samples(cut, &sizes[cut..])];
                let (bytes, expected) = shard(framing.as_ref(), *codec, &units);
                prop_assert_eq!(scan(framing.as_ref(), *codec, bytes).unwrap(), expected);
            }
        }
    }
}
