//! The directories of a store: checks, and the user's own store for programs that want a default.
//!
//! Nothing here is used unless a program calls it: [`RecordingOptions::resolve`](crate::RecordingOptions::resolve) takes
//! the directories from the options alone.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;

/// Directories cannot be a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A directory is given twice: the user meant two.
    #[error("{} is given twice", path.display())]
    Twice {
        /// The directory.
        path: PathBuf,
    },
    /// Manifests could not name the directory.
    #[error("{}: its path is not UTF-8, and manifests could not name it", path.display())]
    NotUtf8 {
        /// The directory.
        path: PathBuf,
    },
    /// The user has no data directory.
    #[error("neither XDG_DATA_HOME nor HOME is set: say with --store where scans are kept")]
    NoHome,
}

impl Hint for StoreError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NotUtf8 { .. } => "rename the directory, or mount its disk in another one",
            Self::Twice { .. } | Self::NoHome => return None,
        }))
    }
}

/// The user's own store: the directories in `FULLBORE_STORE`, else `fullbore/` in the user's data directory.
pub fn default_members() -> Result<Vec<PathBuf>, StoreError> {
    let named = of_environment();
    if named.is_empty() { Ok(vec![default_directory()?]) } else { Ok(named) }
}

/// The members in `FULLBORE_STORE`, separated by commas. An empty variable counts as unset.
pub fn of_environment() -> Vec<PathBuf> {
    let named = std::env::var_os("FULLBORE_STORE").unwrap_or_default();
    named.as_bytes().split(|&byte| byte == b',').filter(|it| !it.is_empty()).map(path).collect()
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// `$XDG_DATA_HOME/fullbore`, else `~/.local/share/fullbore`.
pub fn default_directory() -> Result<PathBuf, StoreError> {
    let directory =
        |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = directory("XDG_DATA_HOME")
        .or_else(|| Some(directory("HOME")?.join(".local/share")))
        .ok_or(StoreError::NoHome)?;
    Ok(data.join("fullbore"))
}

/// Refuses a directory that is given twice.
pub fn check_members(members: &[PathBuf]) -> Result<(), StoreError> {
    let mut known = BTreeSet::new();
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match members.iter().find(|path| !known.insert(place(path))) {
        Some(path) => Err(StoreError::Twice { path: path.clone() }),
        None => Ok(()),
    }
}

/// The same, and refuses directories in which nothing can be recorded.
pub fn check_to_write(members: &[PathBuf]) -> Result<(), StoreError> {
    check_members(members)?;
    match members.iter().find(|path| path.to_str().is_none()) {
        Some(path) => Err(StoreError::NotUtf8 { path: path.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_by_two_names_is_given_twice() {
        let place = tempfile::tempdir().unwrap();
        let (one, same) = (place.path().to_owned(), place.path().join("."));
        assert!(matches!(check_members(&[one.clone(), same]), Err(StoreError::Twice { .. })));
        assert!(check_members(&[one, "/nowhere".into()]).is_ok());
    }

    #[test]
    fn a_directory_that_is_no_text_takes_no_recording() {
        let odd = path(b"/n\xffu");
        assert!(check_members(std::slice::from_ref(&odd)).is_ok());
        let error = check_to_write(&[odd]).unwrap_err();
        assert!(error.to_string().contains("not UTF-8") && error.hint().is_some(), "{error}");
    }
}
