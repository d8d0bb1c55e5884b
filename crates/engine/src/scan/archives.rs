//! Zip archives among the inputs: each is read as a folder of its name, whose files are its members.
//!
//! ```text
//! pets.zip: cat/1.jpg, cat/1.json      ->      pets.zip/cat/1.jpg  pets.zip/cat/1.json
//! ```
//!
//! A file is an archive by its name and its first bytes. Archives that are something else by their content are not read
//! as folders: arrays of NumPy stay one source, packages of other programs are refused. A member that cannot be read is
//! a fault, like a file whose name is not text.

use std::{io::Read as _, sync::Arc};

use super::{
    FAULT_BYTES, Scan,
    file::{Root, SourceFile},
    ignored::is_ignored,
    stores::is_store_file,
    tables::{is_of_log, name_of_log},
};
use crate::{
    codec::zip::{STARTS, ZipMember},
    error::{Error, Kind, Result},
    storage::{
        self, Listed, Location, ObjectFacts, Reading, Store, StoreSettings, ZipStore, plain_argument, watch_store,
    },
};

/// Bytes that tell an archive from another file.
const MAGIC_BYTES: u64 = 4;

/// Which archives are read as folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Archives {
    /// All of them.
    #[default]
    All,
    /// Those that the user names; those in folders are files like all others.
    Named,
    /// None.
    None,
}

/// Whether a name is that of an archive.
pub(super) fn is_archive_name(path: &str) -> bool {
    let ending = path.len().checked_sub(4).and_then(|at| path.get(at..));
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(".zip"))
}

/// What a member of this name says of the archive: that it is a package of another program, rather than files.
const PACKAGES: [(&str, &str); 4] = [
    ("[Content_Types].xml", "a workbook or document of Office"),
    ("META-INF/manifest.xml", "a document of LibreOffice"),
    ("META-INF/container.xml", "an electronic book"),
    ("META-INF/MANIFEST.MF", "a program in Java"),
];

/// Whether a member of an archive is wanted, by its path.
type IsWanted<'a> = &'a dyn Fn(&str) -> bool;

impl Root {
    /// Returns the root of the members of an archive.
    fn of_archive(archive: ZipStore, prefix: String) -> Arc<Self> {
        let archive = Arc::new(archive);
        let unwatched: Arc<dyn Store> = Arc::<ZipStore>::clone(&archive);
        let shown = unwatched.location().to_string().into();
        let (store, watch) = watch_store(Arc::clone(&unwatched));
        Arc::new(Self { store, unwatched, watch, shown, prefix: prefix.into(), stream: None, archive: Some(archive) })
    }
}

/// Whether a member is a file that can be read.
fn is_file(member: &ZipMember) -> bool {
    !(member.is_folder() || member.is_link) && member.unsafe_name().is_none() && member.refusal().is_none()
}

/// An object that is an archive by its name.
struct FoundArchive {
    /// The folder that it is in.
    above: Location,
    /// The store of this folder.
    store: Arc<dyn Store>,
    facts: ObjectFacts,
}

impl FoundArchive {
    /// Returns the archive at a location, if there is one.
    fn at(location: &Location, settings: &StoreSettings) -> Result<Option<Self>> {
        let named = location.split_name().filter(|(_, name)| is_archive_name(name));
        let Some((above, name)) = named else { return Ok(None) };
        let store = storage::open_store(&above, settings)?;
        let facts = store.head(&name)?;
        Ok(facts.map(|facts| Self { above, store, facts }))
    }
}

/// Opens the store at a location again, which may be an archive.
///
/// # Errors
/// If the store cannot be opened; if the archive is no longer one.
pub(super) fn reopen_root(location: &Location, prefix: String, settings: &StoreSettings) -> Result<Arc<Root>> {
    match FoundArchive::at(location, settings)? {
        Some(FoundArchive { store, facts, .. }) => {
            Ok(Root::of_archive(ZipStore::open(store, facts, &mut |member, _| Ok(is_file(member)))?, prefix))
        }
        None => Ok(Root::new(storage::open_store(location, settings)?, prefix)),
    }
}

