//! Files of several streams side by side in one: a master that holds no data, only where it is.

use std::path::Path;

use hdf5_metno::dataset::DatasetCreateBuilder;
use hdf5_metno::{Dataset, Extents, File, Group, Selection, SimpleExtents};

use super::bytes::BLOCKS;
use super::container::refused;
use super::{Error, attributes};

/// What of a stream's file the master repeats.
const REPEATED: [&str; 6] =
    ["arm_time", "start_time", "end_reason", "verdict", "account", "settings"];

/// Makes a master with a group for each stream, in which every dataset of its file is seen as if it
/// were there. Files are named relative to the master, so that they can be moved together.
///
/// The streams must have ended: their lengths are taken as they are now.
pub fn join(master: &Path, streams: &[(&str, &Path)]) -> Result<(), Error> {
    if master.exists() {
        return Err(Error::Exists { path: master.to_owned() });
    }
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
        if let Ok(blocks) = stream.group(BLOCKS) {
            group.create_group(BLOCKS).map_err(refused(master, "joining a group"))?;
            for set in blocks.datasets().map_err(refused(path, "listing its datasets"))? {
                mirror(&group, &set, &seen_from).map_err(refused(master, "joining a dataset"))?;
            }
        }
        for name in REPEATED {
            if let Some(text) = attributes::read_text(&stream, name) {
                attributes::text(&group, name, &text, master)?;
            }
        }
        if let Some(samples) = attributes::read_number::<u64>(&stream, "samples") {
            attributes::number(&group, "samples", samples, master)?;
        }
    }
    file.close().map_err(refused(master, "closing it"))
}

fn mirror(group: &Group, set: &Dataset, file: &str) -> hdf5_metno::Result<()> {
    let name = set.name();
    let extents = || Extents::Simple(SimpleExtents::fixed(set.shape()));
    let mut properties = DatasetCreateBuilder::default();
    properties.virtual_map(file, &name, extents(), Selection::All, extents(), Selection::All);
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

/// The file as named from beside the master, or its full name if it lies elsewhere.
fn relative(path: &Path, master: &Path) -> String {
    let full = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (path, master) = (full(path), full(master));
    let beside = master.parent().and_then(|folder| path.strip_prefix(folder).ok());
    beside.unwrap_or(&path).to_string_lossy().into_owned()
}
