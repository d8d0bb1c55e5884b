//! Encodes records: turns an [`EncodeUnit`] into a row group, or into framed and compressed records.
//!
//! Units are independent, so this runs on many threads. The ids of records and their hashes are computed here, too,
//! because that costs about as much as encoding.

mod prepared;

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{Array, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions, StringArray},
    datatypes::{Schema, SchemaRef},
};

use bytes::Bytes;

use super::{source::SourceName, splits::SplitCheck};
use crate::{
    array::outputs,
    codec::{Codec, checksum::xxh3_64, stream::Unit},
    dataset::{
        Arrangement, HashPlan, HashWidth, IdColumn, IdHashes, IdKind, Order, Pseudonymizer, RowNumbers, Settings,
        SidecarColumns, SidecarGroups, SourceRuns,
    },
    error::{Error, Result},
    format::{
        Framed, Framing, Keyed, OutputFormat,
        index::IndexKind,
        parquet::{Noted, ParquetEncoder, RowGroup, batch_of_samples, media_metadata},
        tar::places::MemberPlaces,
    },
    indexes::{self, names::Renaming},
    record::{
        Payload, buffer_pool::BufferPool, coded::plain_batch, fingerprint::Fingerprint, id_column, key::escape_key,
        numbers::Numbers, parts::samples_of_rows, split::Split,
    },
};

pub use self::prepared::{Layout, PreparedRecords};

/// Consecutive records of one source, or records that were [prepared](Layout).
#[derive(Debug, Clone)]
pub struct SourceBatch {
    /// The records.
    pub payload: Payload,
    /// Columns that some of them do not have (see [`RecordBlock::lacking`](crate::record::RecordBlock::lacking)).
    pub lacking: Arc<[String]>,
    /// The source they came from.
    pub source: Arc<SourceName>,
    /// Rows in the source, from 1; unused for samples that state their own origin. Of prepared records, their numbers.
    pub rows: Numbers,
    /// Hash of each record's source bytes.
    pub hashes: Numbers,
    /// Fingerprint of each record; empty if they are not stored.
    pub fingerprints: Vec<Fingerprint>,
    /// Sidecar rows of prepared records; `None` for others.
    pub sidecar: Option<RecordBatch>,
}

/// Records that are encoded together.
#[derive(Debug, Clone)]
pub struct EncodeUnit {
    /// Split of the dataset that its records belong to.
    pub split: Split,
    /// Number of the unit among those of its split, from 0.
    pub number: usize,
    /// The records, in order.
    pub batches: Vec<SourceBatch>,
    /// Whether it starts a new shard (Parquet; for other formats the appender decides).
    pub starts_shard: bool,
    /// Stored bytes of input that it accounts for.
    pub bytes_in: u64,
    /// Bytes that its records take, about.
    pub raw_bytes: u64,
}

/// A unit ready to be appended to a shard.
#[derive(Debug)]
pub struct Encoded {
    /// Split of the dataset that its records belong to.
    pub split: Split,
    /// The bytes.
    pub body: Body,
    /// Number of records.
    pub records: usize,
    /// Whether it starts a new shard.
    pub starts_shard: bool,
    /// Stored bytes of input that it accounts for.
    pub bytes_in: u64,
    /// Hashes of stored record ids.
    pub record_hashes: IdHashes,
    /// Hashes of subject ids.
    pub subject_hashes: IdHashes,
    /// Keys of the first and the last record, if the format requires neighbours to have different keys.
    pub end_keys: Option<(String, String)>,
    /// Numbers of the records, if these were prepared; empty if they are consecutive.
    pub numbers: Vec<u64>,
}

/// Bytes of a unit.
#[derive(Debug)]
pub enum Body {
    /// A row group, and the sidecar rows of its records.
    RowGroup(RowGroup, SidecarGroups),
    /// Framed records, compressed as a whole. Their sidecar rows are not encoded yet: they are too few for a row group,
    /// and a shard may end between any two.
    Stream(Box<Piece>),
}