impl Scan {
    /// Adds the members of an archive of which a location is a part; returns whether there is one.
    ///
    /// # Errors
    /// As [`Scan::add_source`]: there is nothing at that place.
    pub(super) fn add_from_archive(
        &mut self,
        location: &Location,
        settings: &StoreSettings,
        is_wanted: IsWanted<'_>,
        text: &str,
    ) -> Result<bool> {
        if self.archives == Archives::None || !location.to_string().to_ascii_lowercase().contains(".zip") {
            return Ok(false);
        }
        let (mut at, mut below) = (location.clone(), String::new());
        let FoundArchive { above, store, facts } = loop {
            if let Some(found) = FoundArchive::at(&at, settings)? {
                break found;
            }
            let Some((above, name)) = at.split_name() else { return Ok(false) };
            below = if below.is_empty() { name } else { format!("{name}/{below}") };
            at = above;
        };
        self.tables.schedule_search(&above);
        let root = Root::new(store, String::new());
        let counted =
            |scan: &Self| scan.found.files.len() as u64 + scan.found.filtered + scan.found.faults.len() as u64;
        let before = counted(self);
        self.mount(&root, facts, &|path| match path.strip_prefix(below.as_str()) {
            _ if below.is_empty() => is_wanted(path),
            Some("") => true,
            Some(rest) => rest.strip_prefix('/').is_some_and(is_wanted),
            None => false,
        })?;
        if counted(self) == before && !below.is_empty() {
            return Err(Error::usage("no such file or folder in the archive")
                .at_location(plain_argument(text))
                .with_hint(format!("list its members: unzip -l {at}")));
        }
        Ok(true)
    }

    /// Adds the members of the archives that were found below a root.
    pub(super) fn mount_found(&mut self, root: &Arc<Root>) -> Result<()> {
        std::mem::take(&mut self.found_archives).into_iter().try_for_each(|facts| self.mount(root, facts, &|_| true))
    }

    /// Adds the members of an archive, or the file if it is none by its content.
    fn mount(&mut self, root: &Arc<Root>, facts: ObjectFacts, is_wanted: IsWanted<'_>) -> Result<()> {
        let name = format!("{}{}", root.prefix, facts.path);
        if self.is_excluded_name(&name) {
            self.found.filtered += 1;
            return Ok(());
        }
        let mut head = Vec::new();
        root.unwatched
            .open_reader(&facts.path, Reading::Start(MAGIC_BYTES))?
            .take(MAGIC_BYTES)
            .read_to_end(&mut head)?;
        if !STARTS.iter().any(|start| head.starts_with(start)) {
            // What is below a file that is no archive does not exist.
            if is_wanted("") {
                self.add_file(root, facts)?;
                self.pack_found(root);
            }
            return Ok(());
        }
        let faults = self.found.faults.len();
        match self.mount_archive(root, facts, &name, is_wanted) {
            Err(fault) if matches!(fault.kind(), Kind::Input | Kind::Integrity) => {
                self.found.faults.truncate(faults);
                self.add_fault(fault)
            }
            done => done,
        }
    }

    pub(super) fn add_fault(&mut self, fault: Error) -> Result<()> {
        self.account_memory(FAULT_BYTES)?;
        self.found.faults.push(fault);
        Ok(())
    }

    fn mount_archive(
        &mut self,
        root: &Arc<Root>,
        facts: ObjectFacts,
        name: &str,
        is_wanted: IsWanted<'_>,
    ) -> Result<()> {
        let place = root.unwatched.location().join(&facts.path).to_string();
        let listed = self.memory;
        let archive = ZipStore::open(Arc::clone(&root.unwatched), facts.clone(), &mut |member, bytes| {
            self.choose_member(member, bytes, name, &place, is_wanted)
        })?;
        if archive.names().all(|path| path.ends_with(".npy") && !path.contains('/')) && archive.names().next().is_some()
        {
            self.memory = listed;
            self.add_file(root, facts)?;
            self.pack_found(root);
            return Ok(());
        }
        if let Some((_, what)) = PACKAGES.iter().find(|(path, _)| archive.names().any(|name| name == *path)) {
            return Err(Error::input(format!("expected a zip archive of files, found {what}"))
                .at_location(place)
                .with_hint("if it is a workbook, rename it to end in .xlsx or .ods")
                .with_hint("export what it has as CSV, or unpack it and convert what is in it"));
        }
        if let Some(path) = archive.names().find(|path| is_of_log(path)) {
            let table = name_of_log(path);
            return Err(Error::input(format!("expected plain files in the archive, found {table}: `{path}`"))
                .at_location(place)
                .with_hint("the log of a table decides which files are live: unpack the archive and name the folder"));
        }
        self.add_members(&Root::of_archive(archive, format!("{name}/")), is_wanted)
    }

