//! Compares spliced files with their inputs: the same rows in the same order, valid statistics and page indexes,
//! whatever wrote the inputs; and damage is rejected.

#![expect(clippy::cast_possible_truncation, reason = "any bits will do, and tests are small")]

use ::parquet::{
    arrow::{
        ArrowWriter,
        arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector},
    },
    basic::Encoding,
    file::{
        metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
    },
};
use arrow::{
    array::{
        Array, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, Float32Array,
        Float64Array, Int32Array, Int64Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
        UInt32Array,
    },
    compute::concat_batches,
    datatypes::{Field as ArrowField, Fields, Float64Type, Int32Type},
};
use bytes::Bytes;
use proptest::prelude::*;

use super::{
    bounds::ComparisonOrder,
    hybrid,
    page::{Pages, form_of},
    *,
};
use crate::{codec::Codec, error::Kind, format::parquet::corpus::oracle, format::ranged::RangedInput};

/// How a file is generated.
#[derive(Debug, Clone)]
struct Made {
    rows: usize,
    /// Approximate number of distinct values.
    range: u64,
    /// One value in this many is null; none if zero.
    nulls: u64,
    seed: u64,
    second_version: bool,
    dictionary: bool,
    small_dictionary: bool,
    codec: Codec,
    /// Maximum rows of a page and of a row group.
    page: usize,
    group: usize,
    /// Statistics: 0 none, 1 for chunks, 2 for pages, with their indexes.
    statistics: u8,
}

fn made() -> impl Strategy<Value = Made> {
    let codecs = [Codec::None, Codec::Snappy, Codec::Zstd(1), Codec::Lz4, Codec::Gzip(1)];
    let shape = (1_usize..600, 0_u32..40, 0_u64..12, any::<u64>());
    let writer = (any::<[bool; 3]>(), prop::sample::select(codecs.to_vec()), 1_usize..300, 50_usize..900, 0_u8..3);
    (shape, writer).prop_map(|((rows, bits, nulls, seed), (flags, codec, page, group, statistics))| Made {
        rows,
        range: 1 << bits,
        nulls,
        seed,
        second_version: flags[0],
        dictionary: flags[1],
        small_dictionary: flags[2],
        codec,
        page,
        group,
        statistics,
    })
}

fn table(made: &Made) -> RecordBatch {
    let mut state = made.seed | 1;
    let numbers: Vec<Option<u64>> = (0..made.rows)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let null = made.nulls > 0 && state.rotate_left(9).is_multiple_of(made.nulls);
            (!null).then_some((state >> 5) % made.range)
        })
        .collect();
    let n = || numbers.iter().copied();
    let text = |v: u64| format!("{}{v:x}", "é".repeat((v % 30) as usize));
    let float = |v: u64| match v % 13 {
        0 => 0.0,
        1 => -0.0,
        2 if made.range > 16 => f64::NAN,
        _ => v as f64 / -8.0,
    };
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(
        n().map(|v| v.map(|v| (0..v % 4).map(move |i| (i != 2).then_some(v as f64)).collect::<Vec<_>>())),
    );
    let inner: [(&str, ArrayRef); 2] = [
        ("x", Arc::new(Int32Array::from_iter(n().map(|v| v.map(|v| v as i32))))),
        ("y", Arc::new(StringArray::from_iter(n().map(|v| v.filter(|v| v % 5 > 0).map(text))))),
    ];
    let fields: Fields = inner.iter().map(|(name, a)| ArrowField::new(*name, a.data_type().clone(), true)).collect();
    let structs = StructArray::new(fields, inner.into_iter().map(|(_, array)| array).collect(), None);
    let fixed =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(n().map(|v| v.map(|v| v.to_le_bytes()[..5].to_vec())), 5)
            .unwrap();
    let words: DictionaryArray<Int32Type> =
        n().map(|v| v.map(|v| ["low", "high", "", "none"][(v % 4) as usize])).collect();
    let decimal = |scale, precision| {
        let values = n().map(|v| v.map(|v| i128::from(v % 99_999) - 50_000));
        Decimal128Array::from_iter(values).with_precision_and_scale(precision, scale).unwrap()
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from_iter(n().map(|v| v.map(|v| v & 1 == 0))))),
        ("i32", Arc::new(Int32Array::from_iter(n().map(|v| v.map(|v| v as i32 - 100))))),
        ("i64", Arc::new(Int64Array::from_iter(n().map(|v| v.map(u64::cast_signed))))),
        ("u32", Arc::new(UInt32Array::from_iter(n().map(|v| v.map(|v| (v << 31) as u32 | v as u32))))),
        ("row", Arc::new(Int64Array::from_iter_values((0..made.rows as i64).map(|i| i * 7)))),
        ("time", Arc::new(TimestampMicrosecondArray::from_iter(n().map(|v| v.map(u64::cast_signed))))),
        ("f32", Arc::new(Float32Array::from_iter(n().map(|v| v.map(|v| float(v) as f32))))),
        ("f64", Arc::new(Float64Array::from_iter(n().map(|v| v.map(float))))),
        ("text", Arc::new(StringArray::from_iter(n().map(|v| v.map(text))))),
        ("id", Arc::new(StringArray::from_iter_values((0..made.rows).map(|i| format!("{}-{i}", made.seed))))),
        (
            "maybe",
            Arc::new(StringArray::from_iter((0..made.rows).map(|i| (i % 7 > 0).then(|| format!("{}m{i}", made.seed))))),
        ),
        ("file", Arc::new(BinaryArray::from_iter(n().map(|v| v.map(|v| v.to_be_bytes()))))),
        ("fixed", Arc::new(fixed)),
        ("small", Arc::new(decimal(2, 9))),
        ("large", Arc::new(decimal(3, 30))),
        ("words", Arc::new(words)),
        ("list", Arc::new(lists)),
        ("struct", Arc::new(structs)),
    ];
    let fields: Vec<ArrowField> =
        columns.iter().map(|(name, a)| ArrowField::new(*name, a.data_type().clone(), *name != "row")).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect()).unwrap()
}

