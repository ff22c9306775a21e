//! Earlier results: one file each in the user's data directory.
//!
//! ```text
//! <data directory>/fullbore/bench/20261122T040000Z-disk-<id>.json
//! ```

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use serde::Serialize;

use super::result::{BenchResult, Kind, LARGEST_DOCUMENT_BYTES, VERSION};
use super::sets::{self, SetsResult};

/// A result could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's data directory is unknown.
    #[error("neither XDG_DATA_HOME nor HOME is set, so there is no place for the history")]
    NoPlace,
    /// The file cannot be written.
    #[error("{}: writing the result: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{}: reading a result: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is not a result.
    #[error("{}: not the result of a benchmark: {why}", path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoPlace => "name a file with --output",
            Self::Write { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "create its directory first, or name another file"
            }
            Self::Write { .. } => "name another file",
            Self::Read { .. } => return None,
            Self::NotAResult { .. } => {
                "give a file that `fullbore bench … --output FILE` has written"
            }
        }))
    }
}

/// `$XDG_DATA_HOME/fullbore/bench`, else `~/.local/share/fullbore/bench`.
pub fn directory() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local/share")))
        .ok_or(Error::NoPlace)?;
    Ok(data.join("fullbore/bench"))
}

/// Adds a result to those in `directory`, and returns its path.
pub fn keep(directory: &Path, result: &BenchResult) -> Result<PathBuf, Error> {
    let when: String = result.started.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let kind = match result.kind {
        Kind::Disk => "disk",
        Kind::Memory => "memory",
        Kind::Ring => "ring",
        Kind::Net => "net",
        Kind::All => "all",
    };
    let path = directory.join(format!("{when}-{kind}-{}.json", result.id.simple()));
    fs::create_dir_all(directory)
        .map_err(|source| Error::Write { path: directory.to_owned(), source })?;
    write(&path, result)?;
    Ok(path)
}

/// Checks that the file can be written, before a benchmark that may take hours.
pub fn try_out(path: &Path) -> Result<(), Error> {
    let cannot = |source| Error::Write { path: path.to_owned(), source };
    if path.is_dir() {
        return Err(cannot(io::ErrorKind::IsADirectory.into()));
    }
    if is_no_plain_file(path) {
        return fs::OpenOptions::new().write(true).open(path).map(drop).map_err(cannot);
    }
    let draft = draft(path);
    fs::File::create(&draft).and_then(|_| fs::remove_file(&draft)).map_err(cannot)
}

/// Writes a result to a file atomically.
pub fn write(path: &Path, result: &impl Serialize) -> Result<(), Error> {
    write_whole(path, &|file| {
        serde_json::to_writer_pretty(&mut *file, result)?;
        file.write_all(b"\n")
    })
}

/// The same with a text.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    write_whole(path, &|file| file.write_all(text.as_bytes()))
}

