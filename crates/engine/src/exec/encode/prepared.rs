//! Records that are encoded in another order than they are read in: each row has everything that the encoder needs of
//! it.
//!
//! ```text
//! split | rank | data: the columns of the shard, or the framed record and its key | sidecar row | record number
//! ```
//!
//! Ids, names and hashes are computed while the records still have the order of the input, because they come from their
//! sources.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, RecordBatchOptions, StringArray, UInt8Array,
        UInt64Array, new_null_array,
    },
    buffer::{Buffer, OffsetBuffer},
    compute::concat_batches,
    datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, UInt64Type},
};

use super::{
    Body, EncodeUnit, Encoded, Encoder, IdTexts, KnownColumns, Names, Output, SourceBatch, check_neighbours,
    no_columns, sidecar_rows,
};
use crate::{
    dataset::{IdHashes, IdKind, SidecarColumns, SidecarGroups, sidecar_schema},
    error::{Error, Result},
    exec::source::SourceName,
    format::{Framing, parquet::batch_of_samples, tar::places::MemberPlaces},
    record::{
        Payload,
        coded::plain_batch,
        numbers::Numbers,
        shuffle::{RowRanks, rank_of_sample},
        split::Split,
    },
};

/// Columns of prepared records.
#[derive(Debug)]
pub struct Layout {
    data: SchemaRef,
    all: SchemaRef,
    /// Columns of the sidecar.
    sidecar: SchemaRef,
    /// How records of any source are called here: their own names are in their sidecar rows.
    source: Arc<SourceName>,
}

/// Columns of a sidecar that prepared records have: all but offset and length, which follow from where they will be.
const OWN: [usize; 5] = [0, 1, 4, 5, 6];

/// Column of fingerprints, if sidecars have it.
const FINGERPRINTS: usize = 7;

fn own_sidecar(fingerprints: bool) -> SchemaRef {
    let all = sidecar_schema(fingerprints);
    let own = OWN.into_iter().chain(fingerprints.then_some(FINGERPRINTS));
    Arc::new(Schema::new(own.map(|column| Arc::clone(&all.fields()[column])).collect::<Fields>()))
}

/// Returns sidecar rows of prepared records with all columns.
fn whole_sidecar(own: &RecordBatch) -> Result<RecordBatch> {
    let fingerprints = own.num_columns() > OWN.len();
    let column = |column: usize| match OWN.iter().position(|own| *own == column) {
        Some(at) => Arc::clone(own.column(at)),
        None if column == FINGERPRINTS => Arc::clone(own.column(OWN.len())),
        None => Arc::new(UInt64Array::new_null(own.num_rows())) as ArrayRef,
    };
    let all = sidecar_schema(fingerprints);
    Ok(RecordBatch::try_new(Arc::clone(&all), (0..all.fields().len()).map(column).collect())?)
}

/// Columns before those of the data: split, and the two halves of the rank.
const KEYS: usize = 3;

impl Layout {
    fn new(data: SchemaRef, fingerprints: bool) -> Self {
        let number = |name: &str| -> FieldRef { Arc::new(Field::new(name, DataType::UInt64, false)) };
        let split: FieldRef = Arc::new(Field::new("split", DataType::UInt8, false));
        let keys = [split, number("rank_high"), number("rank_low")];
        let sidecar = own_sidecar(fingerprints);
        let fields = keys.into_iter().chain(data.fields().iter().cloned()).chain(sidecar.fields().iter().cloned());
        let all = Arc::new(Schema::new(fields.chain([number("record")]).collect::<Fields>()));
        let source = SourceName { name: String::new(), key: String::new(), columns: None, subject: None };
        Self { data, all, sidecar, source: Arc::new(source) }
    }

    fn has_fingerprints(&self) -> bool {
        self.sidecar.fields().len() > OWN.len()
    }