/// Consecutive records of one shard, framed and compressed with its codec.
#[derive(Debug)]
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// Number of bytes before compression.
    pub raw_bytes: u64,
    /// CRC-32 of the bytes before compression, for gzip.
    pub crc32: u32,
    /// Sidecar rows, without offsets.
    pub rows: SidecarColumns,
    /// Length of each record before compression.
    pub lengths: Vec<u64>,
    /// Members of the unit that the piece is a part of, and the byte of the unit at which it begins; `None` if members
    /// have to be found in its bytes.
    pub members: Option<(Arc<MemberPlaces>, u64)>,
}

/// Encodes records in one output format.
#[derive(Debug)]
pub struct Encoder {
    output: Output,
    codec: Codec,
    id: Vec<String>,
    subject: Option<String>,
    /// Whether subject ids come from samples and sources because no column has them.
    external_subjects: bool,
    renaming: Renaming,
    rows: RowsAs,
    /// Number of the columns of rows that are stored; only ids come from those behind them.
    stored: usize,
    /// Whether the members of records are noted.
    notes_members: bool,
    /// Pseudonymizes ids and source names in sidecars and indexes.
    pseudonymizer: Option<Pseudonymizer>,
    /// Settings of a dataset whose records are divided by ids: all ids of a unit must belong to its split.
    divided: Option<Settings>,
    /// Which ids are hashed.
    hashes: HashPlan,
    /// Buffers of units, for reuse.
    pool: BufferPool,
}

/// Representation of a row in tar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowsAs {
    /// One JSON member.
    #[default]
    Json,
    /// A member for each column that is not null.
    Parts,
    /// One NPY member for each tensor, and a JSON member for all other columns; in TFRecord, features of bytes, shape
    /// and type.
    Tensors,
}

/// Shard writer of a format.
#[derive(Debug)]
pub enum Output {
    /// Row groups and a footer.
    Parquet(ParquetEncoder),
    /// A sequence of framed records.
    Stream(&'static dyn Framing),
}

/// Creates the Parquet encoder of a table's columns.
///
/// # Errors
/// Fails if Parquet cannot store the schema.
pub fn parquet_encoder(codec: Codec, schema: &SchemaRef) -> Result<ParquetEncoder> {
    let metadata: Vec<_> = media_metadata(schema).into_iter().collect();
    ParquetEncoder::new(schema, codec, &metadata)
}

/// Creates the Parquet encoder of sorted records; the shards' metadata states the order, and has the remarks.
///
/// # Errors
/// Fails if Parquet cannot store the schema.
pub fn sorted_parquet_encoder(
    codec: Codec,
    schema: &SchemaRef,
    order: &Order,
    remarks: Vec<(String, String)>,
) -> Result<ParquetEncoder> {
    let names = serde_json::to_string(&order.columns)
        .map_err(|e| Error::internal("encoding the names of columns failed").with_cause(e))?;
    let key = match order.by {
        Arrangement::Sort => "shardify.sort",
        Arrangement::ZOrder => "shardify.zorder",
        Arrangement::Shuffle => return parquet_encoder(codec, schema),
    };
    let mut metadata: Vec<_> = media_metadata(schema).into_iter().chain(remarks).collect();
    metadata.push((key.to_owned(), names));
    let parquet = ParquetEncoder::new(schema, codec, &metadata)?;
    Ok(match order.by {
        Arrangement::Sort => {
            let columns: Vec<usize> = order.columns.iter().filter_map(|name| schema.index_of(name).ok()).collect();
            parquet.sorted_by(&columns)
        }
        Arrangement::ZOrder | Arrangement::Shuffle => parquet,
    })
}

impl Encoder {
    /// Creates an encoder for records of `schema`, or of the schema of samples for samples.
    ///
    /// # Errors
    /// Fails if the format cannot store the schema.
    pub fn new(
        format: OutputFormat,
        codec: Codec,
        schema: &SchemaRef,
        id: Vec<String>,
        subject: Option<String>,
    ) -> Result<Self> {
        let output = match format.facts().framing {
            Some(framing) => Output::Stream(framing),
            None => Output::Parquet(parquet_encoder(codec, schema)?),
        };
        let (rows, renaming, pool) = (RowsAs::default(), Renaming::default(), BufferPool::default());
        let (stored, pseudonymizer, divided) = (usize::MAX, None, None);
        let (external_subjects, notes_members) = (false, false);
        Ok(Self {
            output,
            codec,
            id,
            subject,
            external_subjects,
            renaming,
            rows,
            stored,
            notes_members,
            pseudonymizer,
            divided,
            hashes: HashPlan::default(),
            pool,
        })
    }

