//! Arguments of `verify-proof`, and those of `manifest` about proofs.

use std::path::PathBuf;

use clap::Args;

/// What `manifest` is asked to prove.
#[derive(Debug, Args)]
pub(in crate::cli) struct ProveArgs {
    /// Prove that a record of the version carries an id, or that none does; the proof goes to --out, and `verify-proof`
    /// checks it without the dataset
    #[arg(long, value_name = "ID", requires = "out", conflicts_with_all = ["find", "find_file", "list", "history", "diff", "export"])]
    pub(in crate::cli) prove: Option<String>,
    /// With --prove: file for the proof
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub(in crate::cli) out: Option<String>,
    /// Print the root of the version: one hash over its shards and its id index, to be kept where nobody can change it
    #[arg(long, conflicts_with_all = ["prove", "find", "find_file", "list", "history", "diff", "export"])]
    pub(in crate::cli) root: bool,
}

/// What `verify-proof` is given.
#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyProofArgs {
    /// The proof
    pub(in crate::cli) file: String,
    /// Root of the version, from whoever vouches for it; without it the proof shows only what follows from the root that it
    /// names
    #[arg(long, value_name = "HEX")]
    pub(in crate::cli) root: Option<String>,
    /// The id that the proof has to be about; where ids are private it takes their key
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) id: Option<String>,
    /// With --id: file with the key of private ids; default: the key in $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) id_key: Option<PathBuf>,
}
