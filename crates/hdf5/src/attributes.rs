//! HDF5 attributes in the form that h5py writes: text as strings, numbers as scalars.

use std::path::Path;

use fullbore_core::account::Verdict;
use fullbore_core::completeness::Status;
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, H5Type, Location};

use super::{Ending, Error};

/// The verdict of a file that is being written, or whose writer died.
pub(super) const RECORDING: &str = "recording";

/// Sets a text attribute, replacing an existing one.
pub(super) fn text(of: &Location, name: &str, text: &str, path: &Path) -> Result<(), Error> {
    // HDF5 strings end at a zero byte.
    let plain = text.replace('\0', "");
    let value: VarLenUnicode = plain.parse().unwrap_or_default();
    value_of(of, name, &value, path)
}

/// Sets a number attribute, replacing an existing one.
pub(super) fn number<T: H5Type>(of: &Location, name: &str, n: T, path: &Path) -> Result<(), Error> {
    value_of(of, name, &n, path)
}

fn value_of<T: H5Type>(of: &Location, name: &str, value: &T, path: &Path) -> Result<(), Error> {
    let set = || {
        if of.attr_names()?.iter().any(|there| there == name) {
            of.delete_attr(name)?;
        }
        of.new_attr::<T>().create(name)?.write_scalar(value)
    };
    set().map_err(|source| Error::Attribute {
        path: path.to_owned(),
        name: name.to_owned(),
        source,
    })
}

/// Removes an attribute, if it exists.
pub(super) fn remove(of: &Location, name: &str, path: &Path) -> Result<(), Error> {
    let gone = of.attr_names().and_then(|names| match names.iter().any(|there| there == name) {
        true => of.delete_attr(name),
        false => Ok(()),
    });
    gone.map_err(|source| Error::Attribute { path: path.to_owned(), name: name.to_owned(), source })
}

/// Reads a text attribute, if it exists and is text.
pub(super) fn read_text(of: &Location, name: &str) -> Option<String> {
    let value: VarLenUnicode = of.attr(name).ok()?.read_scalar().ok()?;
    Some(value.as_str().to_owned())
}

/// Reads a number attribute, if it exists and is a number.
pub(super) fn read_number<T: H5Type>(of: &Location, name: &str) -> Option<T> {
    of.attr(name).ok()?.read_scalar().ok()
}

/// Reserves the attributes that are written at the end. `missing` samples are missing already; that number stays if the
/// file gets no ending.
pub(super) fn reserve(file: &File, missing: u64, path: &Path) -> Result<(), Error> {
    text(file, "end_reason", "", path)?;
    text(file, "verdict", RECORDING, path)?;
    say_incomplete(file, path)?;
    text(file, "account", "", path)?;
    number(file, "missing", missing, path)?;
    number(file, "samples", 0u64, path)
}

/// Marks the start of one more recording in the file, with `missing` samples missing already.
pub(super) fn go_on(
    file: &File,
    earlier: &PreviousRecordings,
    missing: u64,
    path: &Path,
) -> Result<(), Error> {
    number(file, "missing", earlier.missing.saturating_add(missing), path)?;
    say_incomplete(file, path)?;
    text(file, "verdict", RECORDING, path)
}

/// Marks the file as not complete while it is written, and if its writer dies.
fn say_incomplete(file: &File, path: &Path) -> Result<(), Error> {
    say_completeness(file, "INCOMPLETE: it is being recorded", path)
}

/// Writes whether the file is complete. If that is unknown, there is no attribute `complete`.
fn say_completeness(of: &Location, headline: &str, path: &Path) -> Result<(), Error> {
    text(of, "headline", headline, path)?;
    match Status::of_headline(headline).and_then(Status::complete) {
        Some(complete) => number(of, "complete", complete, path),
        None => remove(of, "complete", path),
    }
}

/// The attributes of the earlier recordings in a file, for adding another one.
#[derive(Clone, Debug, Default)]
pub(super) struct PreviousRecordings {
    missing: u64,
    verdict: Option<Verdict>,
    headline: Option<String>,
}

impl PreviousRecordings {
    /// Reads them from a file that was ended.
    pub(super) fn of(file: &File) -> Self {
        let said = read_text(file, "verdict");
        let verdict = VERDICTS.into_iter().find(|it| said.as_deref() == Some(&it.to_string()));
        let untold = || "UNKNOWN: an earlier recording in this file has no headline".to_owned();
        let headline = read_text(file, "headline").unwrap_or_else(untold);
        let missing = read_number(file, "missing").unwrap_or(0);
        PreviousRecordings { missing, verdict, headline: Some(headline) }
    }

    /// Returns the headline of the worst recording.
    fn headline_with<'a>(&'a self, ending: &'a Ending) -> &'a str {
        let last = match ending.headline.as_str() {
            "" => "UNKNOWN: it has no account",
            headline => headline,
        };
        let all = [self.headline.as_deref(), Some(last)].into_iter().flatten();
        all.max_by_key(|headline| Status::of_headline(headline)).unwrap_or(last)
    }
}

const VERDICTS: [Verdict; 4] =
    [Verdict::Proven, Verdict::Consistent, Verdict::Unexplained, Verdict::Unproven];

/// Writes the ending. If the file holds earlier recordings, its verdict is the least certain of all, its headline that
/// of the least complete one, and the missing samples are added up.
pub(super) fn end(
    file: &File,
    ending: &Ending,
    earlier: &PreviousRecordings,
    samples: u64,
    path: &Path,
) -> Result<(), Error> {
    let verdict = ending.verdict().max(earlier.verdict.unwrap_or(Verdict::Proven));
    text(file, "end_reason", &ending.reason, path)?;
    text(file, "account", ending.account.as_deref().unwrap_or(""), path)?;
    number(file, "missing", earlier.missing.saturating_add(ending.missing), path)?;
    number(file, "samples", samples, path)?;
    say_completeness(file, earlier.headline_with(ending), path)?;
    text(file, "verdict", &verdict.to_string(), path)
}