    /// Stores only so many columns of rows; ids may come from those behind them.
    #[must_use]
    pub fn with_stored_columns(self, stored: usize) -> Self {
        Self { stored, ..self }
    }

    /// Makes ids for an index whose hashes have this width.
    #[must_use]
    pub fn with_hash_width(self, width: HashWidth) -> Self {
        Self { hashes: HashPlan::new(width), ..self }
    }

    /// Returns which ids are hashed, as the writers of the index have to know.
    pub fn hash_plan(&self) -> &HashPlan {
        &self.hashes
    }

    /// Sets the representation of rows in tar.
    #[must_use]
    pub fn with_rows(mut self, rows: RowsAs) -> Self {
        self.rows = rows;
        self
    }

    /// Notes the members of records if one of the indexes of their shards lists them.
    #[must_use]
    pub fn noting_members_for(self, indexes: &[IndexKind], format: OutputFormat) -> Self {
        let notes_members = format.has_keys() && indexes::any_kind(indexes, |about| about.lists_members);
        Self { notes_members, ..self }
    }

    /// Sets whether subject ids come from samples and sources because no column has them.
    #[must_use]
    pub fn with_external_subjects(self, external_subjects: bool) -> Self {
        Self { external_subjects, ..self }
    }

    /// Sets how names that readers cannot accept are changed.
    #[must_use]
    pub fn with_renaming(self, renaming: Renaming) -> Self {
        Self { renaming, ..self }
    }

    /// Stores pseudonyms instead of ids and source names in sidecars and the index.
    #[must_use]
    pub fn with_pseudonymizer(self, pseudonymizer: Option<Pseudonymizer>) -> Self {
        Self { pseudonymizer, ..self }
    }

    /// Checks that the stored ids of records belong to the split that the records are in, if the settings divide them
    /// by ids.
    #[must_use]
    pub fn checking_splits(self, settings: &Settings) -> Self {
        Self { divided: settings.divided_by().map(|_| settings.clone()), ..self }
    }

    /// Encodes records of all splits together.
    #[must_use]
    pub fn without_splits(self) -> Self {
        Self { divided: None, ..self }
    }

    fn check_split(&self, split: Split, names: &Names) -> Result<()> {
        let Some(check) = self.divided.as_ref().and_then(|settings| SplitCheck::new(settings, split)) else {
            return Ok(());
        };
        check.check_column(IdKind::Record, names.record_ids.as_ref())?;
        check.check_column(IdKind::Subject, names.subject_ids.as_ref())
    }

    /// Returns the shard writer.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Encodes a unit.
    ///
    /// # Errors
    /// Fails if a record cannot be expressed in the format.
    pub fn encode_unit(&self, unit: EncodeUnit) -> Result<Encoded> {
        self.encode_reporting(unit, |_| {})
    }