    /// Returns whether a member is a file that can be read. What cannot is counted, or a fault.
    fn choose_member(
        &mut self,
        member: &ZipMember,
        bytes: u64,
        archive: &str,
        place: &str,
        is_wanted: IsWanted<'_>,
    ) -> Result<bool> {
        let fault = member.unsafe_name().or_else(|| member.refusal());
        if member.is_folder() && fault.is_none() {
            return Ok(false);
        }
        self.account_memory(bytes)?;
        if !is_file(member) && is_wanted(&member.name) {
            let is_taken = self.takes_name(&format!("{archive}/{}", member.name));
            match fault {
                _ if member.unsafe_name().is_none() && is_ignored(&member.name) => {
                    self.found.ignore_file(&member.name);
                }
                _ if !is_taken => self.found.filtered += 1,
                Some(fault) => self.add_fault(fault.at_location(place).at_byte(member.content.local))?,
                None => {
                    self.found.archive_links += 1;
                    self.found.ignored += 1;
                }
            }
        }
        Ok(is_file(member))
    }

    /// Adds the members of an archive.
    fn add_members(&mut self, root: &Arc<Root>, is_wanted: IsWanted<'_>) -> Result<()> {
        root.unwatched.walk_folder("", &mut |listed| {
            let Listed::Object(facts) = listed else { return Ok(()) };
            if !is_wanted(&facts.path) {
                return Ok(());
            }
            if is_ignored(&facts.path) && !is_store_file(&facts.path) {
                self.found.ignore_file(&facts.path);
                return Ok(());
            }
            let name = format!("{}{}", root.prefix, facts.path);
            if self.archives == Archives::All && is_archive_name(&name) && self.takes_name(&name) {
                return self.add_fault(
                    Error::input("expected files in the archive, found another archive")
                        .at_location(format!("{}/{}", root.shown, facts.path))
                        .with_hint(format!("unpack the outer archive, or skip the inner one: --exclude '{name}'")),
                );
            }
            self.add_file(root, facts)
        })?;
        self.pack_found(root);
        Ok(())
    }
}

impl SourceFile {
    /// Whether it is a member of an archive.
    fn is_member(&self) -> bool {
        self.root().archive.is_some()
    }

    /// Returns its path in the archive that it is a member of.
    pub fn path_in_archive(&self) -> Option<&str> {
        self.is_member().then(|| self.path())
    }

    /// Whether it is a member of an archive that is packed there, so that its ranges cost all of it.
    pub(super) fn is_packed_member(&self) -> bool {
        self.root().archive.as_ref().is_some_and(|archive| archive.is_packed(self.path()))
    }

    /// Compares a stored member of a local archive, which a reader reads in ranges, with its checksum. Any other member
    /// is compared as it is read, and reading all of a remote one would cost as much as not reading it in ranges.
    ///
    /// # Errors
    /// [`Kind::Input`] if it differs; if the store fails.
    pub(super) fn check_member(&self) -> Result<()> {
        if self.is_member() && !self.is_remote() && !self.is_packed_member() {
            std::io::copy(&mut self.object().read()?, &mut std::io::sink())?;
        }
        Ok(())
    }
}

/// Fails if an archive of these files is no longer as it was when it was listed.
///
/// # Errors
/// As [`ZipStore::check_unchanged`].
pub fn check_archives<'a>(files: impl Iterator<Item = &'a SourceFile>) -> Result<()> {
    let mut last: Option<&Arc<Root>> = None;
    for file in files {
        let root = file.root();
        if let Some(archive) = root.archive.as_ref().filter(|_| last.is_none_or(|last| !Arc::ptr_eq(last, root))) {
            archive.check_unchanged()?;
        }
        last = Some(root);
    }
    Ok(())
}