fn file(table: &RecordBatch, made: &Made) -> Bytes {
    let version = if made.second_version { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
    let statistics = [EnabledStatistics::None, EnabledStatistics::Chunk, EnabledStatistics::Page];
    let mut properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(name_of(made.codec).unwrap())
        .set_dictionary_enabled(made.dictionary)
        .set_dictionary_page_size_limit(if made.small_dictionary { 400 } else { 1 << 20 })
        .set_data_page_row_count_limit(made.page)
        .set_write_batch_size(made.page.min(64))
        .set_max_row_group_row_count(Some(made.group))
        .set_statistics_enabled(statistics[usize::from(made.statistics)])
        .set_offset_index_disabled(made.statistics < 2);
    if !made.dictionary {
        properties = properties.set_column_encoding("i64".into(), Encoding::DELTA_BINARY_PACKED);
    }
    let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties.build())).unwrap();
    writer.write(table).unwrap();
    writer.into_inner().unwrap().into()
}

fn source(bytes: &Bytes, name: &str) -> Result<Source> {
    Source::open(RangedInput::Bytes(bytes.clone()), name)?.with_indexes()
}

/// Splices files into row groups made of `at_once` row groups each.
fn spliced(files: &[Bytes], codec: Codec, at_once: usize) -> Result<(Bytes, Tally)> {
    let (mut survey, mut parts) = (Survey::default(), Vec::new());
    for (i, bytes) in files.iter().enumerate() {
        let source = Arc::new(source(bytes, &format!("{i}.parquet"))?);
        survey.add_source(&source)?;
        let groups = (0..source.row_groups().len()).filter(|group| source.row_groups()[*group].rows > 0);
        parts.extend(groups.map(|group| GroupPart::whole(&source, group)));
    }
    assembled(survey, &parts, codec, at_once)
}

fn assembled(survey: Survey, parts: &[GroupPart], codec: Codec, at_once: usize) -> Result<(Bytes, Tally)> {
    let mut tally = Tally::default();
    let encoder = survey.into_encoder(codec, |_| Vec::new())?;
    let mut shard = encoder.start_shard(Vec::new())?;
    let mut proving = Proving::default();
    for parts in parts.chunks(at_once) {
        let Some((group, more)) = splice_groups(&encoder, parts)? else {
            return Err(Error::usage("left to the decoder"));
        };
        proving.add_group(shard.append(group)?.unwrap(), || None);
        tally += more;
    }
    let out: Bytes = shard.finish()?.into();
    proving.finish(&source(&out, "spliced")?)?;
    Ok((out, tally))
}

fn rows(bytes: &Bytes) -> Result<RecordBatch> {
    let file = crate::format::parquet::open(bytes.clone(), "spliced")?;
    let schema = std::sync::Arc::clone(file.schema());
    let batches = file.into_batches(1000).collect::<Result<Vec<_>>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

fn footer(bytes: &Bytes) -> ParquetMetaData {
    ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional).parse_and_finish(bytes).unwrap()
}

