//! Shards that we write, as read by an independent reader and by our scan, whole and damaged.

use std::sync::Arc;

use arrow::{
    array::{Int64Array, StringArray},
    datatypes::{DataType, Field, Schema},
};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    codec::checksum::xxh3_64,
    error::Kind,
    format::{Parsed, RecordReader},
    record::Part,
};

/// One sample: its key, and its parts as extension and content.
type Plain = (String, Vec<(String, Vec<u8>)>);

fn payload(samples: &[Plain]) -> (Payload, Vec<String>) {
    let sample = |(key, parts): &Plain| Sample {
        key: key.clone(),
        origin: key.clone(),
        subject: None,
        parts: parts
            .iter()
            .map(|(extension, bytes)| Part { extension: extension.clone(), bytes: Bytes::from(bytes.clone()) })
            .collect(),
    };
    (Payload::Samples(samples.iter().map(sample).collect()), samples.iter().map(|(key, _)| key.clone()).collect())
}

/// Returns the whole shard and the length of each record.
fn shard(samples: &[Plain]) -> (Vec<u8>, Vec<u64>) {
    let (payload, keys) = payload(samples);
    let (mut out, lengths) = framed(&payload, &keys).unwrap();
    assert_eq!(lengths.iter().sum::<u64>(), out.len() as u64);
    out.extend_from_slice(TarFraming.trailer());
    (out, lengths)
}

fn one(key: &str, extension: &str, content: &[u8]) -> Plain {
    (key.to_owned(), vec![(extension.to_owned(), content.to_vec())])
}

/// Returns the bytes of the records and the length of each.
fn framed(payload: &Payload, keys: &[String]) -> Result<(Vec<u8>, Vec<u64>)> {
    let mut framed = Framed::default();
    TarFraming.frame(Keyed::new(payload, keys), &mut framed)?;
    Ok((framed.bytes, framed.lengths))
}

fn frame_error(samples: &[Plain]) -> Error {
    let (payload, keys) = payload(samples);
    framed(&payload, &keys).unwrap_err()
}

fn scan(bytes: &[u8]) -> Result<Vec<Scanned>> {
    let mut found = Vec::new();
    let mut input = bytes;
    TarFraming.scan(&mut input, &mut |record| {
        found.push(record);
        Ok(())
    })?;
    Ok(found)
}

fn expected_scan(bytes: &[u8], lengths: &[u64]) -> Vec<Scanned> {
    let mut offset = 0;
    lengths
        .iter()
        .map(|&length| {
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            let scanned = Scanned { offset, length, hash: xxh3_64(&bytes[range]) };
            offset += length;
            scanned
        })
        .collect()
}

/// Returns names and contents as the `tar` crate reads them.
fn oracle(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = ::tar::Archive::new(bytes);
    archive
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!(header.mtime().unwrap(), 0);
            assert_eq!(header.uid().unwrap(), 0);
            assert_eq!(header.gid().unwrap(), 0);
            assert_eq!(header.mode().unwrap(), 0o644);
            assert_eq!(header.username().unwrap(), Some(""));
            assert_eq!(header.entry_type(), ::tar::EntryType::Regular);
            assert!(header.as_ustar().is_some());
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert_eq!(entry.size(), content.len() as u64);
            (name, content)
        })
        .collect()
}

fn flat(samples: &[Plain]) -> Vec<(String, Vec<u8>)> {
    samples
        .iter()
        .flat_map(|(key, parts)| parts.iter().map(move |(e, content)| (format!("{key}.{e}"), content.clone())))
        .collect()
}

#[test]
fn members_cost_one_header_and_padding() {
    for size in [0, 1, 511, 512, 513, 1024, 100_000] {
        let (bytes, lengths) = shard(&[one("a", "bin", &vec![7; size])]);
        assert_eq!(lengths, [512 + size.next_multiple_of(512) as u64]);
        assert_eq!(bytes.len() as u64, lengths[0] + 1024);
        assert_eq!(oracle(&bytes), [("a.bin".to_owned(), vec![7; size])]);
    }
}

