//! What runs have in common: folder, credentials, threads, memory, key, observer, cancellation.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    dataset::IdKey,
    environment,
    error::{Error, Result},
    events::{Cancel, Observer, Silent},
    ops::Context,
    plan::memory::DEFAULT_MEMORY,
    units::Size,
};

/// What runs have in common. A clone is cheap, and shares the observer and the cancellation.
///
/// Credentials of object stores are those of the environment and of `~/.aws`, as for the command line.
///
/// ```
/// use shardify::Session;
///
/// let session = Session::new()?.jobs(2).memory(512 << 20);
/// # Ok::<(), shardify::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    folder: PathBuf,
    stores: Vec<(String, String)>,
    jobs: Option<usize>,
    memory: Size,
    id_key: Option<Arc<IdKey>>,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
}

impl fmt::Debug for Session {
    /// Settings of stores may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("folder", &self.folder).field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a session of the current folder, with a thread for each core and 1 GiB of memory.
    ///
    /// # Errors
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the current folder cannot be read.
    pub fn new() -> Result<Self> {
        Ok(Self {
            folder: environment::current_folder()?,
            stores: Vec::new(),
            jobs: None,
            memory: DEFAULT_MEMORY,
            id_key: None,
            observer: Arc::new(Silent),
            cancel: Cancel::default(),
        })
    }

    /// Sets the folder that relative paths are resolved against.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: self.folder.join(folder.into()), ..self }
    }

    /// Sets the number of threads of a run, at least 1. Shards do not depend on it.
    #[must_use]
    pub fn jobs(self, threads: usize) -> Self {
        Self { jobs: Some(threads.max(1)), ..self }
    }

    /// Sets the memory of a run, in bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Size(bytes), ..self }
    }

    /// Sets the key of private ids: 32 bytes, raw or in hexadecimal or base64.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is none of these, or cannot be random.
    pub fn id_key(self, key: &[u8]) -> Result<Self> {
        Ok(Self { id_key: Some(Arc::new(IdKey::parse(key)?)), ..self })
    }

    /// Sets a setting of object stores by the name of its variable, such as `AWS_ENDPOINT`. The environment's settings
    /// of that kind of store (`AWS_`, `GOOGLE_`, `AZURE_`) do not count any more.
    #[must_use]
    pub fn store_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.stores.push((name.into(), value.into()));
        self
    }

    /// Sets what receives the events of runs.
    ///
    /// ```
    /// use shardify::{Event, Observer, Session};
    ///
    /// struct Notes;
    ///
    /// impl Observer for Notes {
    ///     fn event(&self, event: Event) {
    ///         if let Event::Note(text) = event {
    ///             eprintln!("note: {text}");
    ///         }
    ///     }
    /// }
    ///
    /// let session = Session::new()?.observer(Notes);
    /// # Ok::<(), shardify::Error>(())
    /// ```
    #[must_use]
    pub fn observer(self, observer: impl Observer + 'static) -> Self {
        Self { observer: Arc::new(observer), ..self }
    }

    /// Sets the flag by which another thread stops the runs; they end with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), and nothing is committed.
    #[must_use]
    pub fn cancel(self, cancel: Cancel) -> Self {
        Self { cancel, ..self }
    }

    /// Runs an operation with the threads of the session.
    pub(super) fn run<T: Send>(&self, operation: impl FnOnce(&Context<'_>) -> Result<T> + Send) -> Result<T> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let context = Context {
            folder: self.folder.clone(),
            settings: environment::store_settings(self.stores.clone()),
            stdin: || Box::new(std::io::stdin()),
            jobs: self.jobs.unwrap_or(cores),
            memory: self.memory,
            id_key: self.id_key.clone(),
            observer: self.observer.as_ref(),
            cancel: self.cancel.clone(),
        };
        let Some(jobs) = self.jobs else { return operation(&context) };
        // One more, which waits for what the others do.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.saturating_add(1)).build();
        let refused =
            |e| Error::storage("the system refused to start threads").with_cause(e).with_hint("ask for fewer jobs");
        pool.map_err(refused)?.install(|| operation(&context))
    }
}

/// Returns a path or URL as a text.
pub(super) fn text(place: &OsStr) -> Result<String> {
    let other = |place: OsString| {
        Error::usage("expected a path in UTF-8, found another one").at_location(Path::new(&place).display().to_string())
    };
    place.to_owned().into_string().map_err(other)
}
