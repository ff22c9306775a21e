//! Links and attributes by which programs for NeXus files find the columns of a PandA. The columns stay at the root.
//!
//! ```text
//! /                                  NXroot        default = entry
//! /entry                             NXentry       default = data
//! /entry/data                        NXdata        signal, auxiliary_signals, axes; a link to each column
//! /entry/instrument                  NXinstrument  ┐ if the names of areaDetector are wanted
//! /entry/instrument/NDAttributes     NXcollection  ┘ a link to each column
//! ```
//!
//! Sources: the NeXus manual, *Associating plottable data using attributes applied to the NXdata group*, and the default
//! layout of areaDetector's `NDFileHDF5`, which keeps a value of each frame in `NDAttributes`.

use std::path::Path;

use fullbore_formats::panda::columns::{Column, Element};
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, Group};

use super::file::refused;
use super::{Error, Nexus, attributes};

/// The group at the root. No column can have its name.
pub(super) const ENTRY: &str = "entry";

const DATA: &str = "data";

/// Adds the groups, links and attributes to a new file that has these columns.
pub(super) fn describe(
    file: &File,
    columns: &[Column],
    nexus: Nexus,
    path: &Path,
) -> Result<(), Error> {
    if nexus == Nexus::Off {
        return Ok(());
    }
    attributes::text(file, "NX_class", "NXroot", path)?;
    attributes::text(file, "default", ENTRY, path)?;
    let entry = group(file, ENTRY, "NXentry", path)?;
    attributes::text(&entry, "default", DATA, path)?;
    let data = group(&entry, DATA, "NXdata", path)?;
    link(&data, columns, path)?;
    name_signals(&data, columns, path)?;
    if nexus == Nexus::AreaDetector {
        let instrument = group(&entry, "instrument", "NXinstrument", path)?;
        let collection = group(&instrument, "NDAttributes", "NXcollection", path)?;
        link(&collection, columns, path)?;
    }
    Ok(())
}

fn group(parent: &Group, name: &str, class: &str, path: &Path) -> Result<Group, Error> {
    let made = parent.create_group(name).map_err(refused(path, "making its NeXus groups"))?;
    attributes::text(&made, "NX_class", class, path)?;
    Ok(made)
}

/// Links to the columns at the root.
fn link(group: &Group, columns: &[Column], path: &Path) -> Result<(), Error> {
    columns.iter().try_for_each(|column| {
        group
            .link_soft(&format!("/{}", column.name), &column.name)
            .map_err(refused(path, "making its NeXus links"))
    })
}

/// Says which columns are to be drawn, and over which times.
fn name_signals(data: &Group, columns: &[Column], path: &Path) -> Result<(), Error> {
    let drawable = |column: &&Column| column.element != Element::Int96;
    let drawable: Vec<&Column> = columns.iter().filter(drawable).collect();
    // Positions come before what the PandA captures of itself.
    let position = drawable.iter().find(|column| !column.name.starts_with("PCAP."));
    let Some(signal) = position.or(drawable.first()) else { return Ok(()) };
    attributes::text(data, "signal", &signal.name, path)?;
    let axis = drawable.iter().find(|it| it.name.starts_with("PCAP.TS_") && it != &signal);
    if let Some(axis) = axis {
        attributes::text(data, "axes", &axis.name, path)?;
    }
    let others = drawable.iter().filter(|it| it != &signal && Some(*it) != axis);
    let others: Vec<VarLenUnicode> = others.filter_map(|it| it.name.parse().ok()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let name = "auxiliary_signals";
    let set = data.new_attr_builder().with_data(others.as_slice()).create(name);
    set.map(drop).map_err(|source| Error::Attribute {
        path: path.to_owned(),
        name: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use fullbore_formats::panda::Header;

    use super::*;
    use crate::{Ending, Options, PandaFile};

    const POSITIONS: &[&str] = &[
        "PCAP.BITS0 uint32 Value",
        "COUNTER1.OUT int32 Min scale: 0.5 offset: 3 units: mm",
        TIME,
        "COUNTER2.OUT int64 Sum scale: 1 offset: 0 units: deg",
    ];
    const TIME: &str = "PCAP.TS_TRIG int64 Value scale: 8e-09 offset: 0 units: s";

    /// A file that ended, with these fields of a text header.
    fn file(fields: &[&str], nexus: Nexus) -> (tempfile::TempDir, File) {
        let width = |field: &&str| if field.contains("int64") { 8 } else { 4 };
        let sample_bytes: u32 = fields.iter().map(width).sum();
        let header = format!(
            "missed: 0\nprocess: Raw\nformat: Framed\nsample_bytes: {sample_bytes}\nfields:\n {}\n",
            fields.join("\n ")
        );
        let header = Header::of_recording(&header).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.h5");
        let options = Options { nexus, ..Options::default() };
        let made = PandaFile::create(&path, &header, &options).unwrap();
        made.finish(&Ending::default()).unwrap();
        let file = File::open(&path).unwrap();
        (folder, file)
    }

    #[test]
    fn the_default_data_is_the_first_position_over_the_time() {
        let (_folder, file) = file(POSITIONS, Nexus::Data);
        let text = |group: &Group, name| attributes::read_text(group, name);
        let entry = file.group(&text(&file, "default").unwrap()).unwrap();
        let data = entry.group(&text(&entry, "default").unwrap()).unwrap();
        assert_eq!(text(&data, "NX_class").as_deref(), Some("NXdata"));
        assert_eq!(text(&data, "signal").as_deref(), Some("COUNTER1.OUT.Min"));
        assert_eq!(text(&data, "axes").as_deref(), Some("PCAP.TS_TRIG.Value"));
        let others = data.attr("auxiliary_signals").unwrap().read_raw::<VarLenUnicode>().unwrap();
        let others: Vec<&str> = others.iter().map(|it| it.as_str()).collect();
        assert_eq!(others, ["PCAP.BITS0.Value", "COUNTER2.OUT.Sum"]);
        assert_eq!(data.member_names().unwrap().len(), 4);
        assert!(data.dataset("COUNTER2.OUT.Sum").is_ok());
        assert!(entry.group("instrument").is_err());
    }

    #[test]
    fn names_of_area_detector_are_there_on_request() {
        let (_folder, file) = file(POSITIONS, Nexus::AreaDetector);
        let there = file.group("entry/instrument/NDAttributes").unwrap();
        assert_eq!(there.member_names().unwrap().len(), 4);
        assert!(there.dataset("COUNTER1.OUT.Min").is_ok());
    }

    #[test]
    fn nothing_is_added_if_it_is_off() {
        let (_folder, file) = file(POSITIONS, Nexus::Off);
        assert!(file.group(ENTRY).is_err() && attributes::read_text(&file, "default").is_none());
    }

    #[test]
    fn a_single_column_of_times_is_the_signal() {
        let (_folder, file) = file(&[TIME], Nexus::Data);
        let data = file.group("entry/data").unwrap();
        assert_eq!(attributes::read_text(&data, "signal").as_deref(), Some("PCAP.TS_TRIG.Value"));
        assert!(data.attr("axes").is_err() && data.attr("auxiliary_signals").is_err());
    }
}
