//! Attributes as h5py would have written them: text as text, numbers as scalars.

use std::path::Path;

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

/// Keeps places for what is known at the end.
pub(super) fn reserve(file: &File, missed: u64, path: &Path) -> Result<(), Error> {
    text(file, "end_reason", "", path)?;
    text(file, "verdict", RECORDING, path)?;
    text(file, "account", "", path)?;
    number(file, "missed", missed, path)?;
    number(file, "samples", 0u64, path)
}

/// Says how it ended.
pub(super) fn end(file: &File, ending: &Ending, samples: u64, path: &Path) -> Result<(), Error> {
    let verdict =
        ending.verdict.map_or_else(|| "unproven".to_owned(), |verdict| verdict.to_string());
    text(file, "end_reason", &ending.reason, path)?;
    text(file, "account", ending.account.as_deref().unwrap_or(""), path)?;
    number(file, "missed", ending.missed, path)?;
    number(file, "samples", samples, path)?;
    text(file, "verdict", &verdict, path)
}