/// Every bound holds for its values, as compared with the parquet crate's statistics of these values alone.
fn check_bounds(table: &RecordBatch, bytes: &Bytes) {
    let metadata = footer(bytes);
    let alone = |first: usize, rows: usize| {
        let properties = WriterProperties::builder().set_statistics_truncate_length(None).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties)).unwrap();
        writer.write(&table.slice(first, rows)).unwrap();
        footer(&writer.into_inner().unwrap().into())
    };
    let mut first = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows() as usize;
        let reference = alone(first, rows);
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let name = chunk.column_path().string();
            let order = ComparisonOrder::for_column(chunk.column_descr());
            let expected = reference.row_group(0).column(leaf).statistics().unwrap();
            let holds =
                |least: Option<&[u8]>, greatest: Option<&[u8]>, expected: &::parquet::file::statistics::Statistics| {
                    let (Some(l), Some(g)) = (expected.min_bytes_opt(), expected.max_bytes_opt()) else { return };
                    if order.is_nan(l) {
                        return;
                    }
                    assert!(least.is_none_or(|least| order.compare(least, l).is_le()), "{name}");
                    assert!(greatest.is_none_or(|greatest| order.compare(greatest, g).is_ge()), "{name}");
                };
            if let Some(found) = chunk.statistics() {
                holds(found.min_bytes_opt(), found.max_bytes_opt(), expected);
                assert!(found.null_count_opt().is_none_or(|nulls| Some(nulls) == expected.null_count_opt()), "{name}");
                // Either of the two zeros may be the bound.
                let zero = |bound: Option<&[u8]>| {
                    order == ComparisonOrder::Float && bound.is_some_and(|b| b[..b.len() - 1].iter().all(|b| *b == 0))
                };
                if found.min_is_exact() && !zero(found.min_bytes_opt()) {
                    assert_eq!(found.min_bytes_opt(), expected.min_bytes_opt(), "{name}");
                }
                if found.max_is_exact() && !zero(found.max_bytes_opt()) {
                    assert_eq!(found.max_bytes_opt(), expected.max_bytes_opt(), "{name}");
                }
            }
            assert_eq!(chunk.num_values(), reference.row_group(0).column(leaf).num_values(), "{name}");
            let Some(index) = metadata.page_index() else { continue };
            let (Some(columns), Some(offsets)) = (index.column_index(number, leaf), index.offset_index(number, leaf))
            else {
                continue;
            };
            let pages = offsets.page_locations();
            let (start, length) = chunk.byte_range();
            let last = pages.last().unwrap();
            assert_eq!((last.offset + i64::from(last.compressed_page_size)).cast_unsigned(), start + length, "{name}");
            for (page, place) in pages.iter().enumerate().step_by(1 + pages.len() / 3) {
                let begin = place.first_row_index as usize;
                let end = pages.get(page + 1).map_or(rows, |next| next.first_row_index as usize);
                let alone = alone(first + begin, end - begin);
                let expected = alone.row_group(0).column(leaf).statistics().unwrap();
                assert_eq!(columns.null_count(page), expected.null_count_opt().map(u64::cast_signed), "{name}");
                let bounds = facts::bounds_at(columns, page).filter(|_| !columns.is_null_page(page));
                holds(bounds.as_ref().map(|b| &b.0[..]), bounds.as_ref().map(|b| &b.1[..]), expected);
            }
        }
        first += rows;
    }
}

/// Rows are at the positions stated by the offset index.
fn check_offsets(table: &RecordBatch, bytes: &Bytes, seed: u64) {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes.clone(), options).unwrap();
    let (mut at, mut selectors, mut kept, mut state) = (0, Vec::new(), Vec::new(), seed | 1);
    while at < table.num_rows() {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) | 1;
        let length = (1 + state as usize % 120).min(table.num_rows() - at);
        if state & 2 == 0 {
            selectors.push(RowSelector::skip(length));
        } else {
            selectors.push(RowSelector::select(length));
            kept.push(table.slice(at, length));
        }
        at += length;
    }
    let reader = builder.with_row_selection(RowSelection::from(selectors)).build().unwrap();
    let found: Vec<RecordBatch> = reader.map(std::result::Result::unwrap).collect();
    let schema = table.schema();
    let (found, kept) = (concat_batches(&schema, &found).unwrap(), concat_batches(&schema, &kept).unwrap());
    assert_eq!(found.columns(), kept.columns());
}

