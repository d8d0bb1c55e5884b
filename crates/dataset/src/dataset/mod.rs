//! A dataset: shards, and a log that records which shards are live, what they contain and since which version.
//!
//! ```text
//! DATASET/<tag>/000000.parquet ...      shards of one commit; immutable
//! DATASET/_shardify/
//!   log/<u64::MAX - version>.json       one entry per version, created only if absent: the only commit point
//!   lists/<txn>-<n>-shards-<n>.table    live shards, run table and sources, referenced by entries, merged in levels
//!   sidecar/<tag>/000000.table          per shard, in record order: ids, offset, length, origin, hash
//!   index/<kind>/<txn>-<n>.segment/b=0000.table   sorted (hash, record number): the id index
//!   index/place/<set>/000000.table      sorted (record number, row): rows of sorted records
//!   erasures/<txn>-<n>.json             what an erasure has left to do after its commit
//!   receipts/<txn>.json                 what an erasure did
//!   leases/<txn>-<n>.json               versions and objects that a running erasure still reads
//!   store.json                          result of the test that conditional creates work on this store
//!   intents/<txn>-<n>.json              objects that a run is about to publish, until it has committed
//!   plans/, outcomes/                   work that is cut into tasks, until it is committed
//!   training/<name>/00000000.json       events of a training run that reads a version
//!   pull.json                           copies only: where they come from, and what a pull has not committed yet
//!   staging/, locks/                    temporary files of running commands
//! ```
//!
//! Everything an entry refers to is durable before the entry is created, so a reader that follows an entry never meets
//! a missing object. Record numbers are dense, are assigned at commit and never change: compaction rewrites the run
//! table, never the id index. `docs/FORMAT.md` specifies every column.
//!
//! Submodules, each of which uses only those before it (enforced by `tests/architecture`):
//!
//! ```text
//! table      object names, seals, Parquet tables and range reads of them
//! ids        plain and private ids, as columns and as hashes; salts; sets of record numbers
//! index      the id index: segments, their buckets and roots; places of sorted records
//! log        entries, lists, snapshots, commits, version names, leases
//! plans      work that is cut into tasks: plans, outcomes of tasks
//! sidecar    the ids, origin and position of each record of a shard
//! basis      positions of records, and the hash that names them
//! lookup     lookup by id, prefix or origin
//! training   runs that read a version, and which of their steps had a record
//! erasure    what is erased, what stays blocked, what is left to do
//! retention  expired versions and unreferenced objects
//! ```

mod basis;
mod erasure;
mod ids;
mod index;
mod log;
mod lookup;
mod plans;
mod retention;
mod sidecar;
mod table;
mod training;

