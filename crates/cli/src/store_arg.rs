//! `--store`: the directories of the disk set, or the user's own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;

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
        let members = match (self.store.is_empty(), of_environment()) {
            (false, _) => self.store.clone(),
            (true, named) if !named.is_empty() => named,
            (true, _) => vec![default_store()?],
        };
        refuse_twice(&members)?;
        Ok(members)
    }

    /// The same; creates the default directory if it does not exist.
    pub fn members_to_write(&self) -> anyhow::Result<Vec<PathBuf>> {
        let members = self.members()?;
        if let Some(path) = members.iter().find(|path| path.to_str().is_none()) {
            bail!(
                "{}: its path is not UTF-8, and manifests could not name it\n  \
                 rename the directory, or mount its disk in another one",
                path.display()
            );
        }
        if self.store.is_empty() && of_environment().is_empty() {
            std::fs::create_dir_all(&members[0])
                .with_context(|| format!("making the default store {}", members[0].display()))?;
        }
        Ok(members)
    }
}

/// Refuses a directory that is given twice: the user meant two.
fn refuse_twice(members: &[PathBuf]) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    for path in members {
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        ensure!(known.insert(place), "{} is given twice", path.display());
    }
    Ok(())
}

/// The members in `FULLBORE_STORE`, in the syntax of `--store`. An empty variable counts as unset.
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
