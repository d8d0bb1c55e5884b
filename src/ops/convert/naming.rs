//! What a run is called: the folder of its shards, and the options that decided what is in them.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Conversion, prepare::Prepared};
use crate::{
    error::Result,
    plan::{memory::MemoryPlan, names::OnMissing},
    schema,
};

/// Bytes that are gathered before they are hashed.
const GATHERED: usize = 64 << 10;

impl Conversion<'_> {
    /// Name of the folder for the new shards: a hash of what goes in and of every option that decides what comes out,
    /// so that the same run writes the same names.
    pub(super) fn tag(&self, prepared: &Prepared, memory: MemoryPlan) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        // There may be millions of names, each shorter than what is hashed at once.
        let mut gathered = Vec::with_capacity(2 * GATHERED);
        let mut add = |text: &str| {
            gathered.extend_from_slice(&(text.len() as u64).to_le_bytes());
            gathered.extend_from_slice(text.as_bytes());
            if gathered.len() >= GATHERED {
                hasher.update(&gathered);
                gathered.clear();
            }
        };
        prepared.files().for_each(|file| {
            add(&self.hiding.as_ref().map_or(Cow::Borrowed(file.name()), |hiding| hiding.source(file.name())));
            add(&file.bytes().to_string());
            add(file.etag().unwrap_or_default());
        });
        for (name, value) in self.arguments(memory) {
            add(&name);
            add(&value);
        }
        hasher.update(&gathered);
        let tag = hasher.finalize().to_hex()[..12].to_owned();
        // The same inputs converted once more into the same dataset must not overwrite what is there.
        let used = |tag: &str| -> Result<bool> {
            let Some(snapshot) = self.snapshot else { return Ok(false) };
            Ok(snapshot.runs()?.all().iter().any(|r| r.shard.split('/').next() == Some(tag)))
        };
        let mut unique = tag.clone();
        let mut serial = 2;
        while used(&unique)? {
            unique = format!("{tag}-{serial}");
            serial += 1;
        }
        Ok(unique)
    }

    pub(super) fn arguments(&self, memory: MemoryPlan) -> BTreeMap<String, String> {
        let options = self.options;
        let mut out = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            if !value.is_empty() {
                out.insert(name.to_owned(), value);
            }
        };
        set("to", self.settings.shard_format.to_string());
        set("codec", self.settings.codec.to_string());
        set("target-shard", self.settings.target_shard.0.to_string());
        set("row-group", self.settings.row_group.0.to_string());
        set("split", memory.split_bytes.to_string());
        set("unit", memory.unit_bytes.to_string());
        set("id", self.settings.id.join(","));
        set("subject", self.settings.subject.clone().unwrap_or_default());
        set("from", options.from.map_or_else(String::new, |f| f.name().to_owned()));
        set("null", options.null.clone().unwrap_or_default());
        set("delimiter", options.delimiter.map_or_else(String::new, |d| char::from(d).to_string()));
        set("no-header", if options.no_header { "true".into() } else { String::new() });
        let indexes: Vec<&str> = options.index.iter().flatten().map(|kind| kind.name()).collect();
        set("index", indexes.join(","));
        set("encoding", options.encoding.map_or_else(String::new, |e| e.to_string()));
        set("schema", self.prescribed.as_ref().map_or_else(String::new, schema::file::print));
        set("on-name", options.on_name.map_or_else(String::new, |on| format!("{on:?}").to_lowercase()));
        set("missing", if options.missing == OnMissing::Skip { "skip".into() } else { String::new() });
        set("rows", options.rows.map_or_else(String::new, |rows| format!("{rows:?}").to_lowercase()));
        set("record-dim", options.arrays.record_dim.clone().unwrap_or_default());
        set("var", options.arrays.vars.join(","));
        set("raw", if options.arrays.raw { "true".into() } else { String::new() });
        set("flatten", if options.arrays.flatten { "true".into() } else { String::new() });
        set("tensors", if options.tensor_lists { "lists".into() } else { String::new() });
        for (name, sizes) in [("patch", &options.arrays.patch), ("stride", &options.arrays.stride)] {
            set(name, sizes.iter().map(|(dim, size)| format!("{dim}={size}")).collect::<Vec<_>>().join(","));
        }
        set("media", if options.media { "hf".into() } else { String::new() });
        set(
            "type",
            options
                .types
                .iter()
                .map(|f| format!("{}={}", f.name(), schema::file::print_type(f)))
                .collect::<Vec<_>>()
                .join(","),
        );
        out
    }
}
