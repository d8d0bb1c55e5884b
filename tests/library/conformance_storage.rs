//! One contract, every store: what `storage::Store` promises, checked against each implementation.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{io::Read, io::Write, sync::Arc};

use shardify::{
    dataset::Dataset,
    error::{Kind, Result},
    storage::{
        Existing, LocalStore, Location, Object, ObjectFacts, Pin, PutOutcome, Reading, RemoteStore, Sink, Staged,
        Store, Visit,
    },
};

/// Runs every part of the contract on fresh stores.
fn conforms(fresh: &dyn Fn() -> Arc<dyn Store>) {
    deletions(fresh().as_ref());
    whole_objects(fresh().as_ref());
    conditional_creates(&fresh());
    listings(fresh().as_ref());
    sinks(fresh().as_ref());
    publishing_replaces_nothing(fresh().as_ref());
    publishers_race(&fresh());
    ranges(&fresh());
    neighbouring_ranges(&fresh());
    ends(fresh().as_ref());
    whole_reads(fresh().as_ref());
    locks(fresh().as_ref());
    paths_stay_below_the_root(fresh().as_ref());
}

/// No path leads out of a store, whatever a log, a list or an archive says.
fn paths_stay_below_the_root(store: &dyn Store) {
    store.put("x/y", "inside".into()).unwrap();
    for path in ["..", "../y", "x/../../y", "x/..", "./x/y", "x/./y", "/etc/hostname", "x/y\0"] {
        assert!(!matches!(store.get(path), Ok(Some(_))), "{path:?}");
        assert!(!matches!(store.head(path), Ok(Some(_))), "{path:?}");
        assert!(store.read(path).is_err() && store.get_range(path, 0..1).is_err(), "{path:?}");
        assert!(store.put(path, "outside".into()).is_err(), "{path:?}");
        assert!(store.put_if_absent(path, "outside".into()).is_err(), "{path:?}");
        let staged = store.create_sink(path).and_then(Sink::finish);
        assert!(staged.and_then(|staged| store.publish_staged(vec![staged])).is_err(), "{path:?}");
        assert!(store.delete(path).is_err(), "{path:?}");
    }
    assert_eq!(store.get("x/y").unwrap().unwrap(), "inside");
    assert_eq!(store.list_folder("").unwrap().len(), 1);
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
    conforms(&|| Arc::new(RemoteStore::in_memory().unwrap()));
}

/// Many are deleted together, whether or not they are there, and nothing else.
fn deletions(store: &dyn Store) {
    let paths: Vec<String> = (0..1_500).map(|number| format!("d/{number}")).collect();
    for path in paths.iter().step_by(2) {
        store.put(path, "x".into()).unwrap();
    }
    store.put("d/other", "x".into()).unwrap();
    store.delete_all(&paths).unwrap();
    store.delete_all(&[]).unwrap();
    let left: Vec<String> = store.list_folder("d").unwrap().into_iter().map(|facts| facts.path).collect();
    assert_eq!(left, ["d/other"]);
    assert!(store.delete_all(&["d/other".to_owned(), "../x".to_owned()]).is_err(), "a path that leaves the store");
}

#[test]
fn the_empty_folder_of_a_run_goes_with_its_last_object_and_no_other_does() {
    let folder = tempfile::tempdir().unwrap();
    let store: &dyn Store = &LocalStore::new(folder.path().to_owned());
    let own = "0123456789abcdef/split=train/000000.tar";
    for path in [own, "0123456789abcdef/000001.tar", "mine/a.tar"] {
        store.put(path, "x".into()).unwrap();
    }
    store.delete(own).unwrap();
    let is_there = |path: &str| folder.path().join(path).exists();
    assert!(!is_there("0123456789abcdef/split=train") && is_there("0123456789abcdef/000001.tar"));
    store.delete("0123456789abcdef/000001.tar").unwrap();
    store.delete("mine/a.tar").unwrap();
    assert!(!is_there("0123456789abcdef") && is_there("mine"));
    store.put(own, "x".into()).unwrap();
    assert!(is_there(own), "a folder is made anew where somebody needs it");
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
    store.check_present(&[("a/b.txt", Some(6)), ("empty", Some(0)), ("empty", None)]).unwrap();
    let check = |path: &str, bytes| store.check_present(&[("empty", None), (path, bytes)]).unwrap_err();
    for error in [check("a/b.txt", Some(5)), check("none", None), check("none", Some(0))] {
        assert_eq!(error.kind(), Kind::Storage);
        assert!(error.place().source.is_some(), "the object is named: {error}");
    }
    store.delete("a/b.txt").unwrap();
    store.delete("a/b.txt").unwrap();
    assert_eq!(store.get("a/b.txt").unwrap(), None);
    let mut text = String::new();
    store.put("odd name/ü %20#?.txt", "odd".into()).unwrap();
    store.read("odd name/ü %20#?.txt").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "odd");
    assert_eq!(store.read("missing").map(|_| ()).unwrap_err().kind(), Kind::Storage);
}

