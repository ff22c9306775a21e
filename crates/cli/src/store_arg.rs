//! `--store`: the directories of the disk set, or the user's own.

use std::path::PathBuf;

use clap::Args;
use fullbore_recording::store;

use crate::hint::explained;

/// The directories of a store.
#[derive(Args, Clone, Debug)]
pub struct StoreArg {
    /// Directories of the disk set, one on each disk, separated by commas [default: $FULLBORE_STORE, else fullbore/ in
    /// the user's data directory]
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',')]
    pub store: Vec<PathBuf>,
}

impl StoreArg {
    /// The directories given, those in the environment, or the default one.
    pub fn members(&self) -> anyhow::Result<Vec<PathBuf>> {
        let members = match self.store.is_empty() {
            false => self.store.clone(),
            true => store::default_members().map_err(explained)?,
        };
        store::check_members(&members).map_err(explained)?;
        Ok(members)
    }
}
