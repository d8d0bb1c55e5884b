//! One contract, every store: what `storage::Store` promises, checked against each implementation.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{io::Read, io::Write, sync::Arc};

use shardify::{
    error::Kind,
    storage::{LocalStore, Object, PutOutcome, RemoteStore, Store},
};

/// Runs every part of the contract on fresh stores.
fn conforms(fresh: &dyn Fn() -> Arc<dyn Store>) {
    whole_objects(fresh().as_ref());
    conditional_creates(&fresh());
    listings(fresh().as_ref());
    sinks(fresh().as_ref());
    ranges(&fresh());
    locks(fresh().as_ref());
}

#[test]
fn local_folder_conforms() {
    let folders = std::cell::RefCell::new(Vec::new());
    conforms(&|| {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(folder.path().join("not/there/yet"));
        folders.borrow_mut().push(folder);
        Arc::new(store)
    });
}

#[test]
fn memory_conforms() {
    conforms(&|| Arc::new(RemoteStore::memory().unwrap()));
}

fn whole_objects(store: &dyn Store) {
    assert_eq!(store.get("a/b.txt").unwrap(), None);
    assert_eq!(store.head("a/b.txt").unwrap(), None);
    store.put("a/b.txt", "one".into()).unwrap();
    assert_eq!(store.get("a/b.txt").unwrap().unwrap(), "one");
    assert_eq!(store.head("a/b.txt").unwrap().unwrap().bytes, 3);
    store.put("a/b.txt", "second".into()).unwrap();
    assert_eq!(store.get("a/b.txt").unwrap().unwrap(), "second");
    store.put("empty", bytes::Bytes::new()).unwrap();
    assert_eq!(store.get("empty").unwrap().unwrap().len(), 0);
    store.delete("a/b.txt").unwrap();
    store.delete("a/b.txt").unwrap();
    assert_eq!(store.get("a/b.txt").unwrap(), None);
    let mut text = String::new();
    store.put("odd name/ü %20#?.txt", "odd".into()).unwrap();
    store.read("odd name/ü %20#?.txt").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "odd");
    assert_eq!(store.read("missing").map(|_| ()).unwrap_err().kind(), Kind::Storage);
}

/// Of many writers of one name exactly one wins, and its bytes are there.
fn conditional_creates(store: &Arc<dyn Store>) {
    for round in 0..20 {
        let path = format!("log/{round:05}.json");
        let winners: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let path = path.clone();
                    scope.spawn(move || (i, store.put_if_absent(&path, format!("writer {i}").into()).unwrap()))
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap())
                .filter(|(_, outcome)| *outcome == PutOutcome::Created)
                .map(|(i, _)| i)
                .collect()
        });
        assert_eq!(winners.len(), 1);
        assert_eq!(store.get(&path).unwrap().unwrap(), format!("writer {}", winners[0]));
    }
}

fn listings(store: &dyn Store) {
    assert!(store.list("").unwrap().is_empty());
    assert_eq!(store.first("log").unwrap(), None);
    for path in ["log/3", "log/1", "log/2/deep", "other/x"] {
        store.put(path, "x".into()).unwrap();
    }
    let paths = |folder: &str| store.list(folder).unwrap().into_iter().map(|o| o.path).collect::<Vec<_>>();
    assert_eq!(paths("log"), ["log/1", "log/2/deep", "log/3"]);
    assert_eq!(paths("").len(), 4);
    assert!(paths("nothing").is_empty());
    assert!(paths("lo").is_empty(), "a folder is not a prefix of names");
    assert_eq!(store.first("log").unwrap().unwrap(), "log/1");
}

/// What goes through a sink is invisible until published; what is dropped never becomes visible.
fn sinks(store: &dyn Store) {
    let write = |path: &str, bytes: &[u8]| {
        let mut sink = store.create(path).unwrap();
        sink.write_all(bytes).unwrap();
        sink.finish().unwrap()
    };
    let visible = || {
        store
            .list("")
            .unwrap()
            .into_iter()
            .map(|o| o.path)
            .filter(|p| !p.starts_with("_shardify/staging/"))
            .collect::<Vec<_>>()
    };
    let large = vec![7; 40 << 20];
    let (one, two) = (write("tag/000000.tar", b"one"), write("tag/000001.tar", &large));
    drop(write("tag/000002.tar", b"never"));
    let unfinished = store.create("tag/000003.tar").unwrap();
    assert!(visible().is_empty());
    store.publish(vec![one, two]).unwrap();
    assert_eq!(visible(), ["tag/000000.tar", "tag/000001.tar"]);
    assert_eq!(store.get("tag/000001.tar").unwrap().unwrap(), large);
    drop(unfinished);
    assert!(store.list("_shardify/staging").unwrap().is_empty(), "dropped objects are removed");
    store.publish(vec![write("tag/000000.tar", b"again")]).unwrap();
    assert_eq!(store.get("tag/000000.tar").unwrap().unwrap(), "again");
}

fn ranges(store: &Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..=255).cycle().take(20 << 20).collect();
    store.put("data", bytes.clone().into()).unwrap();
    let object = Object::new(Arc::clone(store), "data", bytes.len() as u64);
    assert_eq!(object.range(5..9).unwrap(), &bytes[5..9]);
    assert_eq!(object.range(7..7).unwrap().len(), 0);
    let end = bytes.len() as u64;
    assert!(object.range(end - 1..end + 1).is_err());
    assert!(object.range(end..u64::MAX).is_err(), "a range is not allocated before it is known to exist");
    let mut read = Vec::new();
    object.read().unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
}

fn locks(store: &dyn Store) {
    let held = store.lock("tag").unwrap();
    drop(held);
    drop(store.lock("tag").unwrap());
}

#[test]
fn a_local_lock_is_held_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (LocalStore::new(folder.path().to_owned()), LocalStore::new(folder.path().to_owned()));
    let held = a.lock("tag").unwrap();
    assert_eq!(b.lock("tag").unwrap_err().kind(), Kind::Conflict);
    b.lock("other").unwrap();
    drop(held);
    b.lock("tag").unwrap();
}