    /// Encodes a unit and reports the bytes of a row group as soon as they are known, before all work is done.
    ///
    /// # Errors
    /// As [`Self::encode_unit`].
    pub fn encode_reporting(&self, mut unit: EncodeUnit, report: impl FnOnce(u64)) -> Result<Encoded> {
        if unit.batches.iter().any(|piece| piece.sidecar.is_some()) {
            return self.encode_prepared(unit, report);
        }
        let (split, starts_shard, bytes_in) = (unit.split, unit.starts_shard, unit.bytes_in);
        let of = |kind, ids: &Option<IdColumn>| self.hashes.ids_for_index(kind, ids.as_ref());
        let (record_hashes, subject_hashes, end_keys);
        let (body, records) = match &self.output {
            Output::Parquet(encoder) => {
                let texts = self.id_texts(&unit)?;
                self.keep_stored(&mut unit)?;
                let (group, known) = self.row_group(encoder, &mut unit)?;
                report(group.encoded_bytes);
                let names = texts.join_ids(known)?.with_pseudonyms(self.pseudonymizer.as_ref())?;
                self.check_split(split, &names)?;
                let (of_records, of_subjects) =
                    (of(IdKind::Record, &names.record_ids), of(IdKind::Subject, &names.subject_ids));
                end_keys = None;
                let mut hashes = Numbers::default();
                unit.batches.iter_mut().for_each(|piece| hashes.append(std::mem::take(&mut piece.hashes)));
                let rows = sidecar_rows(unit, names, hashes, self.pseudonymizer.as_ref());
                let beside = SidecarGroups::encode_columns(&rows, rows.fingerprints.is_some())?;
                record_hashes = beside.share_columns(IdKind::Record, of_records);
                subject_hashes = beside.share_columns(IdKind::Subject, of_subjects);
                (Body::RowGroup(group, beside), rows.hashes.len())
            }
            Output::Stream(framing) => {
                for piece in &mut unit.batches {
                    if let Payload::Rows(batch) = &mut piece.payload {
                        *batch = plain_batch(batch)?;
                    }
                }
                let names = self.id_texts(&unit)?.join_ids(KnownColumns::default())?;
                self.keep_stored(&mut unit)?;
                let streamed = self.encode_stream(*framing, &unit, &names)?;
                let names = names.with_pseudonyms(self.pseudonymizer.as_ref())?;
                self.check_split(split, &names)?;
                record_hashes = of(IdKind::Record, &names.record_ids).into_encoded()?;
                subject_hashes = of(IdKind::Subject, &names.subject_ids).into_encoded()?;
                end_keys = streamed.end_keys;
                let rows = sidecar_rows(unit, names, streamed.hashes.into(), self.pseudonymizer.as_ref());
                let records = rows.hashes.len();
                let Streamed { unit, lengths, members, .. } = streamed;
                (Body::Stream(Box::new(self.build_piece(unit, lengths, rows, members))), records)
            }
        };
        let numbers = Vec::new();
        Ok(Encoded { split, body, records, starts_shard, bytes_in, record_hashes, subject_hashes, end_keys, numbers })
    }

    fn build_piece(&self, unit: Unit, lengths: Vec<u64>, rows: SidecarColumns, members: Option<MemberPlaces>) -> Piece {
        let Unit { bytes, raw_bytes, crc32, .. } = unit;
        let members = members.map(|members| (Arc::new(members), 0));
        Piece { bytes: self.pool.lend_buffer(bytes), raw_bytes, crc32, rows, lengths, members }
    }

