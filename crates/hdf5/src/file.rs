//! The HDF5 file: creation, reader access (SWMR), flushes, and its closing attributes.

use std::fs::File as Disk;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_linux::sys::driver::{self, PAGE};
use fullbore_linux::sys::hdf5::open_abandoned;
use hdf5_metno::file::LibraryVersion;
use hdf5_metno::plist::{FileAccess, FileAccessBuilder};
use hdf5_metno::{Dataset, File};
use hdrhistogram::Histogram;

use super::dataset::RowDataset;
use super::direct::Direct;
use super::{
    Compression, Error, Existing, Options, attributes, describe, filter, histogram, is_there,
    reserve, writer_lock,
};

/// HDF5 chunks of at least this many bytes begin on a page, so that the kernel copies whole pages.
const ALIGN_FROM: u64 = 64 * 1024;

/// An open file.
#[derive(Debug)]
pub(super) struct Hdf5File {
    pub path: PathBuf,
    file: File,
    /// The same file as the kernel sees it, since libhdf5's flush does not reach the disk. It also holds the writer
    /// lock, and identifies the file after a rename.
    disk: Disk,
    /// Reserved disk space for the ending.
    reserve: Option<Disk>,
    pub flushes: Histogram<u64>,
    failed: bool,
}

/// Start of a recording in a file: created or continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    New,
    Continued,
}

impl Hdf5File {
    /// Creates or continues a file. `prepare` creates or finds its contents before readers have access.
    pub(super) fn create<T>(
        path: &Path,
        options: &Options,
        prepare: impl FnOnce(&File, Begun) -> Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        reserve::check_room(path)?;
        let (file, disk, begun) = open(path, options)?;
        let prepared = prepare(&file, begun).and_then(|inside| {
            if options.live {
                file.start_swmr().map_err(refused(path, "letting readers in"))?;
            }
            Ok(inside)
        });
        let inside = prepared.inspect_err(|_| {
            if begun == Begun::New {
                // A file that could not be started has no use. The first error tells the reason.
                let _ = std::fs::remove_file(path);
            }
        })?;
        writer_lock::show(&disk);
        let path = path.to_owned();
        let flushes = histogram();
        Ok((Hdf5File { path, file, disk, reserve: None, flushes, failed: false }, inside))
    }

    /// Opens the file for writes past the page cache; `None` if that is impossible. `page` is memory for a trial write.
    pub(super) fn direct(&self, page: &[u8]) -> Option<Direct> {
        Direct::open(&self.disk, &self.path, page)
    }

    /// Reserves disk space for the ending, and `to_cut` bytes for chunks that are written anew when datasets are cut.
    pub(super) fn keep_room(&mut self, to_cut: u64) {
        self.reserve = reserve::take(&self.path, to_cut);
    }

    /// Releases the space reserved for the ending, for the writes from now on.
    pub(super) fn use_room(&mut self) {
        self.reserve = None;
    }

    /// Refuses after a failed write. A later step of the caller may fail in turn.
    pub(super) fn guard<T>(
        &mut self,
        work: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.failed {
            return Err(Error::Failed { path: self.path.clone() });
        }
        work(&self.path).inspect_err(|_| self.failed = true)
    }

    /// Makes all rows visible, and records the duration.
    pub(super) fn flush(
        &mut self,
        work: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        self.guard(work)?;
        self.flushes.saturating_record(started.elapsed().as_micros() as u64);
        Ok(())
    }

    /// Syncs flushed data to the disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.disk.sync_data().map_err(kernel(&self.path, "syncing it"))
    }

    /// Ends live writing, calls `seal` to write the ending, and syncs the file.
    ///
    /// All rows are in the file and flushed before, so a crash here costs the ending at most. A file with a failed
    /// write needs [`Hdf5File::abandon`] instead. Returns the durations of the flushes and the length of the file.
    pub(super) fn close(
        self,
        datasets: Vec<RowDataset>,
        seal: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(Histogram<u64>, u64), Error> {
        let Hdf5File { path, file, disk, reserve, flushes, failed } = self;
        drop((datasets, reserve));
        let closed = file.close().map_err(refused(&path, "closing it"));
        if failed {
            return Err(Error::Failed { path });
        }
        closed?;
        let way = way_to(&disk, &path)?;
        let file = open_unlocked(&way).map_err(refused(&path, "opening it for the ending"))?;
        seal(&file)?;
        file.close().map_err(refused(&path, "closing it"))?;
        disk.sync_all().map_err(kernel(&path, "syncing it"))?;
        Ok((flushes, disk.metadata().map_or(0, |file| file.len())))
    }
}

impl Hdf5File {
    /// Returns the file's current path, if it was renamed while it was open. Refuses a file without a name.
    pub(super) fn moved_to(&self) -> Result<Option<PathBuf>, Error> {
        let way = Some(way_to(&self.disk, &self.path)?).filter(|way| *way != self.path);
        Ok(way.and_then(|way| std::fs::read_link(way).ok()))
    }

    /// Closes a file that accepts no more writes. Cuts each dataset to the rows that readers have seen, because later
    /// rows are in some datasets only, and calls `seal` to write the ending.
    pub(super) fn abandon(
        self,
        datasets: Vec<(RowDataset, u64)>,
        seal: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Hdf5File { path, file, disk, reserve, .. } = self;
        let seen: Vec<(String, u64)> =
            datasets.iter().map(|(rows, seen)| (rows.place(), *seen)).collect();
        drop((datasets, reserve));
        // The rows that libhdf5 cannot write are cut off next.
        let _ = file.close();
        let way = way_to(&disk, &path)?;
        let file = open_abandoned(&way).map_err(refused(&path, "opening it for the ending"))?;
        for (place, rows) in seen {
            let cut = file.dataset(&place).and_then(|set| cut(&set, rows as usize));
            cut.map_err(refused(&path, "cutting a dataset"))?;
        }
        seal(&file)?;
        file.close().map_err(refused(&path, "closing it"))?;
        disk.sync_all().map_err(kernel(&path, "syncing it"))
    }
}