/// The end of an object comes with its size, and is all of it where it is short.
fn ends(store: &dyn Store) {
    assert_eq!(store.read_tail("missing", 4).unwrap(), None);
    store.put("ten", "0123456789".into()).unwrap();
    assert_eq!(store.read_tail("ten", 4).unwrap().unwrap(), ("6789".into(), 10));
    assert_eq!(store.read_tail("ten", 10).unwrap().unwrap(), ("0123456789".into(), 10));
    assert_eq!(store.read_tail("ten", 1 << 40).unwrap().unwrap(), ("0123456789".into(), 10));
    store.put("empty", bytes::Bytes::new()).unwrap();
    assert_eq!(store.read_tail("empty", 4).unwrap().unwrap(), (bytes::Bytes::new(), 0));
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
    assert!(store.list_folder("").unwrap().is_empty());
    assert_eq!(store.find_first("log", &|_| true).unwrap(), None);
    for path in ["log/3", "log/1", "log/2/deep", "other/x"] {
        store.put(path, "x".into()).unwrap();
    }
    let paths = |folder: &str| store.list_folder(folder).unwrap().into_iter().map(|o| o.path).collect::<Vec<_>>();
    assert_eq!(paths("log"), ["log/1", "log/2/deep", "log/3"]);
    assert_eq!(paths("").len(), 4);
    assert!(paths("nothing").is_empty());
    assert!(paths("lo").is_empty(), "a folder is not a prefix of names");
    assert_eq!(store.find_first("log", &|_| true).unwrap().unwrap(), "log/1");
    assert_eq!(store.find_first("log", &|path| path.ends_with('p')).unwrap().unwrap(), "log/2/deep");
    assert_eq!(store.find_first("log", &|_| false).unwrap(), None);
}

/// What goes through a sink is invisible until published; what is dropped never becomes visible.
fn sinks(store: &dyn Store) {
    let write = |path: &str, bytes: &[u8]| {
        let mut sink = store.create_sink(path).unwrap();
        sink.write_all(bytes).unwrap();
        sink.finish().unwrap()
    };
    let visible = || {
        store
            .list_folder("")
            .unwrap()
            .into_iter()
            .map(|o| o.path)
            .filter(|p| !p.starts_with("_shardify/staging/"))
            .collect::<Vec<_>>()
    };
    let large = vec![7; 40 << 20];
    let (one, two) = (write("tag/000000.tar", b"one"), write("tag/000001.tar", &large));
    drop(write("tag/000002.tar", b"never"));
    let unfinished = store.create_sink("tag/000003.tar").unwrap();
    assert!(visible().is_empty());
    store.publish_staged(vec![one, two]).unwrap();
    assert_eq!(visible(), ["tag/000000.tar", "tag/000001.tar"]);
    assert_eq!(store.get("tag/000001.tar").unwrap().unwrap(), large);
    drop(unfinished);
    assert!(store.list_folder("_shardify/staging").unwrap().is_empty(), "dropped objects are removed");
    store.replace_staged(vec![write("tag/000000.tar", b"again"), write("tag/000001.tar", b"small")]).unwrap();
    assert_eq!(store.get("tag/000000.tar").unwrap().unwrap(), "again");
    assert_eq!(store.get("tag/000001.tar").unwrap().unwrap(), "small");
    assert!(store.list_folder("_shardify/staging").unwrap().is_empty(), "nothing is left of what was replaced");
}

/// A name that is taken is a conflict that names it; nothing is overwritten, and no other name is given.
fn publishing_replaces_nothing(store: &dyn Store) {
    let write = |path: &str, bytes: &[u8]| {
        let mut sink = store.create_sink(path).unwrap();
        sink.write_all(bytes).unwrap();
        sink.finish().unwrap()
    };
    let large = vec![1; 9 << 20];
    for (round, (theirs, mine)) in
        [(&b"theirs"[..], &b"mine"[..]), (b"theirs", &large), (&large, b"mine"), (&large, &large)]
            .into_iter()
            .enumerate()
    {
        let at = |name: &str| format!("{round}/{name}");
        store.publish_staged(vec![write(&at("taken"), theirs)]).unwrap();
        let ours = ["a", "b", "taken", "z"].map(|name| write(&at(name), mine));
        let error = store.publish_staged(ours.into()).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(error.to_string().contains(&at("taken")), "{error}");
        let there: Vec<_> =
            store.list_folder(&round.to_string()).unwrap().into_iter().map(|facts| facts.path).collect();
        assert_eq!(there, [at("taken")], "names that were given are taken back");
        assert_eq!(store.get(&at("taken")).unwrap().unwrap(), theirs);
        assert!(store.list_folder("_shardify/staging").unwrap().is_empty(), "what got no name is removed");
    }
}

