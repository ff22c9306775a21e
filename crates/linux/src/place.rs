//! Places of files that are to be made: checked before any work, and refused in plain words.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// A place where no file can be made.
#[derive(Debug, thiserror::Error)]
#[error("{}: no file can be made there: {obstacle}", path.display())]
pub struct PlaceError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub obstacle: Obstacle,
}

/// The reason why no file can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// Its directory does not exist.
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    /// Its directory, or one above that, is something else.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A directory has its name.
    #[error("a directory has this name")]
    IsADirectory,
    /// A file has its name.
    #[error("a file has this name")]
    Exists,
    /// The file system takes no changes.
    #[error("its file system is read-only")]
    ReadOnly,
    /// This user may not make a file there.
    #[error("the permission to write in {} is missing", .0.display())]
    Permission(PathBuf),
    /// Another error of the kernel.
    #[error("{0}")]
    Kernel(#[source] io::Error),
}

impl PlaceError {
    /// The error of a file that could not be made, with the reason in plain words.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), obstacle: obstacle(path, source) }
    }
}

impl Hint for PlaceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let path = self.path.display();
        Some(match &self.obstacle {
            Obstacle::NoDirectory(folder) => Cow::Owned(format!(
                "make it with `mkdir -p {}`, or give another place",
                folder.display()
            )),
            Obstacle::NotADirectory(_) => "give a place in a directory".into(),
            Obstacle::IsADirectory => Cow::Owned(format!(
                "give the name of a file in it: {}/NAME",
                path.to_string().trim_end_matches('/')
            )),
            Obstacle::Exists => "give another name, or remove the file".into(),
            Obstacle::ReadOnly => "give a place on another file system".into(),
            Obstacle::Permission(_) => "give a place that this user may write to".into(),
            Obstacle::Kernel(_) => return None,
        })
    }
}

fn obstacle(path: &Path, source: io::Error) -> Obstacle {
    use io::ErrorKind::{
        AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    let folder = folder_of(path);
    match folder.metadata() {
        Ok(found) if !found.is_dir() => return Obstacle::NotADirectory(folder.to_owned()),
        Err(error) if error.kind() == NotFound => return Obstacle::NoDirectory(folder.to_owned()),
        Err(error) if error.kind() == NotADirectory => {
            let above = folder.ancestors().find(|above| above.exists()).unwrap_or(folder);
            return Obstacle::NotADirectory(above.to_owned());
        }
        _ => {}
    }
    match source.kind() {
        _ if path.is_dir() => Obstacle::IsADirectory,
        IsADirectory => Obstacle::IsADirectory,
        AlreadyExists => Obstacle::Exists,
        ReadOnlyFilesystem => Obstacle::ReadOnly,
        PermissionDenied => Obstacle::Permission(folder.to_owned()),
        _ => Obstacle::Kernel(source),
    }
}

/// Refuses a path where no file can be made or replaced, by making a file in its directory without a name, or with a
/// name for a moment.
pub fn check(path: &Path) -> Result<(), PlaceError> {
    let refused = |source| PlaceError::new(path, source);
    if path.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    let folder = folder_of(path);
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => return Ok(()),
        // This file system requires a name, or has no files at all.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(refused(error.into())),
    }
    let trial = folder.join(format!(".fullbore-trial-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&trial);
    made.and_then(|_| std::fs::remove_file(&trial)).map_err(refused)
}

/// The directory of a file.
pub fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_is_named_with_the_place_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), b"").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let told = |name: &str| {
            let error = check(&at(name)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{}: no file", at(name).display())));
            format!("{}; {}", error.obstacle, error.hint().unwrap_or_default())
        };
        let missing = at("no/such").display().to_string();
        let expected = format!(
            "there is no directory {missing}; make it with `mkdir -p {missing}`, or give another place"
        );
        assert_eq!(told("no/such/x"), expected);
        let file = at("file").display().to_string();
        for below in ["file/x", "file/x/y/z"] {
            let expected = format!("{file} is not a directory; give a place in a directory");
            assert_eq!(told(below), expected, "{below}");
        }
        assert!(told("directory").ends_with(&format!("in it: {}/NAME", at("directory").display())));
        assert!(check(&at("file")).is_ok(), "a file can be replaced");
        assert!(check(&at("directory/new")).is_ok());
        assert_eq!(std::fs::read_dir(at("directory")).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn errors_of_the_kernel_are_told_in_plain_words() {
        let told = |kind: io::ErrorKind| PlaceError::new(Path::new("/x"), kind.into()).to_string();
        assert_eq!(
            told(io::ErrorKind::ReadOnlyFilesystem),
            "/x: no file can be made there: its file system is read-only"
        );
        assert!(told(io::ErrorKind::PermissionDenied).ends_with("to write in / is missing"));
        assert!(told(io::ErrorKind::AlreadyExists).ends_with("a file has this name"));
        assert!(told(io::ErrorKind::StorageFull).ends_with("no storage space"));
        assert!(check(Path::new("/proc/x")).is_err());
    }
}