/// No dictionary has a value twice, or one that no row has.
fn check_dictionaries(bytes: &Bytes) {
    let source = source(bytes, "spliced").unwrap();
    for group in source.metadata.row_groups() {
        for chunk in group.columns() {
            let (start, length) = chunk.byte_range();
            let pages = Pages::from_chunk(bytes.slice(start as usize..(start + length) as usize), chunk).unwrap();
            if pages.dictionary.is_none() {
                continue;
            }
            let mut buffer = Vec::new();
            let (page, places) = pages.inflate_dictionary(form_of(chunk).unwrap(), &mut buffer).unwrap();
            let entries: Vec<&[u8]> =
                places.windows(2).map(|place| &page[place[0] as usize..place[1] as usize]).collect();
            let different: std::collections::BTreeSet<_> = entries.iter().collect();
            assert_eq!(different.len(), entries.len(), "{}", chunk.column_path());
            let mut used = vec![false; entries.len()];
            for page in pages.data.iter().filter(|page| Pages::is_indices(page)) {
                let mut buffer = Vec::new();
                let cut = pages.cut_page(page, &mut buffer).unwrap();
                let indices = cut.packed_indices().unwrap();
                hybrid::read(indices, |some| some.iter().for_each(|i| used[*i as usize] = true));
            }
            assert!(used.iter().all(|used| *used), "{}", chunk.column_path());
        }
    }
}

fn check(files: &[Made], codec: Codec, at_once: usize) -> Tally {
    let tables: Vec<RecordBatch> = files.iter().map(table).collect();
    let bytes: Vec<Bytes> = tables.iter().zip(files).map(|(table, made)| file(table, made)).collect();
    let whole = concat_batches(&tables[0].schema(), &tables).unwrap();
    let (out, tally) = spliced(&bytes, codec, at_once).unwrap();
    let found = rows(&out).unwrap();
    for (own, expected) in found.columns().iter().zip(whole.columns()) {
        assert_eq!(own, expected);
    }
    assert_eq!(found.schema().fields(), whole.schema().fields());
    check_bounds(&whole, &out);
    check_offsets(&whole, &out, files[0].seed);
    check_dictionaries(&out);
    tally
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn files_of_all_kinds_keep_their_rows(
        files in prop::collection::vec(made(), 1..6),
        codec in prop::sample::select(vec![Codec::None, Codec::Snappy, Codec::Zstd(1), Codec::Lz4, Codec::Gzip(1)]),
        at_once in 1_usize..9,
    ) {
        check(&files, codec, at_once);
    }

    #[test]
    fn files_of_one_kind_keep_their_rows_and_are_not_decoded(
        made in made(),
        seeds in prop::collection::vec(any::<u64>(), 1..6),
        at_once in 1_usize..9,
    ) {
        let files: Vec<Made> = seeds.iter().map(|seed| Made { seed: *seed, ..made.clone() }).collect();
        let tally = check(&files, made.codec, at_once);
        let few = at_once > MAX_SMALL_PARTS;
        // Repeated values without a dictionary get one.
        prop_assert!(few || !made.dictionary || tally.reencoded == 0, "{:?}", tally);
    }

    #[test]
    fn slices_keep_their_rows_and_nothing_of_others(
        files in prop::collection::vec(made(), 1..4),
        codec in prop::sample::select(vec![Codec::None, Codec::Snappy, Codec::Zstd(1)]),
        places in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index, bool)>(), 4),
        at_once in 1_usize..4,
    ) {
        let tables: Vec<RecordBatch> = files.iter().map(table).collect();
        let (mut survey, mut parts, mut expected) = (Survey::default(), Vec::new(), Vec::new());
        for ((table, made), (one, other, even)) in tables.iter().zip(&files).zip(&places) {
            let source = Arc::new(source(&file(table, made), "x").unwrap());
            survey.add_source(&source).unwrap();
            let mut first = 0;
            for (group, size) in source.row_groups().iter().enumerate() {
                let rows = size.rows as usize;
                // Of pages, if the writer has cut them where it should.
                let place = |at: &prop::sample::Index| match even {
                    true => (at.index(rows.div_ceil(made.page) + 1) * made.page).min(rows),
                    false => at.index(rows + 1),
                };
                let (start, end) = (place(one).min(place(other)), place(one).max(place(other)));
                if start < end {
                    parts.push(GroupPart::whole(&source, group).slice(start as u64..end as u64));
                    expected.push(table.slice(first + start, end - start));
                }
                first += rows;
            }
        }
        if parts.is_empty() {
            return Ok(());
        }
        let whole = concat_batches(&tables[0].schema(), &expected).unwrap();
        let (out, _) = assembled(survey.with_decoded_rows(), &parts, codec, at_once).unwrap();
        let found = rows(&out).unwrap();
        for (own, expected) in found.columns().iter().zip(whole.columns()) {
            prop_assert_eq!(own, expected);
        }
        check_bounds(&whole, &out);
        check_offsets(&whole, &out, files[0].seed);
        check_dictionaries(&out);
    }

    #[test]
    fn damage_is_refused_or_harmless(made in made(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let made = Made { rows: made.rows.min(60), ..made };
        let whole = file(&table(&made), &made);
        let mut damaged = whole.to_vec();
        let at = at.index(damaged.len());
        damaged[at] ^= 1 << bit;
        match spliced(&[whole.clone(), damaged.into(), whole], made.codec, 3) {
            // Without checksums values may be wrong, which a reader may detect later.
            Ok((out, _)) => prop_assert!(rows(&out).map_or(true, |rows| rows.num_rows() == 3 * made.rows)),
            Err(error) => prop_assert!(matches!(error.kind(),
                Kind::Input | Kind::Integrity | Kind::Usage | Kind::Internal), "{error}"),
        }
    }
}