    /// Returns all columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.all
    }

    /// Returns the columns that the order follows from, most significant first; that of record numbers is the last of
    /// all.
    pub fn key_columns(&self) -> [usize; KEYS] {
        [0, 1, 2]
    }

    /// Returns the column of record numbers.
    pub fn number_column(&self) -> usize {
        self.all.fields().len() - 1
    }

    /// Returns prepared records with their split and the numbers from `first` on.
    ///
    /// # Errors
    /// If the columns do not fit together.
    pub fn with_numbers(&self, prepared: &PreparedRecords, first: u64) -> Result<RecordBatch> {
        let rows = prepared.sidecar.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.all.fields().len());
        columns.push(Arc::new(UInt8Array::from_value(prepared.split, rows)));
        columns.extend(prepared.ranks.iter().map(|half| Arc::new(half.clone()) as ArrayRef));
        columns.extend_from_slice(prepared.data.columns());
        let own = OWN.into_iter().chain(self.has_fingerprints().then_some(FINGERPRINTS));
        columns.extend(own.map(|column| Arc::clone(prepared.sidecar.column(column))));
        columns.push(Arc::new(UInt64Array::from_iter_values(first..first + rows as u64)));
        Ok(RecordBatch::try_new(Arc::clone(&self.all), columns)?)
    }

    /// Returns records of a shard with their sidecar rows and numbers; they are of one split, and ordered by `seed`.
    ///
    /// # Errors
    /// If the columns do not fit together.
    pub fn stored_batch(
        &self,
        seed: u64,
        data: &RecordBatch,
        sidecar: &RecordBatch,
        numbers: Vec<u64>,
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.all.fields().len());
        columns.push(Arc::new(UInt8Array::from_value(0, numbers.len())));
        columns.extend(rank_halves(seed, sidecar).map(|half| Arc::new(half) as ArrayRef));
        columns.extend_from_slice(data.columns());
        for field in self.sidecar.fields() {
            columns.push(match sidecar.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                // Shards that were adopted have no fingerprints.
                None => new_null_array(field.data_type(), numbers.len()),
            });
        }
        columns.push(Arc::new(UInt64Array::from(numbers)));
        Ok(RecordBatch::try_new(Arc::clone(&self.all), columns)?)
    }

    /// Returns the columns of the data.
    pub fn data_schema(&self) -> &SchemaRef {
        &self.data
    }

    /// Returns rows of one split, without the columns of keys, as records to be encoded.
    ///
    /// # Errors
    /// If the columns do not fit together.
    pub fn to_source_batch(&self, batch: &RecordBatch) -> Result<SourceBatch> {
        let end = self.data.fields().len();
        let columns = |range: std::ops::Range<usize>| batch.columns()[range].to_vec();
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let data = RecordBatch::try_new_with_options(Arc::clone(&self.data), columns(0..end), &rows)?;
        let sidecar = RecordBatch::try_new(Arc::clone(&self.sidecar), columns(end..self.number_column() - KEYS))?;
        let numbers = batch.column(self.number_column() - KEYS).as_primitive::<UInt64Type>().values().to_vec();
        Ok(SourceBatch {
            lacking: Arc::default(),
            payload: Payload::Rows(data),
            source: Arc::clone(&self.source),
            rows: numbers.into(),
            hashes: Numbers::default(),
            fingerprints: Vec::new(),
            sidecar: Some(sidecar),
        })
    }
}

/// Consecutive records of the input, with everything that they need to be encoded in another order.
#[derive(Debug)]
pub struct PreparedRecords {
    /// Split of the dataset that they belong to.
    split: Split,
    /// Upper and lower half of each rank.
    ranks: [UInt64Array; 2],
    data: RecordBatch,
    sidecar: RecordBatch,
    /// Hashes of stored record ids.
    pub record_hashes: IdHashes,
    /// Hashes of subject ids.
    pub subject_hashes: IdHashes,
}

impl PreparedRecords {
    /// Returns the split of the dataset that the records belong to.
    pub fn split(&self) -> Split {
        self.split
    }

    /// Returns the number of records.
    pub fn record_count(&self) -> usize {
        self.sidecar.num_rows()
    }
}

impl Encoder {
    /// Returns the columns of prepared records, with or without their fingerprints.
    pub fn prepared_layout(&self, fingerprints: bool) -> Layout {
        let data = match &self.output {
            Output::Parquet(encoder) => Arc::clone(encoder.schema()),
            Output::Stream(_) => Arc::new(Schema::new(vec![
                Field::new("frame", DataType::LargeBinary, false),
                Field::new("key", DataType::Utf8, true),
            ])),
        };
        Layout::new(data, fingerprints)
    }

