"""The commands of shardify as functions, with all of their options.

Written by scripts/python_functions.py from docs/reference/commands.json; do not edit.

Options are named as on the command line, with `_` for `-`. An option that is not given has the default of the program.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from . import _calls
from ._options import Duration, Path, When
from ._sources import Source
from .progress import Wanted
from .reports import (
    AdoptReport,
    CheckReport,
    CommitReport,
    CompactReport,
    ConvertReport,
    DatasetReport,
    EraseReport,
    Hit,
    InspectReport,
    PlanReport,
    PullReport,
    RemoveReport,
    Report,
    ReshardReport,
    RevertReport,
    SeenInRun,
    TagReport,
    TaskReport,
    TrainingRun,
    VacuumReport,
    VerifyReport,
    VersionReport,
)

Format = Literal[
    "csv",
    "tsv",
    "jsonl",
    "json",
    "parquet",
    "arrow",
    "avro",
    "excel",
    "files",
    "tar",
    "tfrecord",
    "warc",
    "netcdf",
    "hdf5",
    "zarr",
    "npy",
    "safetensors",
    "nifti",
]
Index = Literal["auto", "none", "dali", "wids", "energon", "tfindex", "delta", "hf"]
Accept = Literal["kind", "columns", "settings", "subjects", "labels", "constants", "units"]


class ReadSettings(TypedDict, total=False):
    """Settings of an input format.

    Keys:
        delimiter: CSV. Such as `;`, `tab` or `||`; detected by default.
        quote: CSV. Encloses values; `"` by default.
        escape: CSV. Before a quote, delimiter or line end that is part of a value.
        comment: CSV. Begins lines that are no records.
        skip: CSV and Excel. Lines or rows before the header, or the first record, that are no records.
        decimal: CSV. Before the fraction of a number; `.` by default.
        thousands: CSV. Between thousands, such as `.` in 1.234.567.
        date: CSV. Dates beside ISO 8601, such as %d.%m.%Y.
        timestamp: CSV. Times beside ISO 8601, such as '%m/%d/%Y %I:%M %p'.
        encoding: Text. Such as latin1, windows-1252, utf-16 or shift_jis; detected by default.
        header: CSV and Excel. True: the first row names the columns. False: the first row is data.
        null: CSV and Excel. Texts to treat as null, in addition to empty fields.
        tidy: CSV. True: where the standard reading is impossible, read by another one that fits. False: only the standard reading (RFC
            4180): the first line is the header, all others are records.
        sheet: Excel. Sheet to read; the only visible one with data by default.
        records: JSON. Member of a document that has the records.
        hive_columns: Tables. False: folders KEY=VALUE in paths mean nothing. True: a column for each folder KEY=VALUE in their paths (Hive
            partitions).
        name: Standard input. Its name among the sources, as in origins; `stdin` by default.
        etag: Standard input. The state of what it is a copy of; the same one is not read again.
        end: Arrow. "mark": a stream on standard input is whole if it ends with the end mark. "any": a stream on standard input may end
            without the end mark.
        as_of: Delta. Version v12, or the newest at 2026-11-25T09:00:00Z.
        body: WARC. "decoded": undo chunks, gzip, deflate and zstd of HTTP bodies. "raw": keep bodies as stored.
        text: WARC. "auto": a column of text for WET and WAT. True: a column of text for content in UTF-8; other content stays in `payload`.
            False: all content in `payload`.
        record_dim: Arrays. Dimension along which they are split into records.
        var: Arrays. Variables to read; all by default.
        patch: Arrays. Cut each record into patches of this size.
        stride: Arrays. Distance between the starts of patches; their size by default.
        flatten: Arrays. False: one row per record. True: one row per cell.
        raw: Arrays. False: decode CF conventions: _FillValue, scale_factor, units of time and the like. True: keep values as stored, and
            those without a column type, such as BF16, as their bits.
        sparse: Arrays. False: refuse those that declare far more values than their bytes can hold. True: accept them; what was never
            written are fill values.
    """

    delimiter: str
    quote: str
    escape: str
    comment: str
    skip: int
    decimal: str
    thousands: str
    date: str
    timestamp: str
    encoding: str
    header: bool
    null: str | Iterable[str]
    tidy: bool
    sheet: str
    records: str
    hive_columns: bool
    name: str
    etag: str
    end: Literal["mark", "any"]
    as_of: When
    body: Literal["decoded", "raw"]
    text: Literal["auto", "yes", "no"]
    record_dim: str
    var: str | Iterable[str]
    patch: Mapping[str, int]
    stride: Mapping[str, int]
    flatten: bool
    raw: bool
    sparse: bool


class WriteSettings(TypedDict, total=False):
    """Settings of a shard format.

    Keys:
        row_group: Parquet. Uncompressed size of a row group, at most 128MiB; 64MiB by default.
        media: Parquet. "bytes": images and audio of samples are one binary column per extension. "hf": they are structs of bytes and path,
            as in Hugging Face datasets.
        rows: Tar. "auto": rows with a column __key__ become the samples they came from, other rows JSON. "json": a row is one member
            KEY.json with all columns. "parts": a row is one member KEY.COLUMN for each column that is not null.
        tensors: TFRecord. "bytes": a tensor is its bytes, beside its shape and type. "lists": a tensor is a list of numbers.
    """

    row_group: int | str
    media: Literal["bytes", "hf"]
    rows: Literal["auto", "json", "parts"]
    tensors: Literal["bytes", "lists"]


class PlanOptions(TypedDict, total=False):
    """Options of `plan`."""

    from_: Format | None
    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    columns: str | Iterable[str] | None
    labels: Path | None
    label_column: str | None
    key: str | None
    label_from_folder: bool
    where: str | None
    read: ReadSettings | None
    identity: Literal["path", "content"] | None
    to: Literal["parquet", "tar", "tfrecord"] | None
    target_shard: int | str | None
    split: str | Mapping[str, float] | None
    split_by: str | None
    dedup: str | Iterable[str] | None
    shuffle: int | None
    shards: int | None
    even: bool
    records_per_shard: int | None
    codec: str | None
    limit: int | None
    overwrite: bool
    task_size: int | str | None
    write: WriteSettings | None
    id: str | Iterable[str] | None
    subject: str | None
    subject_from_path: str | None
    subject_table: Path | None
    hash_records: bool
    proofs: bool
    id_normalize: bool
    accept: Accept | Iterable[Accept] | None
    id_mode: Literal["plain", "hmac", "sealed"] | None
    id_key: Path | None
    redact_source_paths: bool
    id_salt: bool
    openlineage: Path | None
    type: Mapping[str, str] | None
    schema: Path | None
    on_schema: Literal["keep", "union", "fail"] | None
    index: Index | Iterable[Index] | None
    on_name: Literal["fail", "rename", "skip"] | None
    on_error: Literal["fail", "skip", "quarantine"] | None
    on_changed: Literal["fail", "append", "replace", "skip"] | None
    missing: Literal["fail", "skip", "keep"] | None
    memory: int | str | None


class PlanCompactOptions(TypedDict, total=False):
    """Options of `plan_compact`."""

    since: When | None
    until: When | None
    min_inputs: int | None
    max_bytes: int | str | None
    target_shard: int | str | None
    codec: str | None
    verify: Literal["full"] | None
    no_check: bool
    openlineage: Path | None
    task_size: int | str | None
    memory: int | str | None


class PlanAdoptOptions(TypedDict, total=False):
    """Options of `plan_adopt`."""

    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    out: Path | None
    id: str | Iterable[str] | None
    subject: str | None
    hash_records: bool
    proofs: bool
    id_mode: Literal["plain", "hmac", "sealed"] | None
    id_key: Path | None
    redact_source_paths: bool
    id_salt: bool
    openlineage: Path | None
    on_error: Literal["fail", "skip"] | None
    task_size: int | str | None
    memory: int | str | None


def convert(
    *sources: Source,
    name: str | None = None,
    etag: str | None = None,
    from_: Format | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    columns: str | Iterable[str] | None = None,
    labels: Path | None = None,
    label_column: str | None = None,
    key: str | None = None,
    label_from_folder: bool = False,
    where: str | None = None,
    read: ReadSettings | None = None,
    identity: Literal["path", "content"] | None = None,
    out: Path | None = None,
    to: Literal["parquet", "tar", "tfrecord"] | None = None,
    target_shard: int | str | None = None,
    split: str | Mapping[str, float] | None = None,
    split_by: str | None = None,
    dedup: str | Iterable[str] | None = None,
    shuffle: int | None = None,
    shards: int | None = None,
    even: bool = False,
    records_per_shard: int | None = None,
    codec: str | None = None,
    dry_run: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    task_size: int | str | None = None,
    write: WriteSettings | None = None,
    id: str | Iterable[str] | None = None,
    subject: str | None = None,
    subject_from_path: str | None = None,
    subject_table: Path | None = None,
    hash_records: bool = False,
    proofs: bool = False,
    id_normalize: bool = False,
    accept: Accept | Iterable[Accept] | None = None,
    id_mode: Literal["plain", "hmac", "sealed"] | None = None,
    id_key: Path | None = None,
    redact_source_paths: bool = False,
    id_salt: bool = False,
    openlineage: Path | None = None,
    type: Mapping[str, str] | None = None,
    schema: Path | None = None,
    on_schema: Literal["keep", "union", "fail"] | None = None,
    index: Index | Iterable[Index] | None = None,
    on_name: Literal["fail", "rename", "skip"] | None = None,
    on_error: Literal["fail", "skip", "quarantine"] | None = None,
    on_changed: Literal["fail", "append", "replace", "skip"] | None = None,
    missing: Literal["fail", "skip", "keep"] | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> ConvertReport:
    """Converts files, tables, archives and arrays into shards of a dataset.

    Inputs that the dataset already has are skipped, so the same call can be repeated as data arrives. All shards of a run become visible in
    one version, or none. A conversion that was killed continues when it is repeated.

    Tables of other packages are objects with `__arrow_c_stream__`: those of pyarrow, Polars, DuckDB, pandas, pyiceberg, ADBC and others.
    They are read in batches, and an exception of theirs is raised as it is; nothing is committed then.

    Args:
        sources: Files, folders, globs or URLs [default: the current folder]; or tables of other packages, and lists or generators of
            tables, of one schema
        name: What tables are called, in origins such as visits#1 and in later calls; required with tables
        etag: State of the tables, such as a snapshot; in the state that the dataset has under this name, they are not read
        from_: Input format [default: detected from the content]
        include: Read only inputs that match
        exclude: Skip inputs that match
        columns: Columns of tables to keep [default: all]
        labels: Table with the labels of files: the row of a sample becomes its part json
        label_column: Column of the labels that becomes the class of a sample: its part cls
        key: The key of a file; files with one key are the parts of one sample
        label_from_folder: Label each sample with the number of the folder directly above its files: its part cls
        where: Rows of tables to keep: a condition in SQL
        read: Settings of the input format, see `ReadSettings`
        identity: How to recognize inputs that were converted before [default: path]
        out: Dataset to create or extend [default: ./shards]
        to: Shard format [default: tables parquet, files tar]
        target_shard: Shard size on disk [default: 128MiB]
        split: Shares of the splits, such as {"train": 0.8, "val": 0.1, "test": 0.1}
        split_by: What `split` keeps together [default: subject id, else record id, else content]
        dedup: Duplicates to omit: those with one content, one record id, or equal values in columns
        shuffle: Shuffle the records, in an order that follows from this seed
        shards: Number of shards, of about equal size
        even: With `shards`: even in records, not in bytes
        records_per_shard: Number of records of each shard; the last shard has the rest
        codec: Compression: none, zstd, lz4, snappy, gzip
        dry_run: Report what would be done, without doing it
        limit: Convert only the first records, as a trial of options
        overwrite: Replace all records of the dataset, in one version
        task_size: Stored size of the inputs of a task [default: 8GiB]
        write: Settings of the shard format, see `WriteSettings`
        id: Columns of the record id [default: origin]
        subject: Column of the subject id
        subject_from_path: Pattern that extracts the subject id of a sample or input from its path
        subject_table: Table with the subject id of each sample or input
        hash_records: Keep the content hash of every row of Parquet shards
        proofs: Make a dataset whose versions can be proved to have an id, or not to have it
        id_normalize: Also skip records whose id is a spelling variant of an erased id
        accept: Accept data that differs in kind from what the dataset holds
        id_mode: How a new dataset stores ids outside of its shards [default: plain]
        id_key: File with the key of private ids
        redact_source_paths: Also store tokens in place of the names and URLs of inputs
        id_salt: Salt the tokens of a new dataset
        openlineage: File or URL to send OpenLineage events to
        type: Types of columns, such as {"age": "int16"}
        schema: File with the columns and their types
        on_schema: How to treat inputs with other columns or types, also than the dataset has [default: keep]
        index: Indexes to write beside the shards, for training tools
        on_name: How to treat names that a reader of the shards cannot handle
        on_error: How to treat bad records and files [default: fail]
        on_changed: How to treat changed inputs [default: fail]
        missing: How to treat samples that lack a part which other samples have [default: keep]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        What was read, written and rejected.

    Raises:
        AllRejectedError: There were records, and every one was rejected; its `report` has the version that was made.
        InputError: A source is bad.
        ChangedError: A source or an option differs from the dataset.
    """
    return _calls.convert(
        sources,
        progress,
        name=name,
        etag=etag,
        from_=from_,
        include=include,
        exclude=exclude,
        columns=columns,
        labels=labels,
        label_column=label_column,
        key=key,
        label_from_folder=label_from_folder,
        where=where,
        read=read,
        identity=identity,
        out=out,
        to=to,
        target_shard=target_shard,
        split=split,
        split_by=split_by,
        dedup=dedup,
        shuffle=shuffle,
        shards=shards,
        even=even,
        records_per_shard=records_per_shard,
        codec=codec,
        dry_run=dry_run,
        limit=limit,
        overwrite=overwrite,
        task_size=task_size,
        write=write,
        id=id,
        subject=subject,
        subject_from_path=subject_from_path,
        subject_table=subject_table,
        hash_records=hash_records,
        proofs=proofs,
        id_normalize=id_normalize,
        accept=accept,
        id_mode=id_mode,
        id_key=id_key,
        redact_source_paths=redact_source_paths,
        id_salt=id_salt,
        openlineage=openlineage,
        type=type,
        schema=schema,
        on_schema=on_schema,
        index=index,
        on_name=on_name,
        on_error=on_error,
        on_changed=on_changed,
        missing=missing,
        jobs=jobs,
        memory=memory,
    )


def adopt(
    source: Path,
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    out: Path | None = None,
    id: str | Iterable[str] | None = None,
    subject: str | None = None,
    hash_records: bool = False,
    proofs: bool = False,
    id_mode: Literal["plain", "hmac", "sealed"] | None = None,
    id_key: Path | None = None,
    redact_source_paths: bool = False,
    id_salt: bool = False,
    openlineage: Path | None = None,
    on_error: Literal["fail", "skip"] | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> AdoptReport:
    """Registers existing Parquet, tar or TFRecord shards as a dataset without rewriting them.

    Args:
        source: Folder of the shards; becomes the dataset unless `out` is given
        include: Adopt only files that match
        exclude: Skip files that match
        out: Dataset to link the shards into [default: SOURCE]
        id: Columns or features of the record id
        subject: Column or feature of the subject id
        hash_records: Keep the content hash of every row of Parquet
        proofs: Make a dataset whose versions can be proved to have an id, or not to have it
        id_mode: How a new dataset stores ids outside of its shards [default: plain]
        id_key: File with the key of private ids
        redact_source_paths: Also store tokens in place of the names and URLs of inputs
        id_salt: Salt the tokens of a new dataset
        openlineage: File or URL to send OpenLineage events to
        on_error: How to treat damaged files [default: fail]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The shards and records that the dataset has now.

    Raises:
        AllRejectedError: There were records, and every one was rejected; its `report` has the version that was made.
    """
    return _calls.adopt(
        source,
        progress,
        include=include,
        exclude=exclude,
        out=out,
        id=id,
        subject=subject,
        hash_records=hash_records,
        proofs=proofs,
        id_mode=id_mode,
        id_key=id_key,
        redact_source_paths=redact_source_paths,
        id_salt=id_salt,
        openlineage=openlineage,
        on_error=on_error,
        jobs=jobs,
        memory=memory,
    )


def compact(
    dataset: Path,
    *,
    since: When | None = None,
    until: When | None = None,
    min_inputs: int | None = None,
    max_bytes: int | str | None = None,
    target_shard: int | str | None = None,
    codec: str | None = None,
    sort_by: str | Iterable[str] | None = None,
    zorder: str | Iterable[str] | None = None,
    dry_run: bool = False,
    verify: Literal["full"] | None = None,
    no_check: bool = False,
    openlineage: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> CompactReport:
    """Merges small shards, and divides large ones.

    Args:
        dataset: Dataset or Delta table
        since: Merge only shards committed at this time or later
        until: Merge only shards committed at this time or earlier
        min_inputs: Minimum number of shards to merge [default: 5]
        max_bytes: Rewrite at most this much; later runs do the rest
        target_shard: Shard size on disk [default: as before]
        codec: Parquet compression [default: as before]
        sort_by: Sort the records by columns
        zorder: Cluster the records by several columns
        dry_run: Report what would be done, without doing it
        verify: Verify new shards against their inputs
        no_check: Do not check the checksums inside TFRecord shards
        openlineage: File or URL to send OpenLineage events to
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The shards before and after.
    """
    return _calls.compact(
        dataset,
        progress,
        since=since,
        until=until,
        min_inputs=min_inputs,
        max_bytes=max_bytes,
        target_shard=target_shard,
        codec=codec,
        sort_by=sort_by,
        zorder=zorder,
        dry_run=dry_run,
        verify=verify,
        no_check=no_check,
        openlineage=openlineage,
        jobs=jobs,
        memory=memory,
    )


def reshard(
    dataset: Path,
    out: Path,
    *,
    at: When | None = None,
    ids: Path | Iterable[str] | None = None,
    where: str | None = None,
    split: str | Iterable[str] | None = None,
    sample: float | None = None,
    seed: int | None = None,
    dedup: str | Iterable[str] | None = None,
    shuffle: int | None = None,
    target_shard: int | str | None = None,
    shards: int | None = None,
    even: bool = False,
    records_per_shard: int | None = None,
    dry_run: bool = False,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> ReshardReport:
    """Cuts a version into other shards, in a new dataset, with all of the records or some.

    Args:
        dataset: Dataset: a folder or URL
        out: New dataset: a folder or URL without one
        at: Version to rewrite [default: newest]
        ids: Ids of the records, as a list or as a file with one per line
        where: Take the records that satisfy a condition
        split: Take only these splits of a dataset made with `convert(split=...)`
        sample: Take a random share of the records, such as 0.1
        seed: With `sample`: choose other records [default: 0]
        dedup: Take the first of duplicates: by content, id, or columns
        shuffle: Put the records in a random order, which follows from a seed
        target_shard: Shard size on disk [default: that of the dataset]
        shards: Number of shards, of about equal size
        even: With `shards`: even in records, not in bytes
        records_per_shard: Records of each shard; the last one has the rest
        dry_run: Report what would be done, without doing it
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The new shards, and the ids that no record has.
    """
    return _calls.reshard(
        dataset,
        out,
        progress,
        at=at,
        ids=ids,
        where=where,
        split=split,
        sample=sample,
        seed=seed,
        dedup=dedup,
        shuffle=shuffle,
        target_shard=target_shard,
        shards=shards,
        even=even,
        records_per_shard=records_per_shard,
        dry_run=dry_run,
        id_key=id_key,
        jobs=jobs,
        memory=memory,
    )


def erase(
    dataset: Path,
    *words: str,
    subject: str | Iterable[str] | None = None,
    record: str | Iterable[str] | None = None,
    source: str | Iterable[str] | None = None,
    ids: Path | Iterable[str] | None = None,
    all_versions: bool = False,
    dry_run: bool = False,
    receipt: Path | None = None,
    reason: str | None = None,
    id_key: Path | None = None,
    openlineage: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> EraseReport:
    """Erases records, or all records of a subject, and blocks their re-import.

    Ids are passed by standard input, since other users of the machine see command lines. Of ids of several kinds in one call, only those of
    the first kind are.

    Args:
        dataset: Dataset
        words: Record ids, subject ids or origins; an id that matches more than one kind is refused
        subject: Erase all records of this subject
        record: Erase the record with this record id
        source: Erase row N of an input
        ids: Ids of the records, as a list or as a file with one per line
        all_versions: Erase from all readable versions, not only the newest
        dry_run: Report what would be done, without doing it
        receipt: Also write the receipt to this file
        reason: Reason, stored with the version; must not name a person
        id_key: File with the key of private ids
        openlineage: File or URL to send OpenLineage events to
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        What was erased, the receipt, and the ids that no record has.
    """
    return _calls.erase(
        dataset,
        words,
        progress,
        subject=subject,
        record=record,
        source=source,
        ids=ids,
        all_versions=all_versions,
        dry_run=dry_run,
        receipt=receipt,
        reason=reason,
        id_key=id_key,
        openlineage=openlineage,
        jobs=jobs,
        memory=memory,
    )


def remove(
    dataset: Path,
    *,
    source: str | None = None,
    run: When | None = None,
    dry_run: bool = False,
    id_key: Path | None = None,
    openlineage: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> RemoveReport:
    """Removes the records of an input or a run from the newest version; older versions keep them.

    Args:
        dataset: Dataset
        source: Remove the records of this input: a name, path or URL
        run: Remove the records that this version added
        dry_run: Report what would be done, without doing it
        id_key: File with the key of private ids
        openlineage: File or URL to send OpenLineage events to
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The records and shards that were removed.
    """
    return _calls.remove(
        dataset,
        progress,
        source=source,
        run=run,
        dry_run=dry_run,
        id_key=id_key,
        openlineage=openlineage,
        jobs=jobs,
        memory=memory,
    )


def revert(
    dataset: Path,
    to: When,
    *,
    dry_run: bool = False,
    openlineage: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> RevertReport:
    """Restores the content of an older version as a new version.

    Args:
        dataset: Dataset
        to: Version to restore
        dry_run: Report what would be done, without doing it
        openlineage: File or URL to send OpenLineage events to
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The version that was made, and the records before and after.
    """
    return _calls.revert(dataset, to, progress, dry_run=dry_run, openlineage=openlineage, jobs=jobs, memory=memory)


def vacuum(
    dataset: Path,
    *,
    retain: Duration | None = None,
    force: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> VacuumReport:
    """Deletes files that no retained version needs.

    Args:
        dataset: Dataset, or a Delta table
        retain: Time that replaced versions stay readable [default: 7d]
        force: Allow a retention of less than a day, or than a Delta table states
        dry_run: Report what would be done, without doing it
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        What was deleted.
    """
    return _calls.vacuum(dataset, progress, retain=retain, force=force, dry_run=dry_run, jobs=jobs, memory=memory)


def pull(
    dataset: Path,
    folder: Path,
    *,
    at: When | None = None,
    split: str | Iterable[str] | None = None,
    data_only: bool = False,
    prune: bool = False,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> PullReport:
    """Copies a version of a dataset to a local folder, checked. A later pull fetches what is new.

    Args:
        dataset: Dataset to copy: a folder or URL
        folder: Local folder: new, empty, or pulled from the same dataset
        at: Version to copy [default: newest]
        split: Copy only these splits of a dataset made with `convert(split=...)` [default: all]
        data_only: Copy only the shards, and what readers need beside them
        prune: Delete older versions of the copy
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The version of the copy, and what was fetched.
    """
    return _calls.pull(dataset, folder, progress, at=at, split=split, data_only=data_only, prune=prune, jobs=jobs, memory=memory)


def report(
    source: Path,
    *,
    html: Path | None = None,
    against: When | None = None,
    ids: bool = False,
    at: When | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> DatasetReport:
    """Describes a dataset, or files that are not converted yet. `html="report.html"` writes it as a page, too.

    Args:
        source: Dataset, file, folder, glob or URL
        html: Write the report to a self-contained HTML file
        against: Compare the values with those of another version
        ids: Ids of the records, as a list or as a file with one per line
        at: Version of the dataset [default: newest]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        Versions, columns, rejects and drift.
    """
    return _calls.report(source, progress, html=html, against=against, ids=ids, at=at, jobs=jobs, memory=memory)


def inspect(
    source: Path = ".",
    *,
    from_: Format | None = None,
    read: ReadSettings | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> InspectReport:
    """Shows formats, sizes and columns of files, and what to do next. A sample is read, and nothing is written.

    Args:
        source: Dataset, file, folder, glob or URL [default: current folder]
        from_: Format of the source [default: detected from the content]
        read: Settings of the input format, see `ReadSettings`
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        Formats, columns and problems; `call` is the next call.
    """
    return _calls.inspect(source, from_=from_, read=read, jobs=jobs, memory=memory)


def head(
    source: Path,
    n: int = 10,
    *,
    at: When | None = None,
    from_: Format | None = None,
    read: ReadSettings | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[dict[str, Any]]:
    """Reads the first records of a dataset, file or folder.

    Args:
        source: Dataset, file, folder, glob or URL
        n: Number of records
        at: Version of the dataset [default: newest]
        from_: Format of the source [default: detected from the content]
        read: Settings of the input format, see `ReadSettings`
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        A dictionary for each record: the values of a row by column, or the `key` and `parts` of a sample.
    """
    return _calls.head(source, n, at=at, from_=from_, read=read, jobs=jobs, memory=memory)


def find(
    dataset: Path,
    *ids: str,
    limit: int | None = None,
    at: When | None = None,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[Hit]:
    """Finds the records of record ids and subject ids.

    `PAT-000*` finds all ids that begin so; a literal star at the end is `\\*`. Ids are passed by standard input, since other users of the
    machine see command lines.

    Args:
        dataset: Dataset
        ids: Record ids, subject ids, or beginnings of them with a star
        limit: Show at most N records per id or prefix
        at: Version to read [default: the newest]
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        A `Hit` for each record: its shard, its origin, and the versions that have it.
    """
    return _calls.find(dataset, ids, limit=limit, at=at, id_key=id_key, jobs=jobs, memory=memory)


def runs(
    dataset: Path,
    *,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[TrainingRun]:
    """Lists the training runs of a dataset, which `loader.record(...)` has recorded.

    Args:
        dataset: Dataset
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        What each run reads, how far it came, and its checkpoints.
    """
    return _calls.runs(dataset, jobs=jobs, memory=memory)


def find_in_runs(
    dataset: Path,
    *ids: str,
    run: str | None = None,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[SeenInRun]:
    """Says which steps of training runs had the records of some ids, and which checkpoint is the newest that saw none of them.

    The ids are taken together. They are passed by standard input, since other users of the machine see command lines.

    Args:
        dataset: Dataset
        ids: Record ids, subject ids, or origins (file#row)
        run: Name of a run [default: all of them]
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        A report for each run, with every step; it is false if no step had one of them.
    """
    return _calls.find_in_runs(dataset, ids, run=run, id_key=id_key, jobs=jobs, memory=memory)


def history(
    dataset: Path,
    *,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[VersionReport]:
    """Lists the versions of a dataset, the newest last.

    Args:
        dataset: Dataset
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        What each run did, its time and tags, and the live shards and records after it.
    """
    return _calls.history(dataset, jobs=jobs, memory=memory)


def diff(
    dataset: Path,
    before: When,
    after: When,
    *,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> list[Report]:
    """Compares two versions: shards, sources and records that were added, removed, changed or moved.

    Args:
        dataset: Dataset
        before: Older version
        after: Newer version
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        A report for each difference; the last one has the sums.
    """
    return _calls.diff(dataset, before, after, id_key=id_key, jobs=jobs, memory=memory)


def tag(
    dataset: Path,
    name: str,
    *,
    at: When | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> TagReport:
    """Gives a version a name. `vacuum` keeps tagged versions, and whatever takes a version takes its tag.

    Args:
        dataset: Dataset
        name: Begins with a letter and consists of letters, digits and . _ - + /
        at: Version to read [default: the newest]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        The tag and its version.
    """
    return _calls.tag(dataset, name, at=at, jobs=jobs, memory=memory)


def untag(
    dataset: Path,
    name: str,
    *,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> TagReport:
    """Deletes a tag. `vacuum` may then delete the version.

    Args:
        dataset: Dataset
        name: Name of the tag
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        The tag and its version.
    """
    return _calls.untag(dataset, name, jobs=jobs, memory=memory)


def verify(
    dataset: Path,
    *,
    at: When | None = None,
    read_data: bool = False,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> VerifyReport:
    """Checks a dataset against its log.

    Args:
        dataset: Dataset
        at: Version to verify [default: the newest]
        read_data: Read every byte of every shard
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        A report that is false if something is damaged, and names it.
    """
    return _calls.verify(dataset, progress, at=at, read_data=read_data, id_key=id_key, jobs=jobs, memory=memory)


def check(
    dataset: Path,
    rules: Path,
    *,
    at: When | None = None,
    prometheus: Path | None = None,
    openlineage: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> CheckReport:
    """Checks the data of a version by a file of rules.

    Args:
        dataset: Dataset
        rules: File of rules, in TOML
        at: Version to check [default: newest]
        prometheus: Write the results as Prometheus metrics to a file; `-` is standard output
        openlineage: File or URL to send OpenLineage events to
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        A report that is false if a rule fails, with all rules and what was found.
    """
    return _calls.check(dataset, rules, progress, at=at, prometheus=prometheus, openlineage=openlineage, jobs=jobs, memory=memory)


def plan(
    *sources: Path,
    from_: Format | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    columns: str | Iterable[str] | None = None,
    labels: Path | None = None,
    label_column: str | None = None,
    key: str | None = None,
    label_from_folder: bool = False,
    where: str | None = None,
    read: ReadSettings | None = None,
    identity: Literal["path", "content"] | None = None,
    out: Path | None = None,
    to: Literal["parquet", "tar", "tfrecord"] | None = None,
    target_shard: int | str | None = None,
    split: str | Mapping[str, float] | None = None,
    split_by: str | None = None,
    dedup: str | Iterable[str] | None = None,
    shuffle: int | None = None,
    shards: int | None = None,
    even: bool = False,
    records_per_shard: int | None = None,
    codec: str | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    task_size: int | str | None = None,
    write: WriteSettings | None = None,
    id: str | Iterable[str] | None = None,
    subject: str | None = None,
    subject_from_path: str | None = None,
    subject_table: Path | None = None,
    hash_records: bool = False,
    proofs: bool = False,
    id_normalize: bool = False,
    accept: Accept | Iterable[Accept] | None = None,
    id_mode: Literal["plain", "hmac", "sealed"] | None = None,
    id_key: Path | None = None,
    redact_source_paths: bool = False,
    id_salt: bool = False,
    openlineage: Path | None = None,
    type: Mapping[str, str] | None = None,
    schema: Path | None = None,
    on_schema: Literal["keep", "union", "fail"] | None = None,
    index: Index | Iterable[Index] | None = None,
    on_name: Literal["fail", "rename", "skip"] | None = None,
    on_error: Literal["fail", "skip", "quarantine"] | None = None,
    on_changed: Literal["fail", "append", "replace", "skip"] | None = None,
    missing: Literal["fail", "skip", "keep"] | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> PlanReport:
    """Plans a conversion as tasks, which `run_task` runs anywhere and in any order, and `commit` makes visible.

    Args:
        sources: Files, folders, globs or URLs [default: the current folder]
        from_: Input format [default: detected from the content]
        include: Read only inputs that match
        exclude: Skip inputs that match
        columns: Columns of tables to keep [default: all]
        labels: Table with the labels of files: the row of a sample becomes its part json
        label_column: Column of the labels that becomes the class of a sample: its part cls
        key: The key of a file; files with one key are the parts of one sample
        label_from_folder: Label each sample with the number of the folder directly above its files: its part cls
        where: Rows of tables to keep: a condition in SQL
        read: Settings of the input format, see `ReadSettings`
        identity: How to recognize inputs that were converted before [default: path]
        out: Dataset to create or extend [default: ./shards]
        to: Shard format [default: tables parquet, files tar]
        target_shard: Shard size on disk [default: 128MiB]
        split: Shares of the splits, such as {"train": 0.8, "val": 0.1, "test": 0.1}
        split_by: What `split` keeps together [default: subject id, else record id, else content]
        dedup: Duplicates to omit: those with one content, one record id, or equal values in columns
        shuffle: Shuffle the records, in an order that follows from this seed
        shards: Number of shards, of about equal size
        even: With `shards`: even in records, not in bytes
        records_per_shard: Number of records of each shard; the last shard has the rest
        codec: Compression: none, zstd, lz4, snappy, gzip
        limit: Convert only the first records, as a trial of options
        overwrite: Replace all records of the dataset, in one version
        task_size: Stored size of the inputs of a task [default: 8GiB]
        write: Settings of the shard format, see `WriteSettings`
        id: Columns of the record id [default: origin]
        subject: Column of the subject id
        subject_from_path: Pattern that extracts the subject id of a sample or input from its path
        subject_table: Table with the subject id of each sample or input
        hash_records: Keep the content hash of every row of Parquet shards
        proofs: Make a dataset whose versions can be proved to have an id, or not to have it
        id_normalize: Also skip records whose id is a spelling variant of an erased id
        accept: Accept data that differs in kind from what the dataset holds
        id_mode: How a new dataset stores ids outside of its shards [default: plain]
        id_key: File with the key of private ids
        redact_source_paths: Also store tokens in place of the names and URLs of inputs
        id_salt: Salt the tokens of a new dataset
        openlineage: File or URL to send OpenLineage events to
        type: Types of columns, such as {"age": "int16"}
        schema: File with the columns and their types
        on_schema: How to treat inputs with other columns or types, also than the dataset has [default: keep]
        index: Indexes to write beside the shards, for training tools
        on_name: How to treat names that a reader of the shards cannot handle
        on_error: How to treat bad records and files [default: fail]
        on_changed: How to treat changed inputs [default: fail]
        missing: How to treat samples that lack a part which other samples have [default: keep]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The path of the plan, and its number of tasks.
    """
    return _calls.plan(
        sources,
        progress,
        from_=from_,
        include=include,
        exclude=exclude,
        columns=columns,
        labels=labels,
        label_column=label_column,
        key=key,
        label_from_folder=label_from_folder,
        where=where,
        read=read,
        identity=identity,
        out=out,
        to=to,
        target_shard=target_shard,
        split=split,
        split_by=split_by,
        dedup=dedup,
        shuffle=shuffle,
        shards=shards,
        even=even,
        records_per_shard=records_per_shard,
        codec=codec,
        limit=limit,
        overwrite=overwrite,
        task_size=task_size,
        write=write,
        id=id,
        subject=subject,
        subject_from_path=subject_from_path,
        subject_table=subject_table,
        hash_records=hash_records,
        proofs=proofs,
        id_normalize=id_normalize,
        accept=accept,
        id_mode=id_mode,
        id_key=id_key,
        redact_source_paths=redact_source_paths,
        id_salt=id_salt,
        openlineage=openlineage,
        type=type,
        schema=schema,
        on_schema=on_schema,
        index=index,
        on_name=on_name,
        on_error=on_error,
        on_changed=on_changed,
        missing=missing,
        jobs=jobs,
        memory=memory,
    )


def plan_compact(
    dataset: Path,
    *,
    since: When | None = None,
    until: When | None = None,
    min_inputs: int | None = None,
    max_bytes: int | str | None = None,
    target_shard: int | str | None = None,
    codec: str | None = None,
    verify: Literal["full"] | None = None,
    no_check: bool = False,
    openlineage: Path | None = None,
    task_size: int | str | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> PlanReport:
    """Plans a compaction as tasks.

    Args:
        dataset: Dataset or Delta table
        since: Merge only shards committed at this time or later
        until: Merge only shards committed at this time or earlier
        min_inputs: Minimum number of shards to merge [default: 5]
        max_bytes: Rewrite at most this much; later runs do the rest
        target_shard: Shard size on disk [default: as before]
        codec: Parquet compression [default: as before]
        verify: Verify new shards against their inputs
        no_check: Do not check the checksums inside TFRecord shards
        openlineage: File or URL to send OpenLineage events to
        task_size: Bytes of shards for each task [default: 8GiB]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The path of the plan, and its number of tasks.
    """
    return _calls.plan_compact(
        dataset,
        progress,
        since=since,
        until=until,
        min_inputs=min_inputs,
        max_bytes=max_bytes,
        target_shard=target_shard,
        codec=codec,
        verify=verify,
        no_check=no_check,
        openlineage=openlineage,
        task_size=task_size,
        jobs=jobs,
        memory=memory,
    )


def plan_adopt(
    source: Path,
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    out: Path | None = None,
    id: str | Iterable[str] | None = None,
    subject: str | None = None,
    hash_records: bool = False,
    proofs: bool = False,
    id_mode: Literal["plain", "hmac", "sealed"] | None = None,
    id_key: Path | None = None,
    redact_source_paths: bool = False,
    id_salt: bool = False,
    openlineage: Path | None = None,
    on_error: Literal["fail", "skip"] | None = None,
    task_size: int | str | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> PlanReport:
    """Plans the adoption of existing shards as tasks.

    Args:
        source: Folder of the shards; becomes the dataset unless `out` is given
        include: Adopt only files that match
        exclude: Skip files that match
        out: Dataset to link the shards into [default: SOURCE]
        id: Columns or features of the record id
        subject: Column or feature of the subject id
        hash_records: Keep the content hash of every row of Parquet
        proofs: Make a dataset whose versions can be proved to have an id, or not to have it
        id_mode: How a new dataset stores ids outside of its shards [default: plain]
        id_key: File with the key of private ids
        redact_source_paths: Also store tokens in place of the names and URLs of inputs
        id_salt: Salt the tokens of a new dataset
        openlineage: File or URL to send OpenLineage events to
        on_error: How to treat damaged files [default: fail]
        task_size: Bytes of files for each task [default: 8GiB]
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        The path of the plan, and its number of tasks.
    """
    return _calls.plan_adopt(
        source,
        progress,
        include=include,
        exclude=exclude,
        out=out,
        id=id,
        subject=subject,
        hash_records=hash_records,
        proofs=proofs,
        id_mode=id_mode,
        id_key=id_key,
        redact_source_paths=redact_source_paths,
        id_salt=id_salt,
        openlineage=openlineage,
        on_error=on_error,
        task_size=task_size,
        jobs=jobs,
        memory=memory,
    )


def run_task(
    plan: Path,
    task: int,
    *,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
    progress: Wanted = None,
) -> TaskReport:
    """Runs one task of a plan; a task that was run before ends at once.

    Args:
        plan: Path or URL of the plan
        task: Number of the task, from 0
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]
        progress: `True` for a bar, or a function that gets a `Progress` about once a second.

    Returns:
        What the task read and wrote.
    """
    return _calls.run_task(plan, task, progress, id_key=id_key, jobs=jobs, memory=memory)


def commit(
    plan: Path,
    *,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> CommitReport:
    """Commits a plan whose tasks have all been run.

    Args:
        plan: Path or URL of the plan
        id_key: File with the key of private ids
        jobs: Number of threads [default: all cores]
        memory: Memory limit [default: 1GiB]

    Returns:
        The version; or the next plan, with wider types, if a value fitted no column.

    Raises:
        AllRejectedError: There were records, and every one was rejected; its `report` has the version that was made.
        ConflictError: A task is missing, or another run was faster.
    """
    return _calls.commit(plan, id_key=id_key, jobs=jobs, memory=memory)