/// Every change of a page after it was made is detected.
#[test]
fn verification_detects_every_flipped_bit() {
    let made = Made {
        rows: 500,
        range: 90,
        nulls: 5,
        seed: 5,
        second_version: false,
        dictionary: true,
        small_dictionary: false,
        codec: Codec::Snappy,
        page: 100,
        group: 250,
        statistics: 2,
    };
    let bytes = file(&table(&made), &made);
    let source = Arc::new(source(&bytes, "x").unwrap());
    let mut survey = Survey::default();
    survey.add_source(&source).unwrap();
    let encoder = survey.into_encoder(Codec::Snappy, |_| Vec::new()).unwrap();
    let parts: Vec<_> = (0..2).map(|group| GroupPart::whole(&source, group)).collect();
    let (group, _) = splice_groups(&encoder, &parts).unwrap().unwrap();
    let mut shard = encoder.start_shard(Vec::new()).unwrap();
    let note = shard.append(group).unwrap().unwrap();
    let out = shard.finish().unwrap();
    let proven = |bytes: Vec<u8>| {
        let file = Source::open(RangedInput::Bytes(bytes.into()), "y")?;
        let mut proving = Proving::default();
        proving.add_group(note.clone(), || None);
        proving.finish(&file)
    };
    proven(out.clone()).unwrap();
    let metadata = footer(&out.clone().into());
    for chunk in metadata.row_group(0).columns() {
        let (start, length) = chunk.byte_range();
        for at in (start..start + length).step_by(7) {
            let mut damaged = out.clone();
            damaged[at as usize] ^= 1 << (at % 8);
            assert_eq!(proven(damaged).unwrap_err().kind(), Kind::Integrity, "byte {at}");
        }
    }
}

#[test]
fn a_file_that_is_followed_is_compared_like_a_complete_one() {
    let values = |first: i64| (first..first + 600_000).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()));
    let numbers = |first: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(values(first))) };
    let inputs: Vec<Bytes> = [0, 600_000].map(|first| plain_file(&batch([("n", numbers(first))]))).to_vec();
    let (mut survey, mut parts) = (Survey::default(), Vec::new());
    for input in &inputs {
        let source = Arc::new(source(input, "x").unwrap());
        survey.add_source(&source).unwrap();
        parts.push(GroupPart::whole(&source, 0));
    }
    let encoder = survey.into_encoder(Codec::None, |_| Vec::new()).unwrap();
    let mut shard = encoder.start_shard(Vec::new()).unwrap();
    let notes: Vec<GroupNote> = parts
        .iter()
        .map(|part| {
            shard.append(splice_groups(&encoder, std::slice::from_ref(part)).unwrap().unwrap().0).unwrap().unwrap()
        })
        .collect();
    let out = shard.finish().unwrap();
    let file = source(&out.clone().into(), "y").unwrap();
    let proven = |read: &[u8], notes: &[GroupNote], followed: &mut u32| {
        let mut proving = Proving::default();
        for note in notes {
            let read = read.to_vec();
            proving.add_group(note.clone(), || {
                *followed += 1;
                Some(Box::new(std::io::Cursor::new(read)))
            });
        }
        proving.finish(&file)
    };
    let mut followed = 0;
    proven(&out, &notes, &mut followed).unwrap();
    assert_eq!(followed, 1);
    // Both row groups are compared, the one before the thread started as well.
    for at in [1000, 3_000_000, 9_000_000] {
        let mut damaged = out.clone();
        damaged[at] ^= 1;
        assert_eq!(proven(&damaged, &notes, &mut followed).unwrap_err().kind(), Kind::Integrity);
    }
    assert_eq!(proven(&out[..9_000_000], &notes, &mut followed).unwrap_err().kind(), Kind::Integrity);
    // The footer has to name the places that were read.
    let swapped = [notes[1].clone(), notes[0].clone()];
    assert_eq!(proven(&out, &swapped, &mut followed).unwrap_err().kind(), Kind::Integrity);
    assert_eq!(proven(&out, &notes[..1], &mut followed).unwrap_err().kind(), Kind::Integrity);
}

