//! Files whose writer died.

use std::path::Path;

use hdf5_metno::{Dataset, File};

use super::attributes::Earlier;
use super::bytes::BLOCKS;
use super::container::{cut, own_datasets, refused};
use super::index::{self, Acquisition};
use super::{Ending, Error, attributes, guard};
use crate::sys::hdf5::open_abandoned;

/// What was found in a file whose writer died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Rows that all of our datasets have.
    pub rows: u64,
    /// Rows beyond those, which only some datasets had; they are cut off.
    pub cut: u64,
    /// Whether the file had been ended properly, so that nothing was changed.
    pub ended: bool,
}

/// The reason that a recovered file gives for its end.
const REASON: &str = "the recording program died";

/// Takes off the mark of being written, as h5clear does, and changes nothing else.
///
/// A file that somebody writes is refused: a writer's mark looks the same whether it lives or not.
pub fn clear(path: &Path) -> Result<(), Error> {
    let _alone = guard::take(path)?;
    let file = open_abandoned(path).map_err(refused(path, "opening it to clear its mark"))?;
    file.close().map_err(refused(path, "closing it"))
}

/// Makes a file whose writer died an ordinary one: all that it wrote as long as the shortest of it, the mark gone, and
/// the ending says what happened.
///
/// A file that somebody writes is refused. Of one that was ended nothing is changed, nor are datasets that others have
/// put beside ours. Doing it twice is harmless.
pub fn recover(path: &Path) -> Result<Recovered, Error> {
    let _alone = guard::take(path)?;
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

/// Of runs of bytes only those are kept that begin within so many bytes, and of which both the place and the time are
/// known.
fn cut_blocks(file: &File, rows: u64) -> hdf5_metno::Result<()> {
    let Ok(group) = file.group(BLOCKS) else { return Ok(()) };
    let sets: Vec<Dataset> = group.datasets()?;
    let shortest = sets.iter().map(|set| set.size()).min().unwrap_or(0);
    let places = group.dataset("row")?.read_slice_1d::<i64, _>(..shortest)?;
    let kept = places.iter().take_while(|&&row| (row as u64) < rows).count();
    sets.iter().try_for_each(|set| cut(set, kept))
}

fn end(file: &File, rows: u64, path: &Path) -> Result<(), Error> {
    // What is said at the beginning: all that is known of what never came, though files of earlier times say it only of
    // what went before.
    let said = |name| attributes::read_number(file, name).unwrap_or(0);
    let missing = u64::max(said("missing"), said("missed"));
    let ending = Ending { missing, ..Ending::given_up(REASON.to_owned()) };
    attributes::end(file, &ending, &Earlier::default(), rows, path)?;
    match index::known_rows(file) {
        Some(known) if known < rows => {
            let lost = Acquisition::abandoned(file, known, rows - known, REASON);
            index::add(file, &lost).map_err(refused(path, "adding to its index"))
        }
        _ => Ok(()),
    }
}
