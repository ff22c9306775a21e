//! The file itself: making it, letting readers in, flushing, and closing it with its ending.

use std::fs::File as Disk;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hdf5_metno::file::LibraryVersion;
use hdf5_metno::plist::{FileAccess, FileAccessBuilder};
use hdf5_metno::{Dataset, File};
use hdrhistogram::Histogram;

use super::direct::Direct;
use super::rows::Rows;
use super::{
    Compression, Error, Existing, Options, attributes, describe, filter, guard, histogram,
    is_there, reserve,
};
use crate::sys::driver::{self, PAGE};
use crate::sys::hdf5::open_abandoned;

/// HDF5 chunks of so many bytes begin on a page, so that the kernel copies whole pages.
const ALIGN_FROM: u64 = 64 * 1024;

/// An open file.
#[derive(Debug)]
pub(super) struct Container {
    pub path: PathBuf,
    file: File,
    /// The same file for the kernel: libhdf5's flush does not reach the disk. It also shows that there is a writer, and
    /// which file it is, whatever becomes of its name.
    disk: Disk,
    /// Room for the ending.
    reserve: Option<Disk>,
    pub flushes: Histogram<u64>,
    failed: bool,
}

/// Whether a file was begun or is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    New,
    Continued,
}

impl Container {
    /// Begins or continues a file; `prepare` makes or finds what is in it, before any reader may come.
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
                // What could not be begun is of use to nobody; the first error says why.
                let _ = std::fs::remove_file(path);
            }
        })?;
        guard::show(&disk);
        let path = path.to_owned();
        let flushes = histogram();
        Ok((Container { path, file, disk, reserve: None, flushes, failed: false }, inside))
    }

    /// The file, to be written past the page cache; nothing where that cannot be. `page` is memory to try it with.
    pub(super) fn direct(&self, page: &[u8]) -> Option<Direct> {
        Direct::open(&self.disk, &self.path, page)
    }

    /// Keeps room on the disk for the ending, and so many bytes for what is written anew when datasets are cut.
    pub(super) fn keep_room(&mut self, to_cut: u64) {
        self.reserve = reserve::take(&self.path, to_cut);
    }

    /// Gives the room for the ending free, for what is written from now on.
    pub(super) fn use_room(&mut self) {
        self.reserve = None;
    }

    /// Refuses once a write has failed; what the caller does after this may fail in turn.
    pub(super) fn guard<T>(
        &mut self,
        work: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.failed {
            return Err(Error::Failed { path: self.path.clone() });
        }
        work(&self.path).inspect_err(|_| self.failed = true)
    }

    /// Makes all rows visible, and notes how long that took.
    pub(super) fn flush(
        &mut self,
        work: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        self.guard(work)?;
        self.flushes.saturating_record(started.elapsed().as_micros() as u64);
        Ok(())
    }

    /// Brings what was flushed to the disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.disk.sync_data().map_err(kernel(&self.path, "syncing it"))
    }

    /// Closes the file to live writing, lets `seal` write what is known at the end, and syncs it.
    ///
    /// By then every row is in the file and flushed, so a death in between costs the ending at most. One of which a
    /// write has failed is for [`Container::abandon`]. Gives how long flushes took, and the length of the file.
    pub(super) fn close(
        self,
        datasets: Vec<Rows>,
        seal: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(Histogram<u64>, u64), Error> {
        let Container { path, file, disk, reserve, flushes, failed } = self;
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

impl Container {
    /// Where the file is now, if somebody has given it another name since it was opened.
    pub(super) fn moved_to(&self) -> Option<PathBuf> {
        let way = way_to(&self.disk, &self.path).ok().filter(|way| *way != self.path)?;
        std::fs::read_link(way).ok()
    }

    /// Closes a file that can take no more: each dataset is cut to the rows that readers have seen, since what came
    /// after the last flush is in some of them only, and `seal` writes what is known at the end.
    pub(super) fn abandon(
        self,
        datasets: Vec<(Rows, u64)>,
        seal: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Container { path, file, disk, reserve, .. } = self;
        let seen: Vec<(String, u64)> =
            datasets.iter().map(|(rows, seen)| (rows.place(), *seen)).collect();
        drop((datasets, reserve));
        // What libhdf5 cannot write any more is of rows that are cut off next.
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

/// By what name the file is opened once more that is open here: its own, or, where that one is another's by now, the
/// kernel's name for what is open. What has no name any more is gone when it is closed.
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

/// Opens a file to write it, without libhdf5's lock, which readers forbid: ours is taken by then.
fn open_unlocked(path: &Path) -> hdf5_metno::Result<File> {
    driver::open_rw(path, &access(&mut FileAccess::build()).file_locking(false).finish()?)
}

/// The datasets of a root that are written here: columns, frames, bytes, times. Others are somebody else's.
pub(super) fn own_datasets(file: &File) -> hdf5_metno::Result<Vec<Dataset>> {
    let own = |set: &Dataset| {
        let name = set.name();
        let is_column =
            || set.attr_names().is_ok_and(|names| names.iter().any(|it| it == "capture"));
        ["/frames", "/time", "/data"].contains(&name.as_str()) || is_column()
    };
    Ok(file.datasets()?.into_iter().filter(own).collect())
}

/// Makes a dataset as long as so many rows.
pub(super) fn cut(set: &Dataset, rows: usize) -> hdf5_metno::Result<()> {
    match set.shape().as_slice() {
        [length] if *length == rows => Ok(()),
        [length, _] if *length == rows => Ok(()),
        [_] => set.resize(rows),
        [_, width] => set.resize((rows, *width)),
        _ => Err("a dataset of a kind that is not written here".into()),
    }
}

/// Looks whether a file could be continued, as far as that is seen before anything is known of what will come: it can be
/// opened, nobody writes it, and its last recording was ended.
///
/// `asked` is the compression that was asked for, if one was: it must be the file's.
pub fn check_continuable(path: &Path, asked: Option<Compression>) -> Result<(), Error> {
    let _ours = guard::take_beside_readers(path)?;
    check_unmarked(path, asked)
}

fn check_unmarked(path: &Path, asked: Option<Compression>) -> Result<(), Error> {
    let opened = File::with_options().with_fapl(|list| access(list).file_locking(false)).open(path);
    let file = match opened {
        Err(error) if MARKED.iter().any(|word| describe(&error).contains(word)) => {
            return Err(Error::Unended { path: path.to_owned() });
        }
        opened => opened.map_err(refused(path, "opening it to continue"))?,
    };
    check_ended(&file, path)?;
    asked.map_or(Ok(()), |asked| check_compressed(&file, asked, path))
}

/// Refuses a file whose datasets are made smaller in another way: their filters stay what they are.
fn check_compressed(file: &File, asked: Compression, path: &Path) -> Result<(), Error> {
    let sets = own_datasets(file).map_err(refused(path, "listing its datasets"))?;
    match sets.iter().filter_map(filter::of).find(|has| *has != asked) {
        Some(has) => Err(Error::Compressed { path: path.to_owned(), has, asked }),
        None => Ok(()),
    }
}

/// What libhdf5 says of a file that bears the mark of being written.
pub(super) const MARKED: &[&str] = &["already open for write", "consistency flags"];

/// Refuses a file whose last recording was not ended.
pub(super) fn check_ended(file: &File, path: &Path) -> Result<(), Error> {
    match attributes::read_text(file, "verdict").as_deref() {
        Some(attributes::RECORDING) => Err(Error::Unended { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// The file, for libhdf5 and for the kernel; by then others are shown that it has a writer.
fn open(path: &Path, options: &Options) -> Result<(File, Disk, Begun), Error> {
    if is_there(path) {
        match options.existing {
            Existing::Refuse => return Err(Error::Exists { path: path.to_owned() }),
            // Those who read the old file keep it.
            Existing::Overwrite => guard::remove_old(path)?,
            Existing::Append => {
                let ours = guard::take_beside_readers(path)?;
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
    guard::show(&disk);
    Ok((file, disk, Begun::New))
}

/// Files that every libhdf5 since 1.10 reads, with chunks on pages.
fn access(list: &mut FileAccessBuilder) -> &mut FileAccessBuilder {
    list.libver_bounds(LibraryVersion::V110, LibraryVersion::V110)
        .alignment(ALIGN_FROM, PAGE)
        .meta_block_size(ALIGN_FROM)
}

pub(super) fn refused(path: &Path, doing: &'static str) -> impl FnOnce(hdf5_metno::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Open { path, doing, source }
}

pub(super) fn kernel(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { path, doing, source }
}
