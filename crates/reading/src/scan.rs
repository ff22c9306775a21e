//! A scan that is open for reading, and its blocks.

use std::ops::Range;
use std::path::PathBuf;

use fullbore_core::manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::follow::{FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{BlockLocation, Item, Scan, StoredStream};

use crate::error::ReadError;

/// The most blocks in memory while a range is read from one disk: two that are read, two on loan, and one between them.
pub const AHEAD_BLOCKS: usize = 5;

/// A scan that is open for reading: all of it, or the part that was durable when it was opened.
#[derive(Debug)]
pub struct OpenScan {
    roots: Vec<PathBuf>,
    scan: Scan,
    skip_damaged: bool,
}

/// A stream of an open scan.
#[derive(Clone, Copy, Debug)]
pub struct StreamView<'a> {
    open: &'a OpenScan,
    stream: &'a StoredStream,
}

impl OpenScan {
    /// Opens a scan. Waits while it is being sealed.
    pub fn open(
        roots: &[PathBuf],
        name: &ScanName,
        skip_damaged: bool,
    ) -> Result<Self, ReadError> {
        let mut follower = Follower::open(roots, name)?;
        let never = StopHandle::default();
        while follower.status() == FollowState::Sealing && follower.wait(&never) {
            follower.look()?;
        }
        Ok(Self { roots: roots.to_vec(), scan: follower.into_scan(), skip_damaged })
    }

    /// The directories that it was opened from.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The scan.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Result<StreamView<'_>, ReadError> {
        let stream = self.scan.stream(name).ok_or_else(|| {
            let known: Vec<&str> = self.scan.streams.iter().map(|it| it.name.as_str()).collect();
            ReadError::NoStream {
                scan: self.scan.manifest.scan.to_string(),
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
        &self.open.scan
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
        self.open.scan.manifest.streams.iter().find(|it| it.name.as_str() == self.stream.name)
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
        take: &mut dyn FnMut(&BlockLocation, &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let settings = Settings { reads_per_device: 2, ahead_bytes: 0, ..Settings::default() };
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
}