/// A file of one row group, without dictionaries and without compression.
fn plain_file(batch: &RecordBatch) -> Bytes {
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    out.into()
}

fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
}

#[test]
fn columns_that_changed_are_encoded_anew_and_the_others_are_not() {
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..2000).map(|i| format!("t{}", i % 50))));
    let old = batch([("a", Arc::new(Int32Array::from_iter_values(0..2000))), ("b", Arc::clone(&text))]);
    let new = batch([
        ("b", text),
        ("c", Arc::new(Float64Array::from_iter_values((0..2000).map(f64::from)))),
        ("a", Arc::new(Int64Array::from_iter_values((0..2000).map(|i| i << 33)))),
    ]);
    let made = Made {
        rows: 0,
        range: 0,
        nulls: 0,
        seed: 0,
        second_version: false,
        dictionary: true,
        small_dictionary: false,
        codec: Codec::Snappy,
        page: 1000,
        group: 100_000,
        statistics: 1,
    };
    let (out, tally) = spliced(&[file(&old, &made), file(&new, &made)], Codec::Snappy, 2).unwrap();
    let found = rows(&out).unwrap();
    let names: Vec<_> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let a: Vec<i64> = (0..2000).chain((0..2000).map(|i| i << 33)).collect();
    assert_eq!(found.column(0).as_ref(), &Int64Array::from(a) as &dyn Array);
    assert_eq!(found.column(2).null_count(), 2000);
    assert!(tally.reencoded > 0 && tally.copied + tally.spliced > 0, "{tally:?}");
}

#[test]
fn unique_values_become_pages_without_a_dictionary_and_common_ones_share_one() {
    let made = |seed| Made {
        rows: 3000,
        range: 100,
        nulls: 7,
        seed,
        second_version: false,
        dictionary: true,
        small_dictionary: false,
        codec: Codec::Snappy,
        page: 100_000,
        group: 100_000,
        statistics: 1,
    };
    for dictionary in [true, false] {
        let files: Vec<Made> = (1..9).map(|seed| Made { dictionary, ..made(seed) }).collect();
        let bytes: Vec<Bytes> = files.iter().map(|made| file(&table(made), made)).collect();
        let (out, _) = spliced(&bytes, Codec::Snappy, 8).unwrap();
        let file = source(&out, "out").unwrap();
        let group = file.metadata.row_group(0);
        let encodings = |name: &str| {
            let chunk = group.columns().iter().find(|c| c.column_path().string() == name).unwrap();
            let (start, length) = chunk.byte_range();
            let pages = Pages::from_chunk(out.slice(start as usize..(start + length) as usize), chunk).unwrap();
            (pages.dictionary.is_some(), pages.data.iter().map(|page| page.header.encoding).collect::<Vec<_>>())
        };
        for unique in ["id", "maybe"] {
            assert_eq!(encodings(unique), (false, vec![0; 8]), "{unique}");
        }
        // Of values written without a dictionary, only texts and numbers get one.
        let common = if dictionary { vec!["i32", "text", "f64", "fixed", "words"] } else { vec!["i32", "text", "f64"] };
        for common in common {
            // Pages of few indices are joined.
            assert_eq!(encodings(common), (true, vec![8]), "{common}");
        }
    }
}

