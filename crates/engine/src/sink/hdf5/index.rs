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
}

impl Acquisition {
    pub(super) fn new(header: &Header, ending: &Ending, first_row: u64, rows: u64) -> Self {
        let time = |time: Option<Tai>| time.map_or_else(String::new, |time| format!("{time:.9}"));
        Acquisition {
            first_row,
            rows,
            missed: ending.missed,
            arm_time: time(header.arm_time),
            start_time: time(header.start_time),
            end_reason: ending.reason.clone(),
            verdict: ending.verdict.map_or_else(String::new, |verdict| verdict.to_string()),
        }
    }

    /// One whose writer died: only its rows are known.
    pub(super) fn abandoned(first_row: u64, rows: u64, reason: &str) -> Self {
        Acquisition {
            first_row,
            rows,
            missed: 0,
            arm_time: String::new(),
            start_time: String::new(),
            end_reason: reason.to_owned(),
            verdict: "unproven".to_owned(),
        }
    }
}

/// Adds a row.
pub(super) fn add(file: &File, acquisition: &Acquisition) -> hdf5_metno::Result<()> {
    let group = match file.group(GROUP) {
        Ok(group) => group,
        Err(_) => file.create_group(GROUP)?,
    };
    push(&group, "first_row", acquisition.first_row)?;
    push(&group, "rows", acquisition.rows)?;
    push(&group, "missed", acquisition.missed)?;
    push_text(&group, "arm_time", &acquisition.arm_time)?;
    push_text(&group, "start_time", &acquisition.start_time)?;
    push_text(&group, "end_reason", &acquisition.end_reason)?;
    push_text(&group, "verdict", &acquisition.verdict)
}

/// The row after the last that the index knows, if there is an index.
pub(super) fn known_rows(file: &File) -> Option<u64> {
    let group = file.group(GROUP).ok()?;
    let column = |name| group.dataset(name).ok()?.read_1d::<u64>().ok();
    let ends = column("first_row")?.into_iter().zip(column("rows")?);
    Some(ends.map(|(first, rows)| first.saturating_add(rows)).max().unwrap_or(0))
}

fn push_text(group: &Group, name: &str, text: &str) -> hdf5_metno::Result<()> {
    let value: VarLenUnicode = text.replace('\0', "").parse().unwrap_or_default();
    push(group, name, value)
}

fn push<T: H5Type + Clone>(group: &Group, name: &str, value: T) -> hdf5_metno::Result<()> {
    let column = match group.dataset(name) {
        Ok(column) => column,
        Err(_) => group.new_dataset::<T>().chunk((64,)).shape((0..,)).create(name)?,
    };
    let row = column.size();
    column.resize(row + 1)?;
    column.write_slice(&[value], row..row + 1)
}
