//! Which rows of a file belong to which acquisition, in files that take several.
//!
//! A group of columns, a row for each acquisition, written when it has ended.

use fullbore_core::format::panda::Header;
use fullbore_core::time::Tai;
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, Group, H5Type};

use super::Ending;

/// The group's name at the root.
pub(super) const GROUP: &str = "acquisitions";

/// A row of the index.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Acquisition {
    first_row: u64,
    rows: u64,
    missed: u64,
    arm_time: String,
    start_time: String,
    end_reason: String,
    verdict: String,
    /// What the PandA was set to then, as JSON, or nothing.
    settings: String,
}

impl Acquisition {
    pub(super) fn new(
        header: &Header,
        ending: &Ending,
        first_row: u64,
        rows: u64,
        settings: Option<String>,
    ) -> Self {
        let time = |time: Option<Tai>| time.map_or_else(String::new, |time| format!("{time:.9}"));
        Acquisition {
            first_row,
            rows,
            missed: ending.missed,
            arm_time: time(header.arm_time),
            start_time: time(header.start_time),
            end_reason: ending.reason.clone(),
            verdict: ending.verdict.map_or_else(String::new, |verdict| verdict.to_string()),
            settings: settings.unwrap_or_default(),
        }
    }

    /// One whose writer died: only its rows are known, and what the file began with.
    pub(super) fn abandoned(
        first_row: u64,
        rows: u64,
        reason: &str,
        settings: Option<String>,
    ) -> Self {
        Acquisition {
            first_row,
            rows,
            missed: 0,
            arm_time: String::new(),
            start_time: String::new(),
            end_reason: reason.to_owned(),
            verdict: "unproven".to_owned(),
            settings: settings.unwrap_or_default(),
        }
    }
}

/// Adds a row.
pub(super) fn add(file: &File, acquisition: &Acquisition) -> hdf5_metno::Result<()> {
    let group = match file.group(GROUP) {
        Ok(group) => group,
        Err(_) => file.create_group(GROUP)?,
    };
    let row = group.dataset("first_row").map_or(0, |column| column.size());
    put(&group, "first_row", row, acquisition.first_row)?;
    put(&group, "rows", row, acquisition.rows)?;
    put(&group, "missed", row, acquisition.missed)?;
    put_text(&group, "arm_time", row, &acquisition.arm_time)?;
    put_text(&group, "start_time", row, &acquisition.start_time)?;
    put_text(&group, "end_reason", row, &acquisition.end_reason)?;
    put_text(&group, "verdict", row, &acquisition.verdict)?;
    put_text(&group, "settings", row, &acquisition.settings)
}

/// The row after the last that the index knows, if there is an index.
pub(super) fn known_rows(file: &File) -> Option<u64> {
    let group = file.group(GROUP).ok()?;
    let column = |name| group.dataset(name).ok()?.read_1d::<u64>().ok();
    let ends = column("first_row")?.into_iter().zip(column("rows")?);
    Some(ends.map(|(first, rows)| first.saturating_add(rows)).max().unwrap_or(0))
}

fn put_text(group: &Group, name: &str, row: usize, text: &str) -> hdf5_metno::Result<()> {
    let value: VarLenUnicode = text.replace('\0', "").parse().unwrap_or_default();
    put(group, name, row, value)
}

/// Rows before it that a file of earlier times does not have are empty.
fn put<T: H5Type + Clone>(
    group: &Group,
    name: &str,
    row: usize,
    value: T,
) -> hdf5_metno::Result<()> {
    let column = match group.dataset(name) {
        Ok(column) => column,
        Err(_) => group.new_dataset::<T>().chunk((64,)).shape((0..,)).create(name)?,
    };
    column.resize(row + 1)?;
    column.write_slice(&[value], row..row + 1)
}