#[test]
fn compressed_dictionaries_of_values_that_seldom_repeat_are_expanded() {
    let words = ["asleep", "stable", "no change", "review in the morning", "discharged"];
    let text = |i: u64| {
        let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{} {mixed:x} {}", words[(mixed % 5) as usize], words[(mixed >> 32) as usize % 5])
    };
    let made = |first: u64, rows: u64| {
        // Some values occur again, a few rows or thousands of rows later, and a null is among the first.
        let value = |i: u64| text(first + if i % 100 == 99 { i / 3 } else { i });
        let column = StringArray::from_iter((0..rows).map(|i| (i != 3).then(|| value(i))));
        let table = batch([("note", Arc::new(column))]);
        let properties = WriterProperties::builder()
            .set_compression(::parquet::basic::Compression::SNAPPY)
            .set_dictionary_page_size_limit(8 << 20)
            .set_data_page_row_count_limit(2500)
            .build();
        let mut out = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut out, table.schema(), Some(properties)).unwrap();
        writer.write(&table).unwrap();
        writer.close().unwrap();
        (table, Bytes::from(out))
    };
    // The second dictionary is smaller, and the buffer has bytes of the first one after it.
    let inputs = [made(0, 6000), made(10_000, 3000), made(20_000, 7000)];
    let files: Vec<Bytes> = inputs.iter().map(|(_, bytes)| bytes.clone()).collect();
    let (out, tally) = spliced(&files, Codec::Snappy, 3).unwrap();
    let tables: Vec<RecordBatch> = inputs.iter().map(|(table, _)| table.clone()).collect();
    assert_eq!(rows(&out).unwrap(), concat_batches(&tables[0].schema(), &tables).unwrap());
    assert!(tally.spliced > 0 && tally.copied + tally.reencoded == 0, "{tally:?}");
    for bytes in &files {
        let metadata = footer(bytes);
        let chunk = metadata.row_group(0).column(0);
        let (start, length) = chunk.byte_range();
        let pages = Pages::from_chunk(bytes.slice(start as usize..(start + length) as usize), chunk).unwrap();
        let elements = pages.stored_body(pages.dictionary.as_ref().unwrap());
        let beginning = &elements[4..400];
        assert!(out.windows(beginning.len()).any(|some| some == beginning));
    }
}

/// Splices each readable file of the corpus with itself.
#[test]
fn the_corpus_keeps_its_rows() {
    let mut surprises = Vec::new();
    for (path, expected) in oracle() {
        let name = path.display().to_string();
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        let (Some(count), Ok(once)) = (expected.filter(|rows| (1..200_000).contains(rows)), rows(&bytes)) else {
            // Without an expected result, the file must be rejected and not panic.
            let _ = spliced(&[bytes.clone(), bytes], Codec::Snappy, 100);
            continue;
        };
        let codec = crate::format::parquet::open(bytes.clone(), "x").unwrap().codec();
        match spliced(&[bytes.clone(), bytes], codec, 100) {
            Ok((out, _)) => {
                let twice = concat_batches(&once.schema(), [&once, &once]).unwrap();
                match rows(&out) {
                    Ok(found) if found.num_rows() as u64 != 2 * count || found.columns() != twice.columns() => {
                        surprises.push(format!("{name}: other rows"));
                    }
                    Ok(_) => {}
                    Err(error) => surprises.push(format!("{name}: {error}")),
                }
            }
            Err(error) if error.kind() == Kind::Usage => {}
            // The decoder does not verify checksums; copying must.
            Err(_) if name.ends_with("corrupt-checksum.parquet") => {}
            Err(error) => surprises.push(format!("{name}: {error:?}")),
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn filters_of_several_row_groups_become_one_of_all_values() {
    use ::parquet::bloom_filter::Sbbf;
    let properties =
        WriterProperties::builder().set_bloom_filter_enabled(true).set_max_row_group_row_count(Some(700)).build();
    let ids =
        |range: Range<i64>| -> ArrayRef { Arc::new(StringArray::from_iter_values(range.map(|i| format!("p{i}")))) };
    let files: Vec<Bytes> = (0..3)
        .map(|k| {
            let numbers: ArrayRef =
                Arc::new(Int64Array::from_iter((0..2000).map(|i| (i % 3 > 0).then_some(i % 40 + k))));
            let table = batch([("id", ids(k * 2000..(k + 1) * 2000)), ("n", numbers)]);
            let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties.clone())).unwrap();
            writer.write(&table).unwrap();
            writer.into_inner().unwrap().into()
        })
        .collect();
    let (out, tally) = spliced(&files, Codec::Zstd(1), 100).unwrap();
    assert_eq!(tally.reencoded, 0);
    let metadata = footer(&out);
    let filter = |leaf: usize| {
        let chunk = metadata.row_group(0).column(leaf);
        Sbbf::read_from_column_chunk(chunk, &RangedInput::Bytes(out.clone())).unwrap().unwrap()
    };
    assert_eq!(metadata.num_row_groups(), 1);
    let (texts, numbers) = (filter(0), filter(1));
    assert!((0..6000).all(|i| texts.check(format!("p{i}").as_str())));
    assert!((0..42).all(|n: i64| numbers.check(&n)));
    let mistakes = (6000..16_000).filter(|i| texts.check(format!("p{i}").as_str())).count();
    assert!(mistakes < 300, "{mistakes}");
    assert!(numbers.num_blocks() < texts.num_blocks() / 8);
}

#[test]
fn a_filter_of_a_slice_has_its_values_alone() {
    use ::parquet::bloom_filter::Sbbf;
    let properties = WriterProperties::builder()
        .set_bloom_filter_enabled(true)
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .build();
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..6000).map(|i| format!("p{i}"))));
    let table = batch([("id", ids)]);
    let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties)).unwrap();
    writer.write(&table).unwrap();
    let source = Arc::new(source(&writer.into_inner().unwrap().into(), "x").unwrap());
    let mut survey = Survey::default();
    survey.add_source(&source).unwrap();
    let part = GroupPart::whole(&source, 0).slice(1500..3000);
    let (out, tally) = assembled(survey, &[part], Codec::Zstd(1), 1).unwrap();
    assert_eq!((rows(&out).unwrap().num_rows(), tally.reencoded), (1500, 0));
    let input = RangedInput::Bytes(out.clone());
    let filter = Sbbf::read_from_column_chunk(footer(&out).row_group(0).column(0), &input).unwrap().unwrap();
    assert!((1500..3000).all(|i| filter.check(format!("p{i}").as_str())));
    let others = (0..1500).chain(3000..6000).filter(|i| filter.check(format!("p{i}").as_str())).count();
    assert!(others < 150, "{others}");
}