pub use self::{
    basis::{PositionedRows, PositionedShard, Positions},
    erasure::{
        block::{BlockChange, change_blocked},
        erase::{Erasure, Rewrite, TaggedVersions, commit_erasure, indexes_to_search, lookup_hits, shards_of},
        reindex::{Reindexed, rewrite_segment, rewrite_source_list},
        suppress::{SuppressList, Suppressed, SuppressedKind, content_text},
        unfinished::{
            ErasureOrder, HashedText, PendingDeletion, find_leftovers, leftovers_among, replaced_objects, without_used,
        },
    },
    ids::{
        IdKind,
        column::{IdColumn, IdHashes},
        numbers::{NumberSet, Renumbering},
        private::{IdKey, IdMode, IdQuery, PrivateChoice, PrivateIds, Pseudonymizer, token_of},
        salt::{KeyedHash, Salt},
        width::{HashPlan, HashWidth},
    },
    index::{
        BLOCK_PAIRS, Block, MergedSegment, PAIR_BYTES, SegmentRef, SegmentTree, SegmentWriter, Segments, bucket_leaf,
        bucket_of, each_pair, merge_into_one,
        places::{PlaceRef, PlacesWriter, read_places},
        read_segment, renumber_segments, segment_leaf, segments_to_merge,
    },
    log::{
        attempts::{self, Attempts},
        commit::commit_transaction,
        committed::CommittedShard,
        duplicates::{
            DuplicateRow, DuplicatesRef, DuplicatesWriter, FirstOccurrence, RowFate, check_duplicates, erase_duplicates,
        },
        entry::{Correction, Counts, Entry, FORMAT_VERSION, Revision, Settings, Totals},
        erased::{Tombstone, read_tombstones},
        erasures::{Erasures, Unfinished},
        gone::GoneRows,
        leases,
        operation::Operation,
        order::{Arrangement, Order, ShardOrder},
        part::Part,
        private::{ContentHashes, choose_private, pseudonymizer_of, stored_hash},
        publication::Publication,
        pulled::{IdColumns, NewCopy, Upstream, commit_copy, data_of, id_columns, lists_of, objects_of},
        resharded::{Parent, commit_reshard},
        retraction::{RemovedBy, Restored, Retraction},
        root::{VersionTree, check_root},
        runs::{Run, RunTable, Scattered},
        shards::{NewShard, ShardMeta, check_folders},
        snapshot::{Dataset, Snapshot},
        sources::{NewSources, OptionalColumns, SourceRow},
        tags::{add_tag, remove_tag},
        transaction::{Numbers, SegmentMerge, Transaction},
    },
    lookup::{
        duplicates::{CameFrom, Duplicate, LeftOut, ReplacedSources, each_left_out, find_duplicates, find_orphaned},
        find::{Hit, Place, PlaceState, find_each, find_hits, find_vacuumed, has_origin},
        placed::places_of,
        prefix::find_prefix,
    },
    plans::{
        Damage, MADE_UP_HINT, NewPlan, Outcome, OutcomeCounts, OutcomeShard, PlanName, PlanRecord, PlanState, PlanTask,
        PlannedSource, Recorded, StoredPlan, TaskMismatch, check_outcomes, claim_attempt, delete_plan,
        delete_void as delete_void_plans, each_source as each_source_of_task, is_of as is_of_plan, open_plans,
        plan_state, publish_like as publish_plan_like, publish_plan, stage_sources, stored_plans,
    },
    retention::{
        audit::Audit,
        sign::put_signs,
        vacuum::{
            DeletableObject, ObjectKind, Retention, Unreferenced, expire_versions, find_unreferenced, retain_deletable,
        },
    },
    sidecar::{
        RecordExtents, RowNumbers, SidecarColumns, SidecarGroups, SidecarPart, SidecarRow, SidecarWriter, SourceRuns,
        end_ids,
        extents::ShardExtents,
        fingerprints::{RecordIdentity, each_known, with_fingerprints},
        frames::{Frame, FrameTable},
        hashes_cover_values,
        lengths::each_length,
        numbers::{Numbered, NumbersWriter, ScatteredNumbers, numbered_rows},
        parts::{PartRow, PartsWriter, read as read_parts},
        range::read_range as read_sidecar_range,
        read_all as read_sidecar, read_frames, read_rows as read_sidecar_rows, sidecar_schema,
        stream_batches as sidecar_batches, stream_rows as stream_sidecar,
    },
    table::{
        beside::Beside,
        closed::encode_json as encode_closed,
        list::ListRef,
        paths::{adopted_sidecar_path, folder_of, is_beside_shards, is_shard_name, receipt_path, sidecar_path},
        sealed::{Sealed, SealingSink, check_sealed, copy_sealed, get_sealed, stage_small},
    },
    training::{
        EpochTurn, PositionedRecord, RUN_TAG, RunCheckpoint, RunEnd, RunEvent, RunOrder, RunProgress, RunReplay,
        RunResume, RunStart, Sighting, StepPositions, Trained, TrainedTurns, TrainingEvent, TrainingRun, append_event,
        check_run_name, copy_runs, has_runs, records_at, run_names, runs_of,
    },
};
