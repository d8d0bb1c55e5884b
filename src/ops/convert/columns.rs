//! Columns of rows: the united columns of the sources, with the types that the user gave, adapted to the dataset.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, FieldRef, Fields};

use super::{
    job::ConvertJob,
    options::{ConvertOptions, OnSchema},
    select::{ALL_COLUMNS, ConvertSelection},
};
use crate::{
    array::outputs,
    dataset::Settings,
    error::{Error, Kind, Result},
    format::{OutputFormat, parquet},
    record::path::field_at,
    scan::{RecordSource, folders_of},
    schema::{
        self,
        bound::{self, ColumnBinding},
        file::print_type,
        print_dims, tensor_dims, unite_lists,
    },
    storage::{self, SmallFile},
};

/// A file with the columns of a dataset. Of a Parquet file, all bytes are read.
const SCHEMA: SmallFile = SmallFile::new("a schema file", 256 << 20);

/// Types that the user gave and that are not inferred.
#[derive(Debug, Clone)]
pub(super) struct GivenTypes {
    /// All columns, from `--schema`.
    pub(super) prescribed: Option<Fields>,
    /// Single columns, by `--type`.
    types: Vec<Field>,
    /// The columns that are read.
    pub(super) selection: ConvertSelection,
    /// Types that the dataset has.
    bound: Fields,
    /// Whether types of the dataset are widened for values that do not fit.
    widens: bool,
}

