//! Arguments of `verify-proof`, and those of `manifest` about proofs.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};

/// Arguments of `manifest` about proofs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Proofs")]
#[command(group = clap::ArgGroup::new("proved").args(["prove", "prove_split"]))]
pub(in crate::cli) struct ProveArgs {
    /// Prove that a record has this id, or that none has.
    ///
    /// The proof is about one version and is written to --out. `verify-proof` checks it without the dataset.
    #[arg(
        long, value_name = "ID", requires = "out",
        conflicts_with_all = ["find", "find_file", "list", "history", "diff", "export"]
    )]
    pub(in crate::cli) prove: Option<String>,
    /// Prove that nobody is in two splits of a dataset made with `convert --split`.
    ///
    /// The certificate is printed, or written to --out. It contains no ids. `verify-proof` checks it without the
    /// dataset.
    #[arg(
        long, conflicts_with_all = ["prove", "find", "find_file", "list", "history", "diff", "export"],
        hide_short_help = true
    )]
    pub(in crate::cli) prove_split: bool,
    /// With --prove or --prove-split: file to write the proof to.
    #[arg(long, value_name = "FILE", requires = "proved")]
    pub(in crate::cli) out: Option<String>,
    /// Print the root hash of the version.
    ///
    /// It is one hash over the shards and the id index. Keep it where nobody can change it.
    #[arg(
        long, conflicts_with_all = ["prove", "prove_split", "find", "find_file", "list", "history", "diff", "export"]
    )]
    pub(in crate::cli) root: bool,
}

impl ProveArgs {
    /// Whether a proof or the root is asked for.
    pub(in crate::cli) fn is_asked_for(&self) -> bool {
        self.root || self.prove_split || self.prove.is_some()
    }
}

/// Arguments of `verify-proof`.
#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyProofArgs {
    /// Proof file.
    pub(in crate::cli) file: String,
    /// Root hash of the version, from a trusted party.
    ///
    /// Without it, the proof is only checked against the root that it contains, and the exit code is 7.
    #[arg(long, value_name = "HEX", value_parser = NonEmptyStringValueParser::new(), help_heading = "Proofs")]
    pub(in crate::cli) root: Option<String>,
    /// Id that the proof must be about.
    ///
    /// Needs the key if ids are private.
    #[arg(long, value_name = "ID", help_heading = "Proofs")]
    pub(in crate::cli) id: Option<String>,
    /// With --id: file with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY.
    #[arg(long, value_name = "FILE", help_heading = super::IDS)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}