#[test]
fn names_of_any_length_are_read_in_full() {
    let deep = |parts: usize, length: usize| vec!["d".repeat(length); parts].join("/");
    // Keys, and whether `key.txt` fits a ustar header.
    let keys = [
        ("k".repeat(96), true),
        ("k".repeat(97), false),
        ("k".repeat(300), false),
        ("k".repeat(60_000), false),
        (format!("{}/{}", "p".repeat(155), "n".repeat(96)), true),
        (format!("{}/{}", "p".repeat(156), "n".repeat(96)), false),
        (format!("{}/{}", "p".repeat(155), "n".repeat(97)), false),
        (deep(24, 9), true),
        (deep(25, 9), false),
        (deep(30, 9), false),
        (deep(5, 40), true),
        ("größe/šířka-長さ".to_owned(), true),
        ("ß".repeat(48), true),
        ("ß".repeat(49), false),
        ("長".repeat(200), false),
        (format!("{}/{}", "長".repeat(51), "ö".repeat(48)), true),
        (format!("{}{}/{}", "a".repeat(95), "/b".repeat(3), "c".repeat(150)), false),
    ];
    let samples: Vec<Plain> = keys.iter().map(|(key, _)| one(key, "txt", key.as_bytes())).collect();
    let (bytes, lengths) = shard(&samples);
    assert_eq!(oracle(&bytes), flat(&samples));
    assert_eq!(scan(&bytes).unwrap(), expected_scan(&bytes, &lengths));
    for ((key, fits), length) in keys.iter().zip(&lengths) {
        let plain = 512 + key.len().next_multiple_of(512) as u64;
        assert_eq!(*length == plain, *fits, "{key}");
    }
}

#[test]
fn rows_become_one_json_member() {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8, true)]);
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from(vec![1, 2])),
            Arc::new(StringArray::from(vec![Some("x".repeat(600)), Some("y".to_owned())])),
        ],
    )
    .unwrap();
    let mut rows = Vec::new();
    for row in 0..2 {
        let mut json = Vec::new();
        RowJson::new(&batch).write_row(row, &mut json);
        rows.push(json);
    }
    let keys = ["r/1".to_owned(), "k".repeat(200)];
    let (mut out, lengths) = framed(&Payload::Rows(batch), &keys).unwrap();
    out.extend_from_slice(TarFraming.trailer());
    let expected = [("r/1.json".to_owned(), rows[0].clone()), (format!("{}.json", keys[1]), rows[1].clone())];
    assert_eq!(oracle(&out), expected);
    assert_eq!(scan(&out).unwrap(), expected_scan(&out, &lengths));
}

#[test]
fn keys_that_readers_would_merge_or_skip_are_errors() {
    let twice = frame_error(&[one("a", "x", b""), one("b/c", "x", b""), one("b/c", "x", b"")]);
    assert_eq!(twice.kind(), Kind::Input);
    assert!(twice.message().contains("`b/c`"));
    for key in ["__MACOSX__/a", "__x__/y/z", "____/a"] {
        assert_eq!(frame_error(&[one(key, "x", b"")]).kind(), Kind::Input, "{key}");
    }
    assert_eq!(frame_error(&[one("__a", "b__", b"")]).kind(), Kind::Input);
    assert_eq!(shard(&[one("__a__", "x", b""), one("__a/b__", "x", b"")]).1.len(), 2);
    assert_eq!(frame_error(&[one(&"k".repeat(70_000), "x", b"")]).kind(), Kind::Input);
    for key in ["", "a/", "/a", "scan.v1", "a/b.c", "a\0b", "a\0/b"] {
        assert_eq!(frame_error(&[one(key, "x", b"")]).kind(), Kind::Internal, "{key:?}");
    }
    assert_eq!(frame_error(&[("a".to_owned(), vec![])]).kind(), Kind::Internal);
    let (payload, _) = payload(&[one("a", "x", b"")]);
    assert_eq!(framed(&payload, &[]).unwrap_err().kind(), Kind::Internal);
}