impl GivenTypes {
    /// Reads the schema file, if one is given.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(job: &ConvertJob<'_>, settings: &Settings) -> Result<Self> {
        let (prescribed, types) = (prescribed_columns(job)?, job.options.types.clone());
        let selection = ConvertSelection::new(settings, job.options.filter.clone());
        let (bound, widens) = (settings.types.clone().unwrap_or_default(), job.options.on_schema == OnSchema::Union);
        Ok(Self { prescribed, types, selection, bound, widens })
    }

    /// Whether the type of a column, given its name or the path of a part, must stay as it is in the dataset.
    pub(super) fn is_bound(&self, column: &str) -> bool {
        let is_it = |name: &str| column.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        !self.widens && self.bound.iter().any(|field| is_it(field.name()))
    }

    /// Adds to the error of a value what to do if it does not fit the type of the dataset.
    pub(super) fn explain_mismatch(&self, error: Error) -> Error {
        let Some(column) = error.place().column.clone().filter(|column| self.is_bound(column)) else { return error };
        let top = column.split('.').next().unwrap_or_default();
        let known = self.bound.find(&column).or_else(|| self.bound.find(top));
        match known.filter(|(_, field)| error.kind() == Kind::Input && !self.given_names().contains(field.name())) {
            Some((_, known)) => bound_hints(error, known.name(), &print_type(known)),
            None => error,
        }
    }

    /// Returns the names of the columns of the dataset whose types cannot change in any way: a record with another
    /// value is rejected.
    pub(super) fn bound_names(&self) -> Vec<String> {
        let given = self.given_names();
        let is_fixed = |field: &&Arc<Field>| !self.widens && bound::is_fixed(field) && !given.contains(field.name());
        self.bound.iter().filter(is_fixed).map(|field| field.name().clone()).collect()
    }

    /// Returns an error if types that the user gave, or that a source or its folders state, do not fit those of the
    /// dataset; with `--on-schema fail`, also for inferred types.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for the first such column.
    pub(super) fn check_bound(
        &self,
        options: &ConvertOptions,
        sources: &[RecordSource],
        fields: &[Fields],
    ) -> Result<()> {
        let strict = options.on_schema == OnSchema::Fail;
        let conflict = |field: &Field| {
            let (_, known) = self.bound.find(field.name()).filter(|_| !self.widens)?;
            let fits = match bound::bind_column(known, field) {
                ColumnBinding::Fits(_) => true,
                ColumnBinding::Extends(_) => !strict || *known.data_type() == DataType::Null,
                ColumnBinding::Conflict(_) => false,
            };
            (!fits).then(|| unlike_dataset(known, field))
        };
        let given = self.prescribed.iter().flatten().map(AsRef::as_ref).chain(&self.types);
        if let Some(error) = given.clone().find_map(conflict) {
            return Err(error);
        }
        let names: HashSet<&String> = given.map(Field::name).collect();
        for (source, fields) in sources.iter().zip(fields) {
            let folders = if options.read.hive_columns() { folders_of(&source.file) } else { Vec::new() };
            let is_stated = |field: &FieldRef| {
                strict || source.format.is_typed() || folders.iter().any(|(key, _)| key == field.name())
            };
            let mut stated = fields.iter().filter(|field| !names.contains(field.name()) && is_stated(field));
            if let Some(error) = stated.find_map(|field| conflict(field)) {
                return Err(error.at_location(source.file.uri()));
            }
        }
        Ok(())
    }

    /// Returns the columns of a run with the types of the dataset, where these are to stay.
    fn bind_types(&self, fields: Fields) -> Fields {
        if self.bound.is_empty() {
            return fields;
        }
        let bind = |field: &Arc<Field>| {
            let Some((_, known)) = self.bound.find(field.name()) else { return Arc::clone(field) };
            Arc::new(match bound::bind_column(known, field) {
                ColumnBinding::Fits(field) | ColumnBinding::Extends(field) => field,
                ColumnBinding::Conflict(united) if self.widens => united,
                // The reader says which value does not fit.
                ColumnBinding::Conflict(_) => known.as_ref().clone(),
            })
        };
        fields.iter().map(bind).collect()
    }

    /// Returns the names of the columns whose types the user gave.
    pub(super) fn given_names(&self) -> Vec<String> {
        let prescribed = self.prescribed.iter().flatten().map(|field| field.name());
        prescribed.chain(self.types.iter().map(Field::name)).cloned().collect()
    }

    /// Returns the names of those columns that are to be floats, with the bytes of a float.
    pub(super) fn float_widths(&self) -> Vec<(String, usize)> {
        let width = |field: &Field| field.data_type().primitive_width().filter(|_| field.data_type().is_floating());
        let given = |field: &Field| Some((field.name().clone(), width(field)?));
        self.types.iter().filter_map(given).collect()
    }

    /// Returns the names of those columns that are to be binary.
    pub(super) fn binary_names(&self) -> Vec<String> {
        let prescribed = self.prescribed.iter().flatten().map(AsRef::as_ref);
        let given = prescribed.chain(&self.types);
        given.filter(|field| field.data_type().is_binary()).map(|field| field.name().clone()).collect()
    }

    /// Returns an error for types that the values of a source cannot have, before anything is read.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for the first such type.
    pub(super) fn check_sources(&self, sources: &[RecordSource]) -> Result<()> {
        let prescribed: Vec<Field> = self.prescribed.iter().flatten().map(|field| field.as_ref().clone()).collect();
        for source in sources {
            let has = |field: &&Field| {
                source.reader.facts().columns.as_ref().is_none_or(|names| names.contains(field.name()))
            };
            let mut given = prescribed.iter().chain(&self.types).filter(has);
            given
                .try_for_each(|field| source.format.check_type(field).map_err(|e| e.at_location(source.file.uri())))?;
        }
        Ok(())
    }

    /// Unites the columns that are read of all sources, in the types that the shards have.
    pub(super) fn unite_columns(&self, settings: &Settings, fields: &[Fields], sources: &[RecordSource]) -> Fields {
        let storable = |fields: Fields| match settings.shard_format.is_columnar() {
            true => parquet::storable_fields(&fields),
            false => schema::with_open_intervals(&fields),
        };
        if let Some(prescribed) = &self.prescribed {
            return self.bind_types(storable(self.selection.read(prescribed)));
        }
        let united = fields.iter().fold(Fields::empty(), |all, fields| unite_lists(&all, fields));
        let is_id = |name: &String| settings.id.contains(name) || settings.subject.as_ref() == Some(name);
        let typed = sources.iter().any(|s| s.format.is_typed());
        let plain = |t: &DataType| matches!(t, DataType::Int64 | DataType::Utf8 | DataType::Null);
        let pin = |field: &Arc<Field>| match self.types.iter().find(|f| f.name() == field.name()) {
            Some(given) => Arc::new(schema::with_tensor_item(field, given).unwrap_or_else(|| given.clone())),
            // The text of an id must be preserved: the number `1.50` would be found only as `1.5`.
            None if !typed
                && is_id(field.name())
                && schema::is_scalar(field.data_type())
                && !plain(field.data_type()) =>
            {
                Arc::new(Field::new(field.name(), DataType::Utf8, true))
            }
            None => Arc::clone(field),
        };
        self.bind_types(storable(self.selection.read(&united.iter().map(pin).collect())))
    }
}