    /// Prepares records to be encoded in the order of their ranks, which follow from the seed.
    ///
    /// # Errors
    /// Fails if a record cannot be expressed in the format.
    pub fn prepare_unit(&self, layout: &Layout, seed: u64, mut unit: EncodeUnit) -> Result<PreparedRecords> {
        for piece in &mut unit.batches {
            if let Payload::Rows(batch) = &mut piece.payload {
                *batch = plain_batch(batch)?;
            }
        }
        let split = unit.split;
        let texts: IdTexts = self.id_texts(&unit)?;
        let names: Names = texts.join_ids(KnownColumns::default())?;
        self.keep_stored(&mut unit)?;
        let (data, hashes) = match &self.output {
            Output::Parquet(_) => self.prepare_columns(layout, &mut unit)?,
            Output::Stream(framing) => self.prepare_frames(layout, *framing, &unit, &names)?,
        };
        let names = names.with_pseudonyms(self.pseudonymizer.as_ref())?;
        let record_hashes = self.hashes.ids_for_index(IdKind::Record, names.record_ids.as_ref()).into_encoded()?;
        let subject_hashes = self.hashes.ids_for_index(IdKind::Subject, names.subject_ids.as_ref()).into_encoded()?;
        let sidecar =
            sidecar_rows(unit, names, hashes, self.pseudonymizer.as_ref()).to_batch(layout.has_fingerprints())?;
        Ok(PreparedRecords { split, ranks: rank_halves(seed, &sidecar), data, sidecar, record_hashes, subject_hashes })
    }

    /// Returns the columns of rows as the shard has them, and the content hashes.
    fn prepare_columns(&self, layout: &Layout, unit: &mut EncodeUnit) -> Result<(RecordBatch, Numbers)> {
        if layout.data.fields().is_empty() {
            return Err(no_columns(unit));
        }
        let mut hashes = Numbers::default();
        let mut batches = Vec::with_capacity(unit.batches.len());
        for piece in &mut unit.batches {
            hashes.append(std::mem::take(&mut piece.hashes));
            let batch = match &piece.payload {
                Payload::Rows(batch) => batch.clone(),
                Payload::Samples(samples) => batch_of_samples(samples, &layout.data)?,
            };
            batches.push(RecordBatch::try_new(Arc::clone(&layout.data), batch.columns().to_vec())?);
        }
        Ok((concat_batches(&layout.data, &batches)?, hashes))
    }

    /// Returns framed records with their keys, and the hashes of the frames.
    fn prepare_frames(
        &self,
        layout: &Layout,
        framing: &dyn Framing,
        unit: &EncodeUnit,
        names: &Names,
    ) -> Result<(RecordBatch, Numbers)> {
        let mut keys: Vec<String> = Vec::new();
        let (framed, hashes) = self.frame_unit(framing, unit, names, None, &mut |of_piece| {
            if framing.has_keys() {
                keys.extend_from_slice(of_piece);
            }
            Ok(())
        })?;
        let rows = framed.lengths.len();
        let lengths = framed.lengths.iter().map(|length| usize::try_from(*length));
        let lengths = lengths.collect::<std::result::Result<Vec<_>, _>>();
        let lengths = lengths.map_err(|_| Error::internal("a record is larger than memory"))?;
        let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
        let frames = LargeBinaryArray::try_new(offsets, Buffer::from_vec(framed.bytes), None)?;
        let keys = match framing.has_keys() {
            true => StringArray::from_iter_values(keys),
            false => StringArray::new_null(rows),
        };
        let columns: Vec<ArrayRef> = vec![Arc::new(frames), Arc::new(keys)];
        Ok((RecordBatch::try_new(Arc::clone(&layout.data), columns)?, hashes.into()))
    }