fn small_shard() -> (Vec<u8>, Vec<u64>) {
    let two = |key: &str| (key.to_owned(), vec![("a".to_owned(), vec![1; 10]), ("b.c".to_owned(), vec![2; 512])]);
    shard(&[two("x/1"), two(&"long".repeat(40)), one("x/2", "empty", b""), two("x.d/2")])
}

#[test]
fn members_of_a_record_are_listed_with_their_offsets() {
    let (bytes, lengths) = small_shard();
    let mut offset = 0;
    let mut found = Vec::new();
    for length in lengths {
        let record = &bytes[offset..offset + usize::try_from(length).unwrap()];
        for member in record_members(record) {
            let member = member.unwrap();
            let start = usize::try_from(member.data_offset).unwrap();
            assert_eq!(start % 512, 0);
            found.push((member.name, record[start..start + usize::try_from(member.size).unwrap()].to_vec()));
        }
        for cut in 1..record.len() {
            let last = record_members(&record[..cut]).last().unwrap();
            assert!(last.is_err() || record_members(&record[..cut]).count() < record_members(record).count());
        }
        offset += record.len();
    }
    assert_eq!(found, oracle(&bytes));
}

#[test]
fn flipped_bytes_in_a_header_are_detected() {
    let (bytes, _) = small_shard();
    let intact = scan(&bytes).unwrap();
    let mut offset = 0;
    let mut headers = Vec::new();
    let mut name = Vec::new();
    while let header::Head::Member { length, size } =
        match header::parse_headers(&bytes[offset..bytes.len() - 1024], &mut name).unwrap() {
            header::Head::Needs(more) if offset + 1024 < bytes.len() => {
                assert!(more <= 4096);
                header::parse_headers(&bytes[offset..], &mut name).unwrap()
            }
            head => head,
        }
    {
        headers.push((offset, length));
        offset += length + usize::try_from(size).unwrap().next_multiple_of(512);
    }
    assert_eq!(headers.len(), 7);
    for (start, length) in headers {
        let blocks = if length == 512 { vec![start] } else { vec![start, start + length - 512] };
        for at in blocks.into_iter().flat_map(|block| block..block + 512) {
            for flip in [1, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let error = scan(&damaged).unwrap_err();
                assert_eq!(error.kind(), Kind::Integrity, "{at}");
                assert!(error.place().byte.is_some());
            }
        }
    }
    // Any other changed byte is an error or changes a hash.
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        assert!(scan(&damaged).map_or(true, |found| found != intact), "{at}");
    }
}

#[test]
fn truncation_and_trailing_bytes_are_detected() {
    let (bytes, lengths) = small_shard();
    for length in 0..bytes.len() {
        let error = scan(&bytes[..length]).unwrap_err();
        assert_eq!(error.kind(), Kind::Integrity);
        assert_eq!(error.place().byte, Some(length as u64), "{length}: {error}");
    }
    let mut longer = bytes.clone();
    longer.extend_from_slice(&[0; 10_240]);
    assert_eq!(scan(&longer).unwrap(), expected_scan(&bytes, &lengths));
    longer.push(1);
    assert_eq!(scan(&longer).unwrap_err().place().byte, Some(longer.len() as u64 - 1));
    assert_eq!(scan(TarFraming.trailer()).unwrap(), []);
}