/// Returns the error for a column whose values the dataset's type does not hold.
fn unlike_dataset(known: &Field, found: &Field) -> Error {
    let (then, now) = (print_type(known), print_type(found));
    let error = Error::input(format!("this dataset has {then} here; the source has {now}")).in_column(found.name());
    bound_hints(error, found.name(), &then)
}

/// Adds what to do about values that do not fit the type of the dataset.
fn bound_hints(error: Error, column: &str, then: &str) -> Error {
    error
        .with_hint(format!(
            "give the column that type with --type {column}={then}, and omit what does not fit with \
         --on-error skip"
        ))
        .with_hint("or widen the type of the dataset with --on-schema union; --out names another dataset")
}

/// Returns the columns of `--schema`, with the types of `--type`.
fn prescribed_columns(job: &ConvertJob<'_>) -> Result<Option<Fields>> {
    let Some(path) = &job.options.schema else { return Ok(None) };
    let location = job.context.parse_location(path)?;
    let missing = || {
        let error = Error::usage("expected a schema file, found nothing").at_location(path.clone());
        error.with_hint(
            "a schema is a Parquet file, or JSON like {\"columns\": [{\"name\": \"age\", \"type\": \"int64\"}]}",
        )
    };
    let bytes = storage::read_small(SCHEMA, &location, &job.context.settings)?.ok_or_else(missing)?;
    let fields = if parquet::sniff(&bytes) {
        parquet::open(bytes, path)?.schema().fields().clone()
    } else {
        let text = std::str::from_utf8(&bytes)
            .map_err(|e| Error::usage("expected a schema file in UTF-8").at_location(path.clone()).with_cause(e))?;
        schema::file::parse(text).map_err(|e| e.at_location(path.clone()))?
    };
    let given = |field: &Arc<Field>| match job.options.types.iter().find(|f| f.name() == field.name()) {
        Some(given) => Arc::new(given.clone()),
        None => Arc::new(field.as_ref().clone().with_nullable(true)),
    };
    Ok(Some(fields.iter().map(given).collect()))
}

/// Returns the error for a column that no source has.
pub(super) fn unknown_column(wanted: &str, columns: &[impl AsRef<str>]) -> Error {
    schema::hint_columns(Error::usage("no source has this column").in_column(wanted), wanted, columns)
}

/// Returns the error for a column that --columns or --where names and no source has. In a condition, a name in double
/// quotes is a column, and is often meant as text.
pub(super) fn unknown_named_column(options: &ConvertOptions, wanted: &str, columns: &[impl AsRef<str>]) -> Error {
    let in_list = named_columns(options).iter().any(|column| column == wanted);
    let condition = options.filter.as_ref().filter(|_| !in_list);
    let Some(condition) = condition else { return unknown_column(wanted, columns) };
    let error = Error::usage("no source has this column of --where").in_column(wanted);
    match condition.given().contains(&format!("\"{wanted}\"")) {
        true => error.with_hint(format!("text is written in single quotes: '{wanted}'; double quotes name a column")),
        false => schema::hint_columns(error, wanted, columns),
    }
}

/// Returns an error if sources must have the same columns and do not.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input).
pub(super) fn check_same_columns(options: &ConvertOptions, sources: &[RecordSource], fields: &[Fields]) -> Result<()> {
    let names = |fields: &Fields| fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    if options.on_schema == OnSchema::Fail
        && let Some(other) = fields.iter().position(|f| names(f) != names(&fields[0]))
    {
        return Err(Error::input(format!(
            "expected the columns {}, as in {}, found {}",
            names(&fields[0]).join(", "),
            sources[0].file.uri(),
            names(&fields[other]).join(", ")
        ))
        .at_location(sources[other].file.uri())
        .with_hint("unite columns by name with --on-schema keep"));
    }
    Ok(())
}

/// Returns an error if no source has a column that an option names, given the columns of the sources.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage).
pub(super) fn check_named_columns(
    options: &ConvertOptions,
    settings: &Settings,
    sources: &[RecordSource],
    columns: &[String],
) -> Result<()> {
    let wanted = settings.id.iter().chain(&settings.subject);
    for column in wanted.chain(options.types.iter().map(Field::name)) {
        // JSON may have a field that does not occur in the sample.
        let may_hide = |s: &RecordSource| {
            s.reader.facts().columns.is_none() && !(s.format.is_typed() && settings.columns.is_empty())
        };
        let is_nested = || sources.iter().any(|s| field_at(&s.fields, column).is_some());
        if !columns.is_empty() && !columns.contains(column) && !is_nested() && !sources.iter().any(may_hide) {
            return Err(unknown_column(column, columns));
        }
    }
    Ok(())
}