/// Returns the path for opening the open file again: its own path, or, if another file has that path now, the kernel's
/// name for the open file. A file without a name is gone when it is closed.
fn way_to(disk: &Disk, path: &Path) -> Result<PathBuf, Error> {
    let ours = disk.metadata().map_err(kernel(path, "looking which file it is"))?;
    if ours.nlink() == 0 {
        return Err(Error::Removed { path: path.to_owned() });
    }
    let is_ours = |there: std::fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
    Ok(match path.metadata().is_ok_and(is_ours) {
        true => path.to_owned(),
        false => PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd())),
    })
}

/// Opens a file for writing without libhdf5's lock, which readers prevent. The writer lock is held by then.
fn open_unlocked(path: &Path) -> hdf5_metno::Result<File> {
    driver::open_rw(path, &access(&mut FileAccess::build()).file_locking(false).finish()?)
}

/// The datasets of a root that this program writes: columns, frames, bytes, times. Other programs may have added
/// others.
pub(super) fn own_datasets(file: &File) -> hdf5_metno::Result<Vec<Dataset>> {
    let own = |set: &Dataset| {
        let name = set.name();
        let is_column =
            || set.attr_names().is_ok_and(|names| names.iter().any(|it| it == "capture"));
        ["/frames", "/time", "/data"].contains(&name.as_str()) || is_column()
    };
    Ok(file.datasets()?.into_iter().filter(own).collect())
}

/// Cuts a dataset to this number of rows.
pub(super) fn cut(set: &Dataset, rows: usize) -> hdf5_metno::Result<()> {
    match set.shape().as_slice() {
        [length] if *length == rows => Ok(()),
        [length, _] if *length == rows => Ok(()),
        [_] => set.resize(rows),
        [_, width] => set.resize((rows, *width)),
        _ => Err("a dataset of a kind that is not written here".into()),
    }
}

/// Checks that a file can be continued, as far as possible before the format of the new data is known: it can be
/// opened, has no writer, and its last recording was ended.
///
/// `requested` is the requested compression, if any: it must be that of the file.
pub fn check_continuable(path: &Path, requested: Option<Compression>) -> Result<(), Error> {
    let _ours = writer_lock::take_beside_readers(path)?;
    check_unmarked(path, requested)
}

fn check_unmarked(path: &Path, requested: Option<Compression>) -> Result<(), Error> {
    let opened = File::with_options().with_fapl(|list| access(list).file_locking(false)).open(path);
    let file = match opened {
        Err(error) if MARKED.iter().any(|word| describe(&error).contains(word)) => {
            return Err(Error::Unended { path: path.to_owned() });
        }
        opened => opened.map_err(refused(path, "opening it to continue"))?,
    };
    check_ended(&file, path)?;
    requested.map_or(Ok(()), |requested| check_compressed(&file, requested, path))
}

/// Refuses a file whose datasets have another compression: their filters cannot change.
fn check_compressed(file: &File, requested: Compression, path: &Path) -> Result<(), Error> {
    let sets = own_datasets(file).map_err(refused(path, "listing its datasets"))?;
    match sets.iter().filter_map(filter::of).find(|has| *has != requested) {
        Some(has) => Err(Error::Compressed { path: path.to_owned(), has, requested }),
        None => Ok(()),
    }
}

/// libhdf5's error texts for a file that is marked as being written.
pub(super) const MARKED: &[&str] = &["already open for write", "consistency flags"];

/// Refuses a file whose last recording was not ended.
pub(super) fn check_ended(file: &File, path: &Path) -> Result<(), Error> {
    match attributes::read_text(file, "verdict").as_deref() {
        Some(attributes::RECORDING) => Err(Error::Unended { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Opens the file for libhdf5 and for the kernel, and takes the writer lock.
fn open(path: &Path, options: &Options) -> Result<(File, Disk, Begun), Error> {
    if is_there(path) {
        match options.existing {
            Existing::Refuse => return Err(Error::Exists { path: path.to_owned() }),
            // Readers of the old file keep it.
            Existing::Overwrite => writer_lock::remove_old(path)?,
            Existing::Append => {
                let ours = writer_lock::take_beside_readers(path)?;
                check_unmarked(path, options.compression)?;
                let file = open_unlocked(path).map_err(refused(path, "opening it to continue"))?;
                return Ok((file, ours, Begun::Continued));
            }
        }
    }
    let made = access(&mut FileAccess::build()).finish();
    let made = made.and_then(|access| driver::create_excl(path, &access));
    let file = made.map_err(refused(path, "making it"))?;
    let disk = Disk::open(path).map_err(kernel(path, "opening it to sync"))?;
    writer_lock::show(&disk);
    Ok((file, disk, Begun::New))
}

/// File access properties: readable by every libhdf5 since 1.10, with page-aligned chunks.
fn access(list: &mut FileAccessBuilder) -> &mut FileAccessBuilder {
    list.libver_bounds(LibraryVersion::V110, LibraryVersion::V110)
        .alignment(ALIGN_FROM, PAGE)
        .meta_block_size(ALIGN_FROM)
}

pub(super) fn refused(path: &Path, doing: &'static str) -> impl FnOnce(hdf5_metno::Error) -> Error {
    let path = path.to_owned();
    move |source| match describe(&source).contains("file signature not found") {
        true => Error::NotHdf5 { path },
        false => Error::Open { path, doing, source },
    }
}

pub(super) fn kernel(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { path, doing, source }
}
