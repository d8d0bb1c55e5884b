//! Notes about options that are allowed, but seldom meant.

use super::job::Job;
use crate::{codec::Codec, dataset::Settings, events::Event, format::OutputFormat, units::Size};

/// What a run takes at least, whatever the limit: measured with small inputs.
const LEAST_MEMORY: Size = Size::mib(48);

/// Tells what the user should know before anything is read.
pub(super) fn tell(job: &Job<'_>, settings: &Settings) {
    let note = |text: String| job.context.observer.event(Event::Note(text));
    if job.context.memory < LEAST_MEMORY {
        let memory = job.context.memory;
        note(format!(
            "--memory {memory} is less than a run takes at least, some {LEAST_MEMORY}; the shards are the same as with more"
        ));
    }
    if job.snapshot.is_none()
        && let Some(why) = unreadable(settings)
    {
        note(why);
    }
}

/// Returns why usual loaders do not read shards of these settings, if they do not.
fn unreadable(settings: &Settings) -> Option<String> {
    let (format, codec) = (settings.shard_format, settings.codec);
    let readers = match (format, codec) {
        (OutputFormat::Tar, Codec::Zstd(_)) => "webdataset reads .tar and .tar.gz",
        (OutputFormat::TfRecord, Codec::Zstd(_)) => "TensorFlow reads plain TFRecord and gzip",
        _ => return None,
    };
    Some(format!("{readers}, not {codec}: choose --codec none or gzip if such a loader is to read the shards"))
}