#[test]
fn row_groups_are_called_sorted_when_each_continues_the_one_before() {
    use ::parquet::file::metadata::SortingColumn;
    let file = |values: Vec<Option<i64>>, by: &[(i32, bool, bool)]| -> Bytes {
        let column = |c: &(i32, bool, bool)| SortingColumn { column_idx: c.0, descending: c.1, nulls_first: c.2 };
        let sorting = (!by.is_empty()).then(|| by.iter().map(column).collect());
        let properties = WriterProperties::builder().set_sorting_columns(sorting).build();
        let numbers: ArrayRef = Arc::new(Int64Array::from(values));
        let table = batch([("n", Arc::clone(&numbers)), ("m", numbers)]);
        let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties)).unwrap();
        writer.write(&table).unwrap();
        writer.into_inner().unwrap().into()
    };
    let some = |values: &[i64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    let (up, down, both) = ([(0, false, true)], [(0, true, true)], [(0, false, true), (1, false, true)]);
    let with_null = |mut values: Vec<Option<i64>>| {
        values.insert(0, None);
        values
    };
    for (number, (files, kept)) in [
        (vec![file(some(&[1, 2]), &up), file(some(&[2, 3]), &up)], true),
        (vec![file(some(&[1, 2]), &both), file(some(&[2, 3]), &both)], false),
        (vec![file(some(&[1, 2]), &both), file(some(&[3, 3]), &both)], true),
        (vec![file(some(&[1, 4]), &up), file(some(&[2, 3]), &up)], false),
        (vec![file(some(&[4, 3]), &down), file(some(&[3, 1]), &down)], true),
        (vec![file(some(&[4, 3]), &down), file(some(&[4, 1]), &down)], false),
        (vec![file(some(&[1, 2]), &up), file(some(&[2, 3]), &[])], false),
        (vec![file(some(&[1, 2]), &up), file(some(&[3, 2]), &down)], false),
        (vec![file(with_null(some(&[1, 2])), &up), file(some(&[2, 3]), &up)], true),
        (vec![file(some(&[1, 2]), &up), file(with_null(some(&[2, 3])), &up)], false),
    ]
    .into_iter()
    .enumerate()
    {
        let (out, _) = spliced(&files, Codec::Snappy, 100).unwrap();
        let group = footer(&out).row_group(0).clone();
        assert_eq!(group.sorting_columns().is_some(), kept, "{number}: {:?}", group.sorting_columns());
    }
}
