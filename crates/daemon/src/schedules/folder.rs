//! The directory of a schedule, which outlives the daemon:
//!
//! ```text
//! schedules/NAME/options.json   how it is recorded, and whether it was cancelled
//! schedules/NAME/scans          the text, as it was given; its recorder reads it
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fullbore_core::name::Name;
use fullbore_core::schedule::LARGEST;
use serde::{Deserialize, Serialize};

use super::{Options, read_bounded};

/// The most bytes of the options.
const LONGEST_OPTIONS: u64 = 1 << 20;

/// What is wanted of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub options: Options,
    /// It is in the file of the station.
    pub of_file: bool,
    /// It is not to be recorded any more.
    pub cancelled: bool,
}

/// The directory of one schedule.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// That of a schedule, whose name is checked.
    pub fn of(schedules: &Path, name: &str) -> Self {
        Self(schedules.join(name))
    }

    /// The directories that are there.
    pub fn all(schedules: &Path) -> io::Result<Vec<(String, Self)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(schedules)? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(|name| name.parse::<Name>().ok());
            found.extend(name.map(|name| (name.to_string(), Self(entry.path()))));
        }
        Ok(found)
    }

    /// The text of the schedule, for its recorder.
    pub fn scans(&self) -> PathBuf {
        self.0.join("scans")
    }

    pub fn read(&self) -> io::Result<(Wanted, Vec<u8>)> {
        let options = read_bounded(&self.0.join("options.json"), LONGEST_OPTIONS)?;
        Ok((serde_json::from_slice(&options)?, read_bounded(&self.scans(), LARGEST as u64)?))
    }

    /// Writes both files. The scans come first: options without scans are not recorded, and scans alone are no schedule.
    pub fn write(&self, wanted: &Wanted, text: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        put(&self.scans(), text)?;
        self.note(wanted)
    }

    /// Writes the options.
    pub fn note(&self, wanted: &Wanted) -> io::Result<()> {
        put(&self.0.join("options.json"), &serde_json::to_vec(wanted)?)
    }

    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

/// Writes a file whole, or not at all, also if the power goes.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}
