//! `--store`: the directories of the disk set, or the user's own.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

/// Where scans are kept.
#[derive(Args, Clone, Debug)]
pub struct StoreArg {
    /// Directories of the disk set, one for each disk, separated by commas [default: fullbore/ in the
    /// user's data directory]
    #[arg(long, env = "FULLBORE_STORE", value_name = "DIR[,DIR…]", value_delimiter = ',')]
    pub store: Vec<PathBuf>,
}

impl StoreArg {
    /// Whether the directories are those that the environment names.
    pub fn is_of_environment(&self) -> bool {
        let named = std::env::var("FULLBORE_STORE").unwrap_or_default();
        !named.is_empty() && named.split(',').map(PathBuf::from).eq(self.store.iter().cloned())
    }

    /// The directories given, or the default one.
    pub fn members(&self) -> anyhow::Result<Vec<PathBuf>> {
        if self.store.is_empty() { Ok(vec![default_store()?]) } else { Ok(self.store.clone()) }
    }

    /// The same; the default one is made if it is not there.
    pub fn members_to_write(&self) -> anyhow::Result<Vec<PathBuf>> {
        let members = self.members()?;
        if self.store.is_empty() {
            std::fs::create_dir_all(&members[0])
                .with_context(|| format!("making the default store {}", members[0].display()))?;
        }
        Ok(members)
    }
}

/// `$XDG_DATA_HOME/fullbore`, else `~/.local/share/fullbore`.
fn default_store() -> anyhow::Result<PathBuf> {
    let directory =
        |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = directory("XDG_DATA_HOME")
        .or_else(|| Some(directory("HOME")?.join(".local/share")))
        .context("neither XDG_DATA_HOME nor HOME is set: say with --store where scans are kept")?;
    Ok(data.join("fullbore"))
}
