//! Attributes as h5py would have written them: text as text, numbers as scalars.

use std::path::Path;

use fullbore_core::account::Verdict;
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, H5Type, Location};

use super::{Ending, Error};

/// The verdict of a file that is still being written, or whose writer died.
pub(super) const RECORDING: &str = "recording";

/// Sets a text, in place of the one that is there.
pub(super) fn text(of: &Location, name: &str, text: &str, path: &Path) -> Result<(), Error> {
    // HDF5's texts end at a zero byte.
    let plain = text.replace('\0', "");
    let value: VarLenUnicode = plain.parse().unwrap_or_default();
    value_of(of, name, &value, path)
}

/// Sets a number, in place of the one that is there.
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

/// Takes an attribute away, if it is there.
pub(super) fn remove(of: &Location, name: &str, path: &Path) -> Result<(), Error> {
    let gone = of.attr_names().and_then(|names| match names.iter().any(|there| there == name) {
        true => of.delete_attr(name),
        false => Ok(()),
    });
    gone.map_err(|source| Error::Attribute { path: path.to_owned(), name: name.to_owned(), source })
}

/// The text that is there, if it is one.
pub(super) fn read_text(of: &Location, name: &str) -> Option<String> {
    let value: VarLenUnicode = of.attr(name).ok()?.read_scalar().ok()?;
    Some(value.as_str().to_owned())
}

/// The number that is there, if it is one.
pub(super) fn read_number<T: H5Type>(of: &Location, name: &str) -> Option<T> {
    of.attr(name).ok()?.read_scalar().ok()
}

/// Keeps places for what is known at the end. So many samples are missing already, and stay so if no end comes.
pub(super) fn reserve(file: &File, missing: u64, path: &Path) -> Result<(), Error> {
    text(file, "end_reason", "", path)?;
    text(file, "verdict", RECORDING, path)?;
    text(file, "account", "", path)?;
    number(file, "missing", missing, path)?;
    number(file, "samples", 0u64, path)
}

/// Says that one more recording is being written, of which so many samples are missing already.
pub(super) fn go_on(
    file: &File,
    earlier: &Earlier,
    missing: u64,
    path: &Path,
) -> Result<(), Error> {
    number(file, "missing", earlier.missing.saturating_add(missing), path)?;
    text(file, "verdict", RECORDING, path)
}

/// What a file says of the recordings that it has, for another one to be added to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    missing: u64,
    verdict: Option<Verdict>,
}

impl Earlier {
    /// Of a file that was ended.
    pub(super) fn of(file: &File) -> Self {
        let said = read_text(file, "verdict");
        let verdict = VERDICTS.into_iter().find(|it| said.as_deref() == Some(&it.to_string()));
        Earlier { missing: read_number(file, "missing").unwrap_or(0), verdict }
    }
}

const VERDICTS: [Verdict; 4] =
    [Verdict::Proven, Verdict::Consistent, Verdict::Unexplained, Verdict::Unproven];

/// Says how it ended. Where others are in the file already, its verdict is that of the least sure of all, and what is
/// missing is counted together, as samples are.
pub(super) fn end(
    file: &File,
    ending: &Ending,
    earlier: &Earlier,
    samples: u64,
    path: &Path,
) -> Result<(), Error> {
    let verdict = ending.verdict().max(earlier.verdict.unwrap_or(Verdict::Proven));
    text(file, "end_reason", &ending.reason, path)?;
    text(file, "account", ending.account.as_deref().unwrap_or(""), path)?;
    number(file, "missing", earlier.missing.saturating_add(ending.missing), path)?;
    number(file, "samples", samples, path)?;
    text(file, "verdict", &verdict.to_string(), path)
}
