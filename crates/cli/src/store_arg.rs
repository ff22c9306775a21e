//! `--store`: the directories of the disk set, or the user's own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

/// Where scans are kept.
#[derive(Args, Clone, Debug)]
pub struct StoreArg {
    /// Directories of the disk set, one for each disk, separated by commas [default: those of $FULLBORE_STORE, else
    /// fullbore/ in the user's data directory]
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',')]
    pub store: Vec<PathBuf>,
}

impl StoreArg {
    /// The directories given, those that the environment names, or the default one.
    pub fn members(&self) -> anyhow::Result<Vec<PathBuf>> {
        match (self.store.is_empty(), of_environment()) {
            (false, _) => Ok(self.store.clone()),
            (true, named) if !named.is_empty() => Ok(named),
            (true, _) => Ok(vec![default_store()?]),
        }
    }

    /// The same; the default one is made if it is not there.
    pub fn members_to_write(&self) -> anyhow::Result<Vec<PathBuf>> {
        let members = self.members()?;
        if self.store.is_empty() && of_environment().is_empty() {
            std::fs::create_dir_all(&members[0])
                .with_context(|| format!("making the default store {}", members[0].display()))?;
        }
        Ok(members)
    }
}

/// The members that `FULLBORE_STORE` names, as `--store` would. Set to nothing is not set.
fn of_environment() -> Vec<PathBuf> {
    let named = std::env::var_os("FULLBORE_STORE").unwrap_or_default();
    named.as_bytes().split(|&byte| byte == b',').filter(|it| !it.is_empty()).map(path).collect()
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
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
