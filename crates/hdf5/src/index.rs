//! The index of recordings in a file that holds several: the rows of each recording.
//!
//! The index is a group of columns with a row for each acquisition or scan, written at its end. A file that began with
//! one recording has no index: the attributes of its root become the first row when another is added.

use std::path::Path;

use fullbore_formats::panda::Header;
use fullbore_time::Tai;
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, Group, H5Type};

use super::file::refused;
use super::{Ending, Error, SETTINGS, attributes};

/// The group's name at the root.
pub(super) const GROUP: &str = "acquisitions";

/// A row of the index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Acquisition {
    first_row: u64,
    rows: u64,
    /// Index of the first sample received.
    missed: u64,
    /// Samples that were not received.
    missing: u64,
    arm_time: String,
    start_time: String,
    end_reason: String,
    verdict: String,
    /// The headline of its completeness.
    headline: String,
    /// The account as JSON, or empty.
    account: String,
    /// The settings of the PandA at that time, as JSON, or empty.
    settings: String,
    /// The scan, if it belongs to a store.
    scan: String,
}

impl Acquisition {
    /// Builds the row of an ending, with this number of rows.
    pub(super) fn new(ending: &Ending, first_row: u64, rows: u64) -> Self {
        Acquisition {
            first_row,
            rows,
            missing: ending.missing,
            end_reason: ending.reason.clone(),
            verdict: ending.verdict().to_string(),
            headline: ending.headline.clone(),
            account: ending.account.clone().unwrap_or_default(),
            ..Acquisition::default()
        }
    }

    /// Adds the PandA's header and settings.
    pub(super) fn of_panda(self, header: &Header, settings: Option<String>) -> Self {
        let time = |time: Option<Tai>| time.map_or_else(String::new, |time| format!("{time:.9}"));
        Acquisition {
            missed: header.missed,
            arm_time: time(header.arm_time),
            start_time: time(header.start_time),
            settings: settings.unwrap_or_default(),
            ..self
        }
    }

    /// Adds the name of its scan.
    pub(super) fn of_scan(self, scan: String) -> Self {
        Acquisition { scan, ..self }
    }

    /// Builds the row of a recording whose writer died: only its rows and the attributes from its start are known.
    pub(super) fn abandoned(file: &File, first_row: u64, rows: u64, reason: &str) -> Self {
        let settings = attributes::read_text(file, SETTINGS).unwrap_or_default();
        // The root counts the missing samples of all recordings together; its start value includes those that this one
        // missed.
        let of_others = known_missing(file);
        let of_all = attributes::read_number(file, "missing").unwrap_or(of_others);
        let missed = of_all.saturating_sub(of_others);
        let ending = Ending { missing: missed, ..Ending::given_up(reason.to_owned()) };
        Acquisition { settings, missed, ..Acquisition::new(&ending, first_row, rows) }
    }

    /// Builds the row of a file's only recording from the attributes of its root.
    fn of_root(file: &File, rows: u64) -> Self {
        let text = |name| attributes::read_text(file, name).unwrap_or_default();
        let number = |name| attributes::read_number(file, name).unwrap_or(0);
        Acquisition {
            first_row: 0,
            rows,
            missed: number("missed"),
            missing: number("missing"),
            arm_time: text("arm_time"),
            start_time: text("start_time"),
            end_reason: text("end_reason"),
            verdict: text("verdict"),
            headline: text("headline"),
            account: text("account"),
            settings: text(SETTINGS),
            scan: text("scan"),
        }
    }
}

/// Creates the index of a file that has none, or adds its last row, before more data is added. The file has `rows`
/// rows.
pub(super) fn complete(file: &File, rows: u64, path: &Path) -> Result<(), Error> {
    let lacking = match known_rows(file) {
        None => Acquisition::of_root(file, rows),
        Some(known) if known < rows => {
            let root = Acquisition::of_root(file, rows);
            Acquisition { first_row: known, rows: rows - known, ..root }
        }
        Some(_) => return Ok(()),
    };
    add(file, &lacking).map_err(refused(path, "making its index"))
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
    put(&group, "missing", row, acquisition.missing)?;
    put_text(&group, "arm_time", row, &acquisition.arm_time)?;
    put_text(&group, "start_time", row, &acquisition.start_time)?;
    put_text(&group, "end_reason", row, &acquisition.end_reason)?;
    put_text(&group, "verdict", row, &acquisition.verdict)?;
    put_text(&group, "headline", row, &acquisition.headline)?;
    put_text(&group, "account", row, &acquisition.account)?;
    put_text(&group, "settings", row, &acquisition.settings)?;
    put_text(&group, "scan", row, &acquisition.scan)
}

/// Returns the row after the last one in the index, if there is an index.
pub(super) fn known_rows(file: &File) -> Option<u64> {
    let group = file.group(GROUP).ok()?;
    let column = |name| group.dataset(name).ok()?.read_1d::<u64>().ok();
    let ends = column("first_row")?.into_iter().zip(column("rows")?);
    Some(ends.map(|(first, rows)| first.saturating_add(rows)).max().unwrap_or(0))
}

/// Returns the missing samples of all rows of the index.
fn known_missing(file: &File) -> u64 {
    let column = file.group(GROUP).and_then(|group| group.dataset("missing")?.read_1d::<u64>());
    column.map_or(0, |counts| counts.iter().fold(0, |sum, &count| sum.saturating_add(count)))
}

fn put_text(group: &Group, name: &str, row: usize, text: &str) -> hdf5_metno::Result<()> {
    let value: VarLenUnicode = text.replace('\0', "").parse().unwrap_or_default();
    put(group, name, row, value)
}

/// Earlier rows are empty in a file of an older version that lacks this column.
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
