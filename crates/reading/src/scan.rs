//! A scan that is open for reading, and its blocks.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::follow::{FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{BlockLocation, Item, Scan, StoredStream};
use fullbore_transfer::objects::copy::RemoteScan;
use fullbore_transfer::objects::{Address, Bucket};

use crate::error::ReadError;

/// Time during which a request to an object store that failed is repeated.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a range is read: two blocks of each device at a time, and no more ahead.
pub(crate) fn settings() -> Settings {
    Settings { reads_per_device: 2, ahead_bytes: 0, ..Settings::default() }
}

/// Takes a block.
pub(crate) type Take<'a> = dyn FnMut(&BlockLocation, &[u8]) -> Result<(), ReadError> + 'a;

/// A scan that is open for reading: all of it, or the part that was durable when it was opened.
#[derive(Debug)]
pub struct OpenScan {
    origin: Origin,
    skip_damaged: bool,
}

/// Where a scan is.
#[derive(Debug)]
enum Origin {
    /// In a store with these directories.
    Store(Vec<PathBuf>, Box<Scan>),
    /// In an object store.
    Copy(Box<RemoteScan<'static>>),
}

/// A stream of an open scan.
#[derive(Clone, Copy, Debug)]
pub struct StreamView<'a> {
    open: &'a OpenScan,
    stream: &'a StoredStream,
}

impl OpenScan {
    /// Opens a scan. Waits while it is being sealed.
    pub fn open(roots: &[PathBuf], name: &ScanName, skip_damaged: bool) -> Result<Self, ReadError> {
        let opened = Self::open_while(roots, name, skip_damaged, &|| true)?;
        Ok(opened.expect("it is wanted all the time"))
    }

    /// Opens a scan. While it is being sealed, asks ten times a second whether it is still wanted; `None` if it is not.
    pub fn open_while(
        roots: &[PathBuf],
        name: &ScanName,
        skip_damaged: bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, ReadError> {
        let mut follower = Follower::open(roots, name)?;
        let never = StopHandle::default();
        while follower.status() == FollowState::Sealing && follower.wait(&never) {
            if !is_wanted() {
                return Ok(None);
            }
            follower.look()?;
        }
        let origin = Origin::Store(roots.to_vec(), Box::new(follower.into_scan()));
        Ok(Some(Self { origin, skip_damaged }))
    }

    /// Opens a copy in an object store, or at a station, by its address: its index is fetched, and blocks are read by
    /// ranges. `token` is that of the station; without it, that of the environment.
    pub fn open_copy(
        address: &str,
        token: Option<&str>,
        skip_damaged: bool,
    ) -> Result<Self, ReadError> {
        let address = address.parse::<Address>()?.with_token(token);
        let (place, scan) = address.split_scan()?;
        let bucket = Bucket::open(place, PATIENCE)?;
        let origin = Origin::Copy(Box::new(RemoteScan::open_own(bucket, &scan)?));
        Ok(Self { origin, skip_damaged })
    }

    /// The directories that it was opened from; none for a copy in an object store.
    pub fn roots(&self) -> &[PathBuf] {
        match &self.origin {
            Origin::Store(roots, _) => roots,
            Origin::Copy(_) => &[],
        }
    }

    /// The scan.
    pub fn scan(&self) -> &Scan {
        match &self.origin {
            Origin::Store(_, scan) => scan,
            Origin::Copy(remote) => remote.scan(),
        }
    }

    /// True if what cannot be read is skipped.
    pub fn skips_damaged(&self) -> bool {
        self.skip_damaged
    }

    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Result<StreamView<'_>, ReadError> {
        let scan = self.scan();
        let stream = scan.stream(name).ok_or_else(|| {
            let known: Vec<&str> = scan.streams.iter().map(|it| it.name.as_str()).collect();
            ReadError::NoStream {
                scan: scan.manifest.scan.to_string(),
                stream: name.chars().take(80).collect(),
                known: known.join(", "),
            }
        })?;
        Ok(StreamView { open: self, stream })
    }
}

impl<'a> StreamView<'a> {
    /// The scan.
    pub fn scan(self) -> &'a Scan {
        self.open.scan()
    }

    /// The stream.
    pub fn stream(self) -> &'a StoredStream {
        self.stream
    }

    /// Its name.
    pub(crate) fn name(self) -> String {
        self.stream.name.clone()
    }

    /// What the manifest says of it.
    pub fn described(self) -> Option<&'a manifest::Stream> {
        self.scan().manifest.streams.iter().find(|it| it.name.as_str() == self.stream.name)
    }

    /// The positions of the blocks that hold frames of a range of indices.
    pub(crate) fn positions(self, wanted: &Range<i64>) -> Range<usize> {
        if wanted.is_empty() {
            return 0..0;
        }
        let first = self.stream.position_of(wanted.start);
        let last = self.stream.position_of(wanted.end - 1);
        match (first, last) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        }
    }

    /// Reads blocks in order. A block that cannot be read, or whose checksum is wrong, is an error if it holds a wanted
    /// frame, unless such blocks are skipped.
    pub(crate) fn read_blocks(
        self,
        positions: Range<usize>,
        wanted: &Range<i64>,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        if let Origin::Copy(remote) = &self.open.origin {
            return self.read_copy(remote, positions, take);
        }
        let settings = settings();
        let start = |source| ReadError::Start { stream: self.name(), source };
        for item in self.stream.read(positions, settings).map_err(start)? {
            match item {
                Item::Block(block) => take(&block.location, block.bytes())?,
                Item::Lost(finding) => {
                    let elsewhere = finding
                        .frames
                        .as_ref()
                        .is_some_and(|it| it.end <= wanted.start || it.first >= wanted.end);
                    if !elsewhere && !self.open.skip_damaged {
                        return Err(ReadError::Damaged { what: finding.to_string() });
                    }
                }
            }
        }
        Ok(())
    }

    fn read_copy(
        self,
        remote: &RemoteScan<'_>,
        positions: Range<usize>,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        let mut failed = None;
        remote.read(vec![(self.stream.number, positions)], &|_| true, &mut |read| {
            let taken = match read.wrong {
                None => take(read.location, read.data),
                Some(_) if self.open.skip_damaged => Ok(()),
                Some(wrong) => Err(ReadError::Damaged { what: wrong.to_string() }),
            };
            failed = taken.err();
            Ok(failed.is_none())
        })?;
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fullbore_core::manifest::State;
    use fullbore_store::lock::ScanLock;
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    #[test]
    fn the_wait_for_a_scan_that_is_being_sealed_ends_when_it_is_not_wanted() {
        let store = Store::in_memory(2);
        let laid = store.lay_down("s_one", &[StreamPlan::vdif("a").frames(200)]);
        // One member has the manifest of the sealed scan already, the other one not yet, and the recorder lives.
        let mut older = laid.manifest.clone();
        older.state = State::Recording;
        std::fs::write(laid.manifest_path(0, 1), older.to_json()).unwrap();
        let lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        let asked = Cell::new(0);
        let is_wanted = || asked.replace(asked.get() + 1) < 1;
        let opened = OpenScan::open_while(&store.roots(), &laid.name, false, &is_wanted).unwrap();
        assert!(opened.is_none() && asked.get() == 2);
        drop(lock);
        let opened = OpenScan::open_while(&store.roots(), &laid.name, false, &|| false).unwrap();
        assert!(opened.is_some());
    }
}
