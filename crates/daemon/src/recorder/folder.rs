//! The directory of a running recorder, by which any daemon of the store can follow and end it.
//!
//! ```text
//! recordings/<uuid>/request.json   what was asked for
//! recordings/<uuid>/process.json   the process
//! recordings/<uuid>/asked          there once it was asked to end, so that the next daemon shows that it is stopping
//! recordings/<uuid>/events         a named pipe: its standard output
//! recordings/<uuid>/errors         its standard error
//! recordings/<uuid>/spectra        a socket: live spectra (`docs/decisions/0038-live-spectra.md`)
//! ```
//!
//! A pipe has any number of readers one after the other. While there is none, a recorder's writes fail at once with
//! EPIPE, which it ignores; so a recorder without a daemon waits for nobody, and the next daemon reads on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::life::Complaint;
use super::process::{self, Identity};
use super::request::StartRequest;

/// The most bytes of a file here that are read.
const LONGEST_FILE: u64 = 1 << 20;

/// The directory of one recorder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The directory of a recording.
    pub fn of(recordings: &Path, id: Uuid) -> Self {
        Self(recordings.join(id.to_string()))
    }

    /// Makes the directory of a new recording.
    pub fn make(recordings: &Path, id: Uuid, request: &StartRequest) -> io::Result<Self> {
        let folder = Self::of(recordings, id);
        fs::create_dir_all(&folder.0)?;
        put(&folder.0.join("request.json"), request)?;
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, folder.events(), FileType::Fifo, mode, 0)?;
        Ok(folder)
    }

    /// The directories that are there, with the recordings that they name.
    pub fn all(recordings: &Path) -> io::Result<Vec<(Uuid, Self)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(recordings)? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            found.extend(id.map(|id| (id, Self(entry.path()))));
        }
        Ok(found)
    }

    /// What was asked for.
    pub fn request(&self) -> io::Result<StartRequest> {
        get(&self.0.join("request.json"))
    }

    /// Notes the process.
    pub fn note(&self, process: &Identity) -> io::Result<()> {
        put(&self.0.join("process.json"), process)
    }

    /// Notes that the recorder was asked to end.
    pub fn note_asked(&self) -> io::Result<()> {
        File::create(self.asked()).map(drop)
    }

    /// True if the recorder was asked to end.
    pub fn was_asked(&self) -> bool {
        self.asked().exists()
    }

    /// The process, if it is there.
    pub fn process(&self) -> Option<Identity> {
        let noted = get::<Identity>(&self.0.join("process.json")).ok();
        noted.filter(Identity::is_there).or_else(|| process::with_output(&self.events()))
    }

    /// Opens the pipe to read. Reads do not wait until the pipe has been opened to write.
    pub fn open_to_read(&self) -> io::Result<File> {
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
        OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(self.events())
    }

    /// Opens the pipe to write; it must be open to read.
    pub fn open_to_write(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.events())
    }

    /// Opens the file for errors.
    pub fn errors(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.0.join("errors"))
    }

    /// The last error that the recorder printed.
    pub fn complaint(&self) -> Option<Complaint> {
        let mut file = File::open(self.0.join("errors")).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_FILE))).ok()?;
        let mut text = Vec::new();
        file.take(LONGEST_FILE).read_to_end(&mut text).ok()?;
        let last = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
        Some(serde_json::from_slice(last).unwrap_or_else(|_| Complaint {
            error: String::from_utf8_lossy(last).chars().take(1000).collect(),
            advice: None,
        }))
    }

    /// Removes the directory.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }

    /// The socket of live spectra.
    pub fn spectra(&self) -> PathBuf {
        self.0.join("spectra")
    }

    fn asked(&self) -> PathBuf {
        self.0.join("asked")
    }

    fn events(&self) -> PathBuf {
        self.0.join("events")
    }
}

/// Writes a file whole, or not at all.
fn put(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, serde_json::to_vec(value)?)?;
    fs::rename(&part, path)
}

fn get<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST_FILE).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_writer_outlives_its_readers() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path(), Uuid::now_v7(), &StartRequest::default()).unwrap();
        let mut first = folder.open_to_read().unwrap();
        let mut writer = folder.open_to_write().unwrap();
        let mut buffer = [0; 10];
        writer.write_all(b"one").unwrap();
        assert_eq!(first.read(&mut buffer).unwrap(), 3);
        drop(first);
        assert_eq!(writer.write(b"lost").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut second = folder.open_to_read().unwrap();
        writer.write_all(b"three").unwrap();
        assert_eq!((second.read(&mut buffer).unwrap(), &buffer[..5]), (5, b"three".as_slice()));
        drop(writer);
        assert_eq!(second.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn the_last_error_is_read_with_its_advice() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path(), Uuid::now_v7(), &StartRequest::default()).unwrap();
        assert_eq!(folder.complaint(), None);
        let mut errors = folder.errors().unwrap();
        errors.write_all(b"{\"error\":\"first\"}\n{\"error\":\"no\",\"advice\":\"do\"}\n").unwrap();
        let advice = Some("do".to_owned());
        assert_eq!(folder.complaint(), Some(Complaint { error: "no".into(), advice }));
        errors.write_all(b"plain text\n").unwrap();
        assert_eq!(folder.complaint().unwrap().error, "plain text");
        assert_eq!(Folder::all(place.path()).unwrap().len(), 1);
        folder.remove().unwrap();
        assert!(Folder::all(place.path()).unwrap().is_empty());
    }
}
