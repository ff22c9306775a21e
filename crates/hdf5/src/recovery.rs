//! Recovery of files whose writer died.

use std::path::Path;

use fullbore_linux::sys::hdf5::open_abandoned;
use hdf5_metno::{Dataset, File};

use super::attributes::PreviousRecordings;
use super::bytes::BLOCKS;
use super::file::{cut, own_datasets, refused};
use super::index::{self, Acquisition};
use super::{Ending, Error, attributes, writer_lock};

/// The findings in a file whose writer died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Rows that all datasets of this program have.
    pub rows: u64,
    /// Rows beyond those, in some datasets only. They are cut off.
    pub cut: u64,
    /// True if the file had an ending, so that nothing was changed.
    pub ended: bool,
}

/// The reason that a recovered file gives for its end.
const REASON: &str = "the recording program died";

/// Clears the mark of being written, like h5clear, and changes nothing else.
///
/// Refuses a file with a living writer: the mark does not tell whether the writer is alive.
pub fn clear(path: &Path) -> Result<(), Error> {
    let _alone = writer_lock::take(path)?;
    let file = open_abandoned(path).map_err(refused(path, "opening it to clear its mark"))?;
    file.close().map_err(refused(path, "closing it"))
}

/// Completes a file whose writer died: cuts all datasets to the length of the shortest, clears the mark, and writes an
/// ending with the reason.
///
/// Refuses a file with a living writer. A file with an ending is not changed, nor are datasets that other programs have
/// added. A second call is harmless.
pub fn recover(path: &Path) -> Result<Recovered, Error> {
    let _alone = writer_lock::take(path)?;
    let file = open_abandoned(path).map_err(refused(path, "opening it to recover"))?;
    let sets = own_datasets(&file).map_err(refused(path, "listing its datasets"))?;
    let verdict = attributes::read_text(&file, "verdict");
    let lengths = || sets.iter().map(|set| set.shape().first().copied().unwrap_or(0) as u64);
    let (Some(rows), Some(longest), Some(verdict)) = (lengths().min(), lengths().max(), verdict)
    else {
        return Err(Error::Foreign { path: path.to_owned() });
    };
    let ended = verdict != attributes::RECORDING;
    if !ended {
        for set in &sets {
            cut(set, rows as usize).map_err(refused(path, "cutting a dataset"))?;
        }
        cut_blocks(&file, rows).map_err(refused(path, "cutting what is known of its bytes"))?;
        end(&file, rows, path)?;
    }
    drop(sets);
    file.close().map_err(refused(path, "closing it"))?;
    Ok(Recovered { rows, cut: if ended { 0 } else { longest - rows }, ended })
}

/// Keeps only runs of bytes that begin within the first `rows` bytes, and of which both place and time are known.
fn cut_blocks(file: &File, rows: u64) -> hdf5_metno::Result<()> {
    let Ok(group) = file.group(BLOCKS) else { return Ok(()) };
    let sets: Vec<Dataset> = group.datasets()?;
    let shortest = sets.iter().map(|set| set.size()).min().unwrap_or(0);
    let places = group.dataset("row")?.read_slice_1d::<i64, _>(..shortest)?;
    let kept = places.iter().take_while(|&&row| (row as u64) < rows).count();
    sets.iter().try_for_each(|set| cut(set, kept))
}

fn end(file: &File, rows: u64, path: &Path) -> Result<(), Error> {
    // The attribute from the start holds all known missing samples. Files of older versions count only the samples
    // before this recording.
    let said = |name| attributes::read_number(file, name).unwrap_or(0);
    let missing = u64::max(said("missing"), said("missed"));
    let ending = Ending { missing, ..Ending::given_up(REASON.to_owned()) };
    attributes::end(file, &ending, &PreviousRecordings::default(), rows, path)?;
    match index::known_rows(file) {
        Some(known) if known < rows => {
            let lost = Acquisition::abandoned(file, known, rows - known, REASON);
            index::add(file, &lost).map_err(refused(path, "adding to its index"))
        }
        _ => Ok(()),
    }
}