    /// Encodes records that were prepared; reports the bytes of a row group as soon as they are known.
    pub(super) fn encode_prepared(&self, unit: EncodeUnit, report: impl FnOnce(u64)) -> Result<Encoded> {
        let EncodeUnit { split, batches, starts_shard, bytes_in, .. } = unit;
        let (mut data, mut sidecars, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for SourceBatch { payload, sidecar, rows, .. } in batches {
            let (Payload::Rows(batch), Some(sidecar)) = (payload, sidecar) else {
                return Err(Error::internal("records of a unit were not prepared"));
            };
            data.push(batch);
            sidecars.push(sidecar);
            numbers.extend(rows.iter());
        }
        // Only when the data is no longer needed: together they would take twice the memory.
        let mut rows = move || -> Result<SidecarColumns> {
            let columns = sidecars.drain(..).map(|own| SidecarColumns::from_batch(&whole_sidecar(&own)?));
            SidecarColumns::join_parts(columns.collect::<Result<_>>()?)
        };
        let (body, end_keys) = match &self.output {
            Output::Parquet(encoder) => {
                let group = encoder.encode(&data)?;
                drop(data);
                report(group.encoded_bytes);
                let rows = rows()?;
                (Body::RowGroup(group, SidecarGroups::encode_columns(&rows, rows.fingerprints.is_some())?), None)
            }
            Output::Stream(framing) => {
                let end_keys = end_keys(&data)?.filter(|_| framing.has_keys());
                let (mut bytes, mut lengths) = (self.pool.take_buffer(0), Vec::new());
                for batch in &data {
                    let frames = batch.column(0).as_binary::<i64>();
                    let (Some(first), Some(last)) = (frames.value_offsets().first(), frames.value_offsets().last())
                    else {
                        continue;
                    };
                    let place = |offset: i64| usize::try_from(offset).unwrap_or_default();
                    bytes.extend_from_slice(frames.value_data().get(place(*first)..place(*last)).unwrap_or_default());
                    lengths.extend(frames.value_offsets().windows(2).map(|pair| (pair[1] - pair[0]).cast_unsigned()));
                }
                drop(data);
                let members = self.notes_members.then(|| MemberPlaces::from_records(&bytes)).transpose()?;
                let unit = self.codec.compress_unit(bytes)?;
                (Body::Stream(Box::new(self.build_piece(unit, lengths, rows()?, members))), end_keys)
            }
        };
        let (record_hashes, subject_hashes) = (IdHashes::default(), IdHashes::default());
        let records = numbers.len();
        Ok(Encoded { split, body, records, starts_shard, bytes_in, record_hashes, subject_hashes, end_keys, numbers })
    }
}

/// Returns the keys of the first and the last of framed records, after checking that neighbours have different ones.
fn end_keys(batches: &[RecordBatch]) -> Result<Option<(String, String)>> {
    let mut ends: Option<(&str, &str)> = None;
    for key in batches.iter().flat_map(|batch| batch.column(1).as_string::<i32>().iter()).flatten() {
        if let Some((_, last)) = ends {
            check_neighbours(last, key)?;
        }
        ends = Some((ends.map_or(key, |(first, _)| first), key));
    }
    Ok(ends.map(|(first, last)| (first.to_owned(), last.to_owned())))
}

/// Returns the halves of the ranks of sidecar rows. Samples made of files have no row, and are named by their keys.
fn rank_halves(seed: u64, sidecar: &RecordBatch) -> [UInt64Array; 2] {
    let (names, rows) = (sidecar.column(4).as_string::<i32>(), sidecar.column(5).as_primitive::<UInt64Type>());
    let keys = sidecar.column(0).as_string::<i32>();
    let (mut high, mut low) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    let mut of: Option<(&str, RowRanks)> = None;
    for (number, (name, row)) in names.iter().zip(rows.iter()).enumerate() {
        let name = name.unwrap_or_default();
        if of.as_ref().is_none_or(|(last, _)| *last != name) {
            of = Some((name, RowRanks::new(seed, name)));
        }
        let rank = match row {
            None if keys.is_valid(number) => rank_of_sample(seed, keys.value(number)),
            row => of.as_mut().map_or(0, |(_, ranks)| ranks.rank_of_row(row.unwrap_or_default())),
        };
        high.push(u64::try_from(rank >> 64).unwrap_or_default());
        low.push(u64::try_from(rank & u128::from(u64::MAX)).unwrap_or_default());
    }
    [high.into(), low.into()]
}
