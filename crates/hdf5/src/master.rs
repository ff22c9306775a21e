//! The master file: presents the files of several streams side by side as virtual datasets, and holds no data.

use std::path::{Path, PathBuf};

use hdf5_metno::dataset::{DatasetCreateBuilder, Layout};
use hdf5_metno::{Dataset, Extents, File, Group, Selection, SimpleExtents};

use super::bytes::BLOCKS;
use super::file::refused;
use super::{Error, attributes, beside, index, is_there};

/// The attributes of a stream's file that the master repeats.
const REPEATED: [&str; 7] =
    ["arm_time", "start_time", "end_reason", "verdict", "headline", "account", "settings"];

/// The counters, and the position of the hardware's clock.
const COUNTED: [&str; 3] = ["samples", "missing", "missed"];
const HW_TIME_OFFSET: &str = "hw_time_offset_ns";

/// The attribute for completeness, if it is known.
const COMPLETE: &str = "complete";

/// Creates a master with a group for each stream, in which each dataset of the stream's file appears. File names are
/// relative to the master, so that all files can be moved together.
///
/// The streams must have ended: the master takes their present lengths.
pub fn join(master: &Path, streams: &[(&str, &Path)]) -> Result<(), Error> {
    if is_there(master) {
        return Err(Error::Exists { path: master.to_owned() });
    }
    make(master, streams)
}

/// Replaces a master after its streams have grown. Streams in the old master that have not grown stay in the new one.
/// Readers of the old master keep it.
pub fn join_anew(master: &Path, streams: &[(&str, &Path)]) -> Result<(), Error> {
    let others: Vec<(String, PathBuf)> = check_master(master)?
        .into_iter()
        .filter(|name| !streams.iter().any(|(stream, _)| stream == name))
        .map(|name| (name.clone(), beside(master, &name)))
        .filter(|(_, path)| is_there(path))
        .collect();
    let others = others.iter().map(|(name, path)| (name.as_str(), path.as_path()));
    let all: Vec<(&str, &Path)> = others.chain(streams.iter().copied()).collect();
    let mut name = master.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = master.with_file_name(name);
    let disk = |doing| move |source| Error::Disk { path: master.to_owned(), doing, source };
    if is_there(&new) {
        std::fs::remove_file(&new).map_err(disk("removing what was left of a renewal"))?;
    }
    make(&new, &all)?;
    std::fs::rename(&new, master).map_err(disk("renewing it"))
}

/// Returns the streams of a master, if it exists. Refuses another file with its name.
pub fn check_master(master: &Path) -> Result<Vec<String>, Error> {
    if !is_there(master) {
        return Ok(Vec::new());
    }
    let file = File::open(master).map_err(refused(master, "opening it to renew it"))?;
    let is_virtual = |set: &Dataset| set.layout() == Layout::Virtual;
    let listed = || -> hdf5_metno::Result<Option<Vec<String>>> {
        for group in file.groups()? {
            if !group.datasets()?.iter().all(is_virtual) {
                return Ok(None);
            }
        }
        Ok(file.datasets()?.is_empty().then_some(file.member_names()?))
    };
    let listed = listed().map_err(refused(master, "listing its streams"))?;
    listed.ok_or_else(|| Error::NoMaster { path: master.to_owned() })
}

fn make(master: &Path, streams: &[(&str, &Path)]) -> Result<(), Error> {
    let file = File::create_excl(master).map_err(refused(master, "making it"))?;
    for (name, path) in streams {
        let bad = name.is_empty() || name.contains(['/', '\0']);
        let group = if bad { None } else { file.create_group(name).ok() };
        let group = group
            .ok_or_else(|| Error::Name { path: master.to_owned(), name: (*name).to_owned() })?;
        let stream = File::open(path).map_err(refused(path, "opening it"))?;
        let seen_from = relative(path, master);
        for set in stream.datasets().map_err(refused(path, "listing its datasets"))? {
            mirror(&group, &set, &seen_from).map_err(refused(master, "joining a dataset"))?;
        }
        for inner in [BLOCKS, index::GROUP] {
            let Ok(there) = stream.group(inner) else { continue };
            group.create_group(inner).map_err(refused(master, "joining a group"))?;
            for set in there.datasets().map_err(refused(path, "listing its datasets"))? {
                mirror(&group, &set, &seen_from).map_err(refused(master, "joining a dataset"))?;
            }
        }
        for name in REPEATED {
            if let Some(text) = attributes::read_text(&stream, name) {
                attributes::text(&group, name, &text, master)?;
            }
        }
        for name in COUNTED {
            if let Some(count) = attributes::read_number::<u64>(&stream, name) {
                attributes::number(&group, name, count, master)?;
            }
        }
        if let Some(complete) = attributes::read_number::<bool>(&stream, COMPLETE) {
            attributes::number(&group, COMPLETE, complete, master)?;
        }
        if let Some(ns) = attributes::read_number::<i64>(&stream, HW_TIME_OFFSET) {
            attributes::number(&group, HW_TIME_OFFSET, ns, master)?;
        }
    }
    file.close().map_err(refused(master, "closing it"))
}

fn mirror(group: &Group, set: &Dataset, file: &str) -> hdf5_metno::Result<()> {
    let name = set.name();
    let extents = || Extents::Simple(SimpleExtents::fixed(set.shape()));
    let mut properties = DatasetCreateBuilder::default();
    // HDF5 replaces `%b` in names of sources by numbers.
    let (source, set_there) = (file.replace('%', "%%"), name.replace('%', "%%"));
    properties.virtual_map(source, set_there, extents(), Selection::All, extents(), Selection::All);
    let properties = properties.finish()?;
    let here = name.trim_start_matches('/');
    let builder = group.new_dataset_builder().set_create_plist(&properties);
    let joined = builder.empty_as(&set.dtype()?).shape(extents()).create(here)?;
    copy_attributes(set, &joined)
}

fn copy_attributes(from: &Dataset, to: &Dataset) -> hdf5_metno::Result<()> {
    for name in from.attr_names()? {
        if let Some(text) = attributes::read_text(from, &name) {
            let value: hdf5_metno::types::VarLenUnicode = text.parse().unwrap_or_default();
            to.new_attr::<hdf5_metno::types::VarLenUnicode>()
                .create(name.as_str())?
                .write_scalar(&value)?;
        } else if let Some(number) = attributes::read_number::<f64>(from, &name) {
            to.new_attr::<f64>().create(name.as_str())?.write_scalar(&number)?;
        }
    }
    Ok(())
}

/// Returns the file's path relative to the master, or its full path if it is in another directory.
fn relative(path: &Path, master: &Path) -> String {
    let full = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (path, master) = (full(path), full(master));
    let beside = master.parent().and_then(|folder| path.strip_prefix(folder).ok());
    beside.unwrap_or(&path).to_string_lossy().into_owned()
}