fn write_whole(
    path: &Path,
    fill: &dyn Fn(&mut io::BufWriter<fs::File>) -> io::Result<()>,
) -> Result<(), Error> {
    let cannot = |source| Error::Write { path: path.to_owned(), source };
    if is_no_plain_file(path) {
        let file = fs::OpenOptions::new().write(true).open(path).map_err(cannot)?;
        let mut file = io::BufWriter::new(file);
        return fill(&mut file).and_then(|()| file.flush()).map_err(cannot);
    }
    let draft = draft(path);
    let write = || -> io::Result<()> {
        let mut file = io::BufWriter::new(fs::File::create(&draft)?);
        fill(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(|source| {
        // The draft is useless; the earlier error is returned.
        let _ = fs::remove_file(&draft);
        cannot(source)
    })
}

/// True for a terminal, a pipe, /dev/null: a file that must not be replaced.
fn is_no_plain_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn draft(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.draft", std::process::id()))
}

/// Reads a result.
pub fn read(path: &Path) -> Result<BenchResult, Error> {
    let not = |why: String| Error::NotAResult { path: path.to_owned(), why };
    let result: BenchResult =
        serde_json::from_value(document(path)?).map_err(|error| not(error.to_string()))?;
    match result.fullbore_bench {
        VERSION => Ok(result),
        later => Err(not(format!("this program does not know version {later} of the document"))),
    }
}

/// Reads a file with one result or, from `bench disk --set`, with those of several sets: each with its name, if it has
/// one.
pub fn read_any(path: &Path) -> Result<Vec<(Option<String>, BenchResult)>, Error> {
    let not = |why: String| Error::NotAResult { path: path.to_owned(), why };
    match document(path)? {
        value if value.get("fullbore_bench_sets").is_some() => {
            let sets: SetsResult =
                serde_json::from_value(value).map_err(|error| not(error.to_string()))?;
            if sets.fullbore_bench_sets != sets::VERSION {
                let version = sets.fullbore_bench_sets;
                return Err(not(format!(
                    "this program does not know version {version} of the document"
                )));
            }
            Ok(sets.sets.into_iter().map(|set| (Some(set.name), set.result)).collect())
        }
        _ => Ok(vec![(None, read(path)?)]),
    }
}

fn document(path: &Path) -> Result<serde_json::Value, Error> {
    let cannot = |source| Error::Read { path: path.to_owned(), source };
    let not = |why: String| Error::NotAResult { path: path.to_owned(), why };
    let file = fs::File::open(path).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?.len();
    if bytes > LARGEST_DOCUMENT_BYTES {
        return Err(not(format!("it has {bytes} bytes")));
    }
    serde_json::from_reader(io::BufReader::new(file)).map_err(|error| not(error.to_string()))
}

/// The files of all results in `directory`, the oldest first.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries,
    };
    let cannot = |source| Error::Read { path: directory.to_owned(), source };
    let mut found = vec![];
    for entry in entries.map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::BenchResult;

    #[test]
    fn what_is_kept_is_read_again_in_the_order_of_time() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        assert_eq!(list(&directory).unwrap(), Vec::<PathBuf>::new());
        let result = |started: &str| BenchResult {
            started: started.into(),
            ..BenchResult::new(Kind::Disk, Default::default())
        };
        let late = result("2026-11-22T04:00:01Z");
        let early = result("2026-11-21T23:59:59Z");
        let paths = [keep(&directory, &late).unwrap(), keep(&directory, &early).unwrap()];
        assert_eq!(list(&directory).unwrap(), [paths[1].clone(), paths[0].clone()]);
        assert_eq!(read(&paths[0]).unwrap(), late);
    }

    #[test]
    fn where_nothing_can_be_written_is_known_before_and_nothing_is_left_by_asking() {
        let place = tempfile::tempdir().unwrap();
        let good = place.path().join("result.json");
        try_out(&good).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        fs::write(&good, "before").unwrap();
        try_out(&good).unwrap();
        assert_eq!(fs::read(&good).unwrap(), b"before");
        let error = try_out(&place.path().join("none/result.json")).unwrap_err();
        assert!(matches!(error, Error::Write { .. }));
        assert!(error.hint().unwrap().contains("directory"), "{error}");
        assert!(try_out(place.path()).is_err(), "a directory is no file");
    }

    #[test]
    fn what_is_no_plain_file_is_written_to_and_stays_what_it_is() {
        use std::os::unix::fs::FileTypeExt;
        let null = Path::new("/dev/null");
        let is_device = || fs::metadata(null).unwrap().file_type().is_char_device();
        try_out(null).unwrap();
        write_text(null, "gone").unwrap();
        assert!(is_device());
        write(null, &BenchResult::new(Kind::Net, Default::default())).unwrap();
        assert!(is_device());
    }

    #[test]
    fn other_documents_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.json");
        fs::write(&path, "{}").unwrap();
        assert!(matches!(read(&path), Err(Error::NotAResult { .. })));
        let mut later = BenchResult::new(Kind::Net, Default::default());
        later.fullbore_bench = VERSION + 1;
        write(&path, &later).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }
}
