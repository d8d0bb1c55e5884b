//! Settings of formats that a run was given and that nothing in it uses.
//!
//! They are told and are no error: a job with fixed options may meet inputs of one kind today and of another tomorrow.

use std::collections::BTreeSet;

use super::{inputs::Inputs, job::ConvertJob, plan::ConvertPlan, write::WriteOption};
use crate::{
    scan::{InputFormat, settings::Read},
    settings::{Setting, Table},
};

/// Returns a note for each kind of formats whose settings have no effect.
pub(super) fn unused_settings(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Vec<String> {
    let formats: Vec<InputFormat> = match &plan.inputs {
        Inputs::Records(sources) => sources.iter().map(|source| source.format).collect(),
        Inputs::Samples { .. } => vec![InputFormat::FILES],
    };
    let names: BTreeSet<&str> = formats.iter().map(|format| format.name()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let is_read = |scope: &str| formats.iter().any(|format| format.takes_settings(scope));
    let written = plan.settings.shard_format.title();
    let is_written = |scope: &str| scope.eq_ignore_ascii_case(written);
    let read = unused(Read::SETTINGS, job.options.read.given_settings(), is_read)
        .map(|(scope, given)| format!("{given} for {}, and the inputs are {names}", in_sentence(scope)));
    let write = unused(WriteOption::SETTINGS, job.options.write.given_settings(), is_written)
        .map(|(scope, given)| format!("{given} for {} shards, and these are {written}", in_sentence(scope)));
    read.chain(write).collect()
}

/// Returns the scopes that nothing has, with the settings of each that were given.
fn unused<'a>(
    table: &'static [Setting],
    given: impl Iterator<Item = (&'a str, &'a str)>,
    applies: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, String)> {
    let given: Vec<&str> = given.map(|(key, _)| key).collect();
    let is_unused = |setting: &&Setting| given.contains(&setting.key) && !applies(setting.scope());
    let unused: Vec<&Setting> = table.iter().filter(is_unused).collect();
    let scopes: BTreeSet<&'static str> = unused.iter().map(|setting| setting.scope()).collect();
    scopes.into_iter().map(move |scope| {
        let options =
            unused.iter().filter(|setting| setting.scope() == scope).map(|setting| format!("--{}", setting.key));
        let options: Vec<String> = options.collect();
        let effect = if options.len() == 1 { "has no effect: it is" } else { "have no effect: they are" };
        (scope, format!("{} {effect}", options.join(", ")))
    })
}

/// Returns the name of a scope within a sentence: `Arrays` and `Tar` are words, `CSV` and `TFRecord` names.
fn in_sentence(scope: &str) -> String {
    if ["Arrays", "Tables", "Text", "Tar"].contains(&scope) { scope.to_lowercase() } else { scope.to_owned() }
}