/// Of many that publish one name, one gets it.
fn publishers_race(store: &Arc<dyn Store>) {
    for round in 0..10 {
        let path = format!("race/{round}");
        let winners: Vec<u8> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number: u8| {
                    let path = &path;
                    scope.spawn(move || {
                        let mut sink = store.create_sink(path).unwrap();
                        sink.write_all(&[number; 10]).unwrap();
                        store.publish_staged(vec![sink.finish().unwrap()]).map(|()| number)
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert_eq!(winners.len(), 1);
        assert_eq!(store.get(&path).unwrap().unwrap(), vec![winners[0]; 10]);
    }
}

fn ranges(store: &Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..=255).cycle().take(20 << 20).collect();
    store.put("data", bytes.clone().into()).unwrap();
    let object = Object::new(Arc::clone(store), "data", bytes.len() as u64);
    assert_eq!(object.get_range(5..9).unwrap(), &bytes[5..9]);
    assert_eq!(object.get_range(7..7).unwrap().len(), 0);
    let end = bytes.len() as u64;
    assert!(object.get_range(end - 1..end + 1).is_err());
    assert!(object.get_range(end..u64::MAX).is_err(), "a range is not allocated before it is known to exist");
    let mut read = Vec::new();
    object.read().unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
}

fn locks(store: &dyn Store) {
    let held = store.acquire_lock("tag").unwrap();
    drop(held);
    drop(store.acquire_lock("tag").unwrap());
}

#[test]
fn a_local_lock_is_held_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [(); 2].map(|()| -> Box<dyn Store> { Box::new(LocalStore::new(folder.path().to_owned())) });
    let held = a.acquire_lock("tag").unwrap();
    assert_eq!(b.acquire_lock("tag").unwrap_err().kind(), Kind::Conflict);
    b.acquire_lock("other").unwrap();
    drop(held);
    b.acquire_lock("tag").unwrap();
}

/// A store that speaks the protocol but ignores the condition of a create.
#[derive(Debug)]
struct Careless(RemoteStore);

impl Store for Careless {
    fn location(&self) -> &Location {
        self.0.location()
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.0.head(path)
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        self.0.read_into(path, bytes, into)
    }

    fn get_ranges(&self, path: &str, ranges: &[std::ops::Range<u64>], pin: &Pin) -> Result<Vec<bytes::Bytes>> {
        self.0.get_ranges(path, ranges, pin)
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(bytes::Bytes, u64)>> {
        self.0.read_tail(path, bytes)
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        self.0.open_reader(path, reading)
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        self.0.visit(folder, visit)
    }

    fn write(&self, path: &str, bytes: bytes::Bytes, _: Existing) -> Result<PutOutcome> {
        self.0.write(path, bytes, Existing::Replace)
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        self.0.delete_all(paths)
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.0.create_sink(path)
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        self.0.name_staged(staged, existing)
    }
}

#[test]
fn a_store_where_two_creators_win_is_refused_by_name() {
    let careful: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
    Dataset::new(careful).test_store().unwrap();
    let careless: Arc<dyn Store> = Arc::new(Careless(RemoteStore::in_memory().unwrap()));
    let dataset = Dataset::new(Arc::clone(&careless));
    let error = dataset.test_store().unwrap_err();
    assert_eq!(error.kind(), Kind::Storage);
    assert!(error.to_string().starts_with("memory:///"), "{error}");
    assert!(careless.list_folder("").unwrap().is_empty(), "nothing is left behind");
    assert!(dataset.test_store().is_err(), "a refusal is not forgotten");
}

/// A whole read takes what was listed, and nothing else.
fn whole_reads(store: &dyn Store) {
    store.put("five", "12345".into()).unwrap();
    store.put("none", bytes::Bytes::new()).unwrap();
    let read = |path: &str, bytes| {
        let mut into = Vec::new();
        store.read_whole(path, bytes, &mut into).map(|()| into)
    };
    assert_eq!(read("five", 5).unwrap(), b"12345");
    assert_eq!(read("none", 0).unwrap().len(), 0);
    assert_eq!(read("five", 4).unwrap_err().kind(), Kind::Storage);
    assert_eq!(read("five", 6).unwrap_err().kind(), Kind::Storage);
    assert_eq!(read("gone", 5).unwrap_err().kind(), Kind::Storage);
    assert!(!store.is_cached("gone"));
    let mut text = String::new();
    store.read("none").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

/// Small ranges of a remote object come out of one request; what they hold does not change.
fn neighbouring_ranges(store: &Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
    store.put("split/by/split", bytes.clone().into()).unwrap();
    let object = Object::new(Arc::clone(store), "split/by/split", bytes.len() as u64);
    let end = bytes.len() as u64;
    for range in
        [end - 8..end, end - 900..end - 8, 0..4, 4..70_000, 70_000..70_001, (1 << 20) - 1..(1 << 20) + 1, 0..end]
    {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let expected = &bytes[at(range.start)..at(range.end)];
        assert_eq!(object.get_range(range.clone()).unwrap(), expected, "{range:?}");
    }
}