#[test]
fn headers_that_shardify_never_writes_are_errors() {
    let other = |edit: &dyn Fn(&mut ::tar::Header)| {
        let mut header = ::tar::Header::new_ustar();
        header.set_path("a.txt").unwrap();
        header.set_size(0);
        header.set_entry_type(::tar::EntryType::Regular);
        edit(&mut header);
        header.set_cksum();
        let sum = header.cksum().unwrap();
        header.as_mut_bytes()[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        [&header.as_bytes()[..], &[0; 1024]].concat()
    };
    assert_eq!(scan(&other(&|_| {})).unwrap().len(), 1);
    for bytes in [
        other(&|h| h.set_entry_type(::tar::EntryType::Symlink)),
        other(&|h| h.set_entry_type(::tar::EntryType::GNULongName)),
        other(&|h| h.set_path("noextension").unwrap()),
        other(&|h| h.set_path(".hidden").unwrap()),
        other(&|h| h.as_mut_bytes()[124..136].copy_from_slice(b"zzzzzzzzzzz\0")),
        other(&|h| h.as_mut_bytes()[124..136].copy_from_slice(b"77777777777\0")),
        other(&|h| h.as_mut_bytes()[124] = 0x80),
        other(&|h| h.as_mut_bytes()[257..265].copy_from_slice(b"ustar  \0")),
        {
            let mut bytes = other(&|h| h.set_entry_type(::tar::EntryType::XHeader));
            let again = bytes[..512].to_vec();
            bytes.splice(512..512, again);
            bytes
        },
        other(&|h| {
            h.set_entry_type(::tar::EntryType::XHeader);
            h.as_mut_bytes()[124..136].copy_from_slice(b"77777777777\0");
        }),
    ] {
        assert_eq!(scan(&bytes).unwrap_err().kind(), Kind::Integrity);
    }
}

fn no_columns() -> arrow::datatypes::SchemaRef {
    Arc::new(Schema::empty())
}

/// Returns the samples of a shard from the reader of foreign archives.
fn read_back(bytes: &[u8]) -> Vec<Plain> {
    let mut found = Vec::new();
    for range in TarReader::new().ranges(Box::new(bytes), 4000, 1 << 20) {
        let Parsed::Block(block) = TarReader::new().parse(&range.unwrap(), &no_columns()).unwrap() else { panic!() };
        assert_eq!(block.rejects, []);
        let Payload::Samples(samples) = block.payload else { panic!("rows") };
        let plain = |part: Part| (part.extension, part.bytes.to_vec());
        found.extend(samples.into_iter().map(|s| (s.key, s.parts.into_iter().map(plain).collect())));
    }
    found
}

fn samples() -> impl Strategy<Value = Vec<Plain>> {
    let key =
        prop_oneof!["[a-zäß0-9_-]{1,12}(/[a-zA-Z0-9 ü]{1,40}){0,6}", "[a-z]{90,270}", "[a-z]{1,160}/[a-z]{80,110}",];
    let parts =
        prop::collection::btree_map("[a-z]{1,4}(\\.[a-z]{1,3})?", prop::collection::vec(any::<u8>(), 0..1500), 1..4);
    prop::collection::vec((key, parts), 0..8).prop_map(|samples| {
        let mut samples: Vec<Plain> =
            samples.into_iter().map(|(key, parts)| (key, parts.into_iter().collect())).collect();
        samples.retain(|(key, _)| !key.starts_with("__"));
        samples.dedup_by(|a, b| a.0 == b.0);
        samples
    })
}

proptest! {
    #[test]
    fn samples_are_read_as_they_were_written(samples in samples()) {
        let (bytes, lengths) = shard(&samples);
        prop_assert_eq!(oracle(&bytes), flat(&samples));
        prop_assert_eq!(scan(&bytes).unwrap(), expected_scan(&bytes, &lengths));
        prop_assert_eq!(read_back(&bytes), samples);
    }

    #[test]
    fn framing_in_two_steps_gives_the_same_bytes(samples in samples(), cut in any::<prop::sample::Index>()) {
        let cut = if samples.is_empty() { 0 } else { cut.index(samples.len()) };
        let (whole, _) = shard(&samples);
        let (first, _) = shard(&samples[..cut]);
        let (second, _) = shard(&samples[cut..]);
        prop_assert_eq!(whole, [&first[..first.len() - 1024], &second[..]].concat());
    }

    #[test]
    fn no_bytes_make_the_scan_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let _ = scan(&bytes);
        let (mut shard, _) = small_shard();
        for (at, value) in edits {
            let at = at.index(shard.len());
            shard[at] = value;
        }
        let _ = scan(&shard);
        let _ = record_members(&shard).count();
        for bytes in [&bytes, &shard] {
            let reader = TarReader::new();
            let ranges = reader.ranges(Box::new(&bytes[..]), 1000, 1 << 20);
            ranges.map_while(Result::ok).for_each(|range| drop(TarReader::new().parse(&range, &no_columns()).unwrap()));
        }
    }
}