    /// Drops the columns of rows that are not stored.
    fn keep_stored(&self, unit: &mut EncodeUnit) -> Result<()> {
        for piece in &mut unit.batches {
            if let Payload::Rows(batch) = &mut piece.payload
                && batch.num_columns() > self.stored
            {
                *batch = batch.project(&(0..self.stored).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Encodes the row group and returns what was found out about columns of ids on the way. Leaves only the number of
    /// rows in `unit`.
    fn row_group(&self, encoder: &ParquetEncoder, unit: &mut EncodeUnit) -> Result<(RowGroup, KnownColumns)> {
        if encoder.schema().fields().is_empty() {
            return Err(no_columns(unit));
        }
        let rows = unit.batches.iter().all(|piece| matches!(piece.payload, Payload::Rows(_)));
        let batches: Vec<RecordBatch> = unit
            .batches
            .iter_mut()
            .map(|piece| match &mut piece.payload {
                Payload::Rows(batch) => {
                    let number = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &number)?;
                    Ok(std::mem::replace(batch, none))
                }
                Payload::Samples(samples) => batch_of_samples(samples, encoder.schema()),
            })
            .collect::<Result<_>>()?;
        // Ids made of several columns, or of a part of a column, are not columns themselves.
        let field = |name: &String| encoder.schema().index_of(name).ok();
        let (id, subject) = (self.id.as_slice(), self.subject.as_ref());
        let (id, subject) = (if let [id] = id { field(id) } else { None }, subject.and_then(field));
        let noted: Vec<usize> = id.into_iter().chain(subject).collect();
        let (group, mut notes) = encoder.encode_noting(batches, &noted)?;
        let mut of = |field: Option<usize>| {
            let place = noted.iter().position(|noted| Some(*noted) == field);
            let note = place.and_then(|place| notes.get_mut(place)).map(std::mem::take).unwrap_or_default();
            // Ids of samples are in none of their columns, whatever these are called.
            if rows { note } else { Noted::default() }
        };
        Ok((group, KnownColumns { subject: of(subject), id: of(id) }))
    }

    /// Frames and compresses the unit.
    fn encode_stream(&self, framing: &dyn Framing, unit: &EncodeUnit, names: &Names) -> Result<Streamed> {
        let mut ends: Option<(String, String)> = None;
        let members = self.notes_members.then(MemberPlaces::default);
        let (framed, hashes) = self.frame_unit(framing, unit, names, members, &mut |keys| {
            let (Some(one), Some(other)) = (keys.first(), keys.last()) else { return Ok(()) };
            if let Some((_, last)) = &ends {
                check_neighbours(last, one)?;
            }
            ends = Some((ends.take().map_or_else(|| one.clone(), |(first, _)| first), other.clone()));
            Ok(())
        })?;
        let Framed { bytes, lengths, members } = framed;
        let unit = self.codec.compress_unit(bytes)?;
        Ok(Streamed { unit, lengths, members, hashes, end_keys: ends.filter(|_| framing.has_keys()) })
    }

    /// Frames the records of a unit and returns them with the hash of each; `visit` receives the keys of each piece.
    fn frame_unit(
        &self,
        framing: &dyn Framing,
        unit: &EncodeUnit,
        names: &Names,
        members: Option<MemberPlaces>,
        visit: &mut dyn FnMut(&[String]) -> Result<()>,
    ) -> Result<(Framed, Vec<u64>)> {
        let mut framed = Framed { bytes: self.pool.take_buffer(0), lengths: Vec::new(), members };
        let mut hashes = Vec::new();
        let mut at = 0;
        let mut first = 0;
        for piece in &unit.batches {
            let mut keys = record_keys(piece, names.record_ids.as_ref().map(IdColumn::texts), first);
            let own = self.own_payload(piece, &keys)?;
            let renamed = self.rename_keys(own.as_ref().unwrap_or(&piece.payload), &mut keys);
            let payload = renamed.as_ref().or(own.as_ref()).unwrap_or(&piece.payload);
            visit(&keys)?;
            first += piece.payload.len();
            framing.frame(Keyed { payload, keys: &keys, lacking: &piece.lacking }, &mut framed)?;
            // Hash the records while they are in the processor's cache.
            for length in &framed.lengths[hashes.len()..] {
                let end =
                    at + usize::try_from(*length).map_err(|_| Error::internal("a record is larger than memory"))?;
                hashes.push(xxh3_64(&framed.bytes[at..end]));
                at = end;
            }
        }
        Ok((framed, hashes))
    }

    /// Returns the payload to frame instead of the records as they are; `None` if they are framed as they are.
    fn own_payload(&self, piece: &SourceBatch, keys: &[String]) -> Result<Option<Payload>> {
        match (&piece.payload, self.rows) {
            (Payload::Rows(batch), RowsAs::Parts) => {
                let samples = samples_of_rows(batch, keys)?;
                match samples.iter().zip(piece.rows.iter()).find(|(sample, _)| sample.parts.is_empty()) {
                    None => Ok(Some(Payload::Samples(samples))),
                    Some((_, row)) => Err(Error::input(format!(
                        "expected at least one value in row {row}, found only nulls; no member can be made of them"
                    ))
                    .at_location(piece.source.name.clone())
                    .with_hint("use --write rows=json")),
                }
            }
            (Payload::Rows(batch), RowsAs::Tensors) => Ok(Some(match (own_columns(piece)?, self.names_members()) {
                (Some(Payload::Rows(own)), true) => Payload::Samples(outputs::tensor_samples(&own, keys)?),
                (Some(Payload::Rows(own)), false) => Payload::Rows(outputs::tensor_features(&own)?),
                (_, true) => Payload::Samples(outputs::tensor_samples(batch, keys)?),
                (_, false) => Payload::Rows(outputs::tensor_features(batch)?),
            })),
            _ => own_columns(piece),
        }
    }

    /// Returns whether records are samples with named members.
    fn names_members(&self) -> bool {
        matches!(&self.output, Output::Stream(framing) if framing.has_keys())
    }

    /// Changes keys and extensions that readers cannot accept; returns `None` if no extension changed.
    fn rename_keys(&self, payload: &Payload, keys: &mut [String]) -> Option<Payload> {
        if !self.renaming.is_active() {
            return None;
        }
        let rename = |key: &mut String, extension| *key = self.renaming.rename_key(std::mem::take(key), extension);
        let Payload::Samples(samples) = payload else {
            keys.iter_mut().for_each(|key| rename(key, "json".len()));
            return None;
        };
        let mut samples = samples.clone();
        for (sample, key) in samples.iter_mut().zip(keys) {
            for part in &mut sample.parts {
                part.extension = self.renaming.rename_extension(&part.extension);
            }
            rename(key, sample.parts.iter().map(|part| part.extension.len()).max().unwrap_or_default());
        }
        Some(Payload::Samples(samples))
    }

    /// Returns the ids, batch by batch.
    fn id_texts(&self, unit: &EncodeUnit) -> Result<IdTexts> {
        let (mut records, mut subjects) = (Vec::new(), Vec::new());
        for piece in &unit.batches {
            match &piece.payload {
                Payload::Rows(batch) => {
                    if !self.id.is_empty() {
                        records.push(id_column(batch, &self.id)?);
                    }
                    if let Some(subject) = &self.subject {
                        subjects.push(id_column(batch, std::slice::from_ref(subject))?);
                    } else if self.external_subjects {
                        subjects.push(std::iter::repeat_n(piece.source.subject.as_deref(), batch.num_rows()).collect());
                    }
                }
                Payload::Samples(samples) => {
                    records.push(samples.iter().map(|s| Some(s.key.as_str())).collect());
                    if self.external_subjects {
                        subjects.push(samples.iter().map(|s| s.subject.as_deref()).collect());
                    }
                }
            }
        }
        Ok(IdTexts { records, subjects })
    }
}

/// Ids of a unit, batch by batch; empty if the unit has none.
struct IdTexts {
    records: Vec<StringArray>,
    subjects: Vec<StringArray>,
}

impl IdTexts {
    fn join_ids(self, known: KnownColumns) -> Result<Names> {
        let join = |parts: Vec<StringArray>, Noted { repeats, texts }: Noted| {
            let column = match repeats {
                _ if parts.is_empty() => return Ok(None),
                Some(known) => IdColumn::join_known(&parts, known)?,
                None => IdColumn::join_parts(&parts)?,
            };
            Ok::<_, Error>(Some(column.encoded_as(texts)))
        };
        Ok(Names { record_ids: join(self.records, known.id)?, subject_ids: join(self.subjects, known.subject)? })
    }
}

/// A unit, framed and compressed.
struct Streamed {
    unit: Unit,
    /// Length of each record before compression.
    lengths: Vec<u64>,
    /// Members of the records, if they are noted.
    members: Option<MemberPlaces>,
    /// Hash of each framed record.
    hashes: Vec<u64>,
    /// Keys of the first and the last record.
    end_keys: Option<(String, String)>,
}

/// Returns the error for records without any column.
fn no_columns(unit: &EncodeUnit) -> Error {
    let place = unit.batches.first().map_or_else(String::new, |piece| piece.source.name.clone());
    Error::input("expected records with at least one field, found no fields; Parquet cannot store such rows")
        .at_location(place)
        .with_hint("use --to tar or tfrecord, or skip the file with --exclude")
}

/// Refuses two neighbouring records that readers would merge into one.
///
/// # Errors
/// Fails if the keys are equal.
pub fn check_neighbours(last: &str, next: &str) -> Result<()> {
    if last != next {
        return Ok(());
    }
    Err(Error::input(format!("two neighbouring records have the same key `{next}`; readers would merge them into one"))
        .with_hint("for rows: choose a unique --id, or omit --id")
        .with_hint(
            "for samples of several archives that share keys: leave --shuffle out, or unpack each archive into a folder \
             of its own, whose name then is a part of the key",
        ))
}

/// What was found out about the columns of ids while they were encoded.
#[derive(Default)]
struct KnownColumns {
    id: Noted,
    subject: Noted,
}

struct Names {
    record_ids: Option<IdColumn>,
    subject_ids: Option<IdColumn>,
}

impl Names {
    fn with_pseudonyms(self, pseudonymizer: Option<&Pseudonymizer>) -> Result<Self> {
        let Some(pseudonymizer) = pseudonymizer else { return Ok(self) };
        let pseudonymize = |ids: Option<IdColumn>| ids.map(|ids| ids.to_pseudonymized(pseudonymizer)).transpose();
        Ok(Self { record_ids: pseudonymize(self.record_ids)?, subject_ids: pseudonymize(self.subject_ids)? })
    }
}

/// Returns the records without columns that their source does not have; `None` if it has all of them.
fn own_columns(piece: &SourceBatch) -> Result<Option<Payload>> {
    let (Payload::Rows(batch), Some(columns)) = (&piece.payload, &piece.source.columns) else { return Ok(None) };
    let schema = batch.schema();
    let columns: HashSet<&str> = columns.iter().map(String::as_str).collect();
    let is_own = |i: &usize| columns.contains(schema.field(*i).name().as_str());
    let own: Vec<usize> = (0..schema.fields().len()).filter(is_own).collect();
    if own.len() == schema.fields().len() {
        return Ok(None);
    }
    Ok(Some(Payload::Rows(batch.project(&own)?)))
}

/// Returns the key of each record: its id, or a name made of its source and row.
fn record_keys(piece: &SourceBatch, ids: Option<&StringArray>, first: usize) -> Vec<String> {
    (0..piece.payload.len())
        .map(|i| match ids.filter(|ids| ids.is_valid(first + i)) {
            Some(ids) => escape_key(ids.value(first + i)),
            None => format!("{}-{:09}", piece.source.key, piece.rows.get(i).unwrap_or_default()),
        })
        .collect()
}

/// Returns the sidecar rows of the records, without their offsets in the shard.
fn sidecar_rows(
    unit: EncodeUnit,
    names: Names,
    hashes: Numbers,
    pseudonymizer: Option<&Pseudonymizer>,
) -> SidecarColumns {
    let stored = |name: &str| -> Arc<str> {
        pseudonymizer.map_or_else(|| name.into(), |pseudonymizer| pseudonymizer.stored_source(name).into())
    };
    let files = unit.batches.iter().all(|p| p.source.name.is_empty());
    let mut sources = SourceRuns::default();
    for piece in &unit.batches {
        let name: Arc<str> = stored(&piece.source.name);
        match &piece.payload {
            Payload::Rows(batch) => sources.push(&name, batch.num_rows()),
            Payload::Samples(samples) => samples.iter().for_each(|sample| match sample.origin.as_str() {
                "" => sources.push(&name, 1),
                origin => sources.push(&stored(origin), 1),
            }),
        }
    }
    let mut fingerprints = Vec::new();
    unit.batches.iter().for_each(|piece| fingerprints.extend_from_slice(&piece.fingerprints));
    let rows = (!files).then(|| {
        let mut rows = Numbers::default();
        unit.batches.into_iter().for_each(|piece| rows.append(piece.rows));
        RowNumbers::Known(rows)
    });
    SidecarColumns {
        record_ids: names.record_ids,
        subject_ids: names.subject_ids,
        extents: None,
        sources,
        rows,
        hashes: match pseudonymizer {
            Some(pseudonymizer) => pseudonymizer.content_hashes(hashes),
            None => hashes,
        },
        fingerprints: (!fingerprints.is_empty()).then(|| fingerprint_column(&fingerprints)),
    }
}

fn fingerprint_column(fingerprints: &[Fingerprint]) -> FixedSizeBinaryArray {
    FixedSizeBinaryArray::new(16, fingerprints.concat().into(), None)
}