/// Returns the names of all columns of the sources, those included that are not read, given the fields of each source.
pub(super) fn names_of(sources: &[RecordSource], fields: &[Fields]) -> Vec<String> {
    let mut seen = HashSet::new();
    let of = |(source, fields): (&RecordSource, &Fields)| -> Vec<String> {
        let own = source.reader.facts().columns.iter().flatten();
        own.chain(fields.iter().map(|field| field.name())).cloned().collect()
    };
    sources.iter().zip(fields).flat_map(of).filter(|name| seen.insert(name.clone())).collect()
}

/// Returns the columns that `--columns` names, if it names some.
pub(super) fn named_columns(options: &ConvertOptions) -> &[String] {
    match options.columns.as_slice() {
        [all] if all == ALL_COLUMNS => &[],
        some => some,
    }
}

/// Returns an error if two sources that state their types give a column different meanings.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) for the first such column.
pub(super) fn refuse_conflicts(sources: &[RecordSource], fields: &[Fields], given: &[Field]) -> Result<()> {
    let mut first: BTreeMap<&str, (usize, &Field)> = BTreeMap::new();
    for (i, fields) in fields.iter().enumerate().filter(|(i, _)| sources[*i].format.is_typed()) {
        for field in fields.iter().filter(|f| given.iter().all(|g| g.name() != f.name())) {
            let (other, stated) = *first.entry(field.name()).or_insert((i, field));
            if let Some(conflict) = schema::unite_conflict(stated, field) {
                return Err(Error::input(format!("expected columns of one type, found that {conflict}"))
                    .at_location(sources[i].file.uri())
                    .in_column(field.name())
                    .with_hint(format!("the other type is in {}", sources[other].file.uri()))
                    .with_hint("choose sources with --include, or give the column a type with --type, such as text"));
            }
        }
    }
    Ok(())
}

/// Adapts tensor columns to the dataset: in all its Parquet shards, whichever run added them, the tensors of a column
/// either have one common shape or each have their own.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) for tensors of a different shape; when a shard cannot be read.
pub(super) fn fit_shapes(job: &ConvertJob<'_>, format: OutputFormat, fields: Fields) -> Result<Fields> {
    let Some(snapshot) = job.snapshot.filter(|_| format.is_columnar()) else {
        return Ok(fields);
    };
    let Some(shard) = snapshot.live_shards()?.last().filter(|_| outputs::has_tensors(&fields)) else {
        return Ok(fields);
    };
    let place = job.dataset.store().location().join(&shard.path).to_string();
    let known = parquet::open(job.dataset.object_at(&shard.path, shard.bytes), &place)?;
    let fit = |field: &Arc<Field>| {
        let Some((_, known)) = known.schema().fields().find(field.name()) else { return Ok(Arc::clone(field)) };
        let (dims, found) = (tensor_dims(known), tensor_dims(field));
        if dims == found {
            return Ok(Arc::clone(field));
        }
        let rank = |dims: &Option<Vec<Option<usize>>>| dims.as_ref().map(Vec::len);
        if schema::variable_rank(known).is_some() && rank(&dims) == rank(&found) {
            return Ok(Arc::new(schema::unite_fields(known, field)));
        }
        let shape = |dims: Option<Vec<Option<usize>>>| dims.map_or_else(|| "none".to_owned(), |d| print_dims(&d));
        Err(Error::input(format!(
            "expected tensors of the shape that `{}` has in this dataset, {}, found {}",
            field.name(),
            shape(dims),
            shape(found)
        ))
        .at_location(place.as_str())
        .in_column(field.name())
        .with_hint("name another dataset with --out, or choose variables with --read var"))
    };
    fields.iter().map(fit).collect()
}

/// Makes a column binary.
pub(super) fn force_binary(fields: &Fields, column: &str) -> Fields {
    let binary = |field: &Arc<Field>| match field.name() == column {
        true => Arc::new(Field::new(column, DataType::Binary, true)),
        false => Arc::clone(field),
    };
    fields.iter().map(binary).collect()
}
