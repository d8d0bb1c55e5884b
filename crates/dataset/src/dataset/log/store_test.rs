//! Test that a store lets exactly one of several creators of an object win, on which every commit relies.
//!
//! Some stores that speak a cloud's protocol ignore the condition of a conditional create: two runs would then both
//! believe that they created the same version, and one would lose its records. So the first run that writes to a remote
//! dataset lets creators race for a key and stores the result beside the log, with the location and the server: a
//! dataset that is copied elsewhere, or reached through another server, is tested again.
//!
//! ```text
//! _shardify/proof/<random>    raced for, then deleted
//! _shardify/store.json        {"conditional_create": "proven", "location": "s3://bucket/dataset", "checksum": ...}
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    dataset::table::{closed, paths::system_path},
    error::{Error, Result},
    id::TransactionId,
    storage::{PutOutcome, Store},
};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TestResult {
    conditional_create: String,
    location: String,
    /// Server that was tested, if it is not the one that the location implies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
}

/// Ensures that conditional creates work; local file systems need no test.
pub(in crate::dataset) fn test_conditional_create(store: &dyn Store) -> Result<()> {
    if store.location().local_path().is_some() {
        return Ok(());
    }
    let path = system_path("store.json");
    let result = TestResult {
        conditional_create: "proven".to_owned(),
        location: store.location().to_string(),
        endpoint: store.endpoint(),
    };
    if let Some(bytes) = store.get(&path)?
        && closed::decode_json::<TestResult>(store, &path, &bytes, "the result").is_ok_and(|found| found == result)
    {
        return Ok(());
    }
    race_creation(store)?;
    store.put(&path, closed::encode_json(&result, "the result of the store test")?.into())
}

fn race_creation(store: &dyn Store) -> Result<()> {
    let key = system_path(&format!("proof/{}", TransactionId::fresh()));
    let creators = ["one", "other"];
    let outcomes: Vec<Result<PutOutcome>> = std::thread::scope(|scope| {
        let racing = creators.map(|name| {
            let key = &key;
            scope.spawn(move || store.put_if_absent(key, name.into()))
        });
        racing.into_iter().map(|r| r.join().unwrap_or_else(|_| Err(Error::internal("a thread gave up")))).collect()
    });
    let outcomes: Vec<PutOutcome> = outcomes.into_iter().collect::<Result<_>>()?;
    // A create after the race must fail too.
    let late = store.put_if_absent(&key, "late".into())?;
    let kept = store.get(&key)?;
    store.delete(&key)?;
    let winners: Vec<&str> =
        creators.iter().zip(&outcomes).filter(|(_, o)| **o == PutOutcome::Created).map(|(name, _)| *name).collect();
    // A creator whose request was repeated after a lost reply does not know that it has won.
    let fair = match winners[..] {
        [] => kept.is_some_and(|bytes| creators.iter().any(|name| bytes == name.as_bytes())),
        [winner] => kept.is_some_and(|bytes| bytes == winner.as_bytes()),
        _ => false,
    };
    if fair && late == PutOutcome::Exists {
        return Ok(());
    }
    Err(Error::storage("expected exactly one of several creators of an object to win, found several")
        .at_location(store.location().to_string())
        .with_hint(
            "this store ignores conditional creates (If-None-Match: *), without which concurrent commits lose records",
        )
        .with_hint(
            "put the dataset into a store that supports them: Amazon S3, Google Cloud Storage, Azure, MinIO, a local \
             folder",
        ))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn a_store_is_tried_once_for_each_place() {
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        test_conditional_create(store).unwrap();
        let kept = store.get("_shardify/store.json").unwrap().unwrap();
        let fields: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!((&fields["conditional_create"], &fields["location"]), (&"proven".into(), &"memory:///".into()));
        assert!(store.list_folder("_shardify/proof").unwrap().is_empty());
        test_conditional_create(store).unwrap();
        let result = |location: &str, endpoint: Option<&str>| TestResult {
            conditional_create: "proven".to_owned(),
            location: location.to_owned(),
            endpoint: endpoint.map(str::to_owned),
        };
        let other_place = closed::encode_json(&result("s3:///", None), "it").unwrap();
        let other_server = closed::encode_json(&result("memory:///", Some("http://mirror:9000")), "it").unwrap();
        let damaged = String::from_utf8_lossy(&other_place).replace("s3:///", "memory:///").into_bytes();
        for elsewhere in [other_place, other_server, damaged] {
            store.put("_shardify/store.json", elsewhere.into()).unwrap();
            test_conditional_create(store).unwrap();
            assert_eq!(store.get("_shardify/store.json").unwrap().unwrap(), kept);
        }
    }
}
