//! Builds stripes of the chunks of a scan: during the recording as chunks complete, and at its end of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::chunk_map::Renumbering;
use fullbore_core::index::{self, Codec};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use fullbore_core::redundancy::{Followed, Scheme};
use uuid::Uuid;

use super::index_tail::{IndexTail, IndexedChunk};
use super::stripe::{DataChunk, Rows, Stripe};
use super::stripe_metadata::metadata;
use super::stripe_writer::{ChunkOutput, OutputFile, StripeWriteError, finish, pour};
use super::{parity_file, placement, records_file};
use crate::inventory::side_file;
use crate::lock::put_file;
use crate::read::Fault;

/// The number of problems that are reported one by one.
const MOST_TOLD: usize = 8;

/// Builds the stripes of a scan.
#[derive(Debug)]
pub struct StripeBuilder {
    scheme: Scheme,
    scan: Uuid,
    roots: Vec<PathBuf>,
    /// Bytes of parity on each root.
    taken: Vec<u64>,
    /// Roots that have refused a parity chunk.
    refusing: BTreeSet<usize>,
    streams: BTreeMap<u16, Series>,
    rows: Option<Rows>,
    followed: Followed,
    told: Vec<String>,
}

/// The chunks of one stream.
#[derive(Debug)]
struct Series {
    directory: String,
    tails: Vec<IndexTail>,
    waiting: Vec<Waiting>,
    /// Complete chunks whose files do not have their final names yet.
    unnamed: Vec<Waiting>,
    /// Chunks that are in a stripe already.
    done: BTreeSet<u32>,
    renamed: Option<Renumbering>,
    next: u32,
}

/// A chunk without parity.
#[derive(Debug)]
struct Waiting {
    root: usize,
    recorded: IndexedChunk,
}

/// Called before each row, with the bytes of the last row: a caller may pause here to limit the rate. Returning false
/// stops the work.
pub type GoOn<'a> = &'a mut dyn FnMut(u64) -> bool;

impl StripeBuilder {
    /// Makes a builder for a scan on these roots.
    pub fn new(scan: Uuid, scheme: Scheme, roots: Vec<PathBuf>) -> Self {
        Self {
            scheme,
            scan,
            taken: vec![0; roots.len()],
            roots,
            refusing: BTreeSet::new(),
            streams: BTreeMap::new(),
            rows: None,
            followed: Followed::default(),
            told: Vec::new(),
        }
    }

    /// Adds a stream, with the chunks that are in stripes already, and the number of the next stripe.
    pub fn add(
        &mut self,
        number: u16,
        directory: &str,
        done: BTreeSet<u32>,
        next: u32,
        renamed: Option<Renumbering>,
    ) {
        if self.streams.contains_key(&number) {
            return;
        }
        let tail = |root: &PathBuf| {
            IndexTail::new(side_file(&root.join(directory), INDEX_FILE), self.scan, number)
        };
        let tails = self.roots.iter().map(tail).collect();
        let directory = directory.to_owned();
        let (waiting, unnamed) = (Vec::new(), Vec::new());
        let series = Series { directory, tails, waiting, unnamed, done, renamed, next };
        self.streams.insert(number, series);
    }

    /// Takes the current numbers of a stream's files, if they differ from those in the index.
    pub fn rename(&mut self, number: u16, renamed: Option<&Renumbering>) {
        if let Some(series) = self.streams.get_mut(&number)
            && series.renamed.as_ref() != renamed
        {
            series.renamed = renamed.cloned();
        }
    }

    /// Finds the chunks that are complete now; with `all`, the recording is over, and all are.
    pub fn look(&mut self, all: bool) {
        for series in self.streams.values_mut() {
            for (root, tail) in series.tails.iter_mut().enumerate() {
                // An unreadable index yields nothing: its chunks get no parity.
                let _ = tail.look();
                for recorded in tail.closed(all) {
                    if series.done.insert(recorded.chunk) {
                        series.unnamed.push(Waiting { root, recorded });
                    }
                }
            }
            for waiting in std::mem::take(&mut series.unnamed) {
                match all || series.path_of(&self.roots, &waiting).is_file() {
                    true => series.waiting.push(waiting),
                    false => series.unnamed.push(waiting),
                }
            }
            series.waiting.sort_by_key(|it| it.recorded.chunk);
        }
        if !all {
            let waiting = self.streams.values().map(|it| it.waiting.len() as u64).sum();
            self.followed.most_behind = self.followed.most_behind.max(waiting);
        }
    }

    /// Makes the stripes that are due. Returns false if it was stopped.
    pub fn compose(&mut self, all: bool, go_on: GoOn<'_>) -> bool {
        let numbers: Vec<u16> = self.streams.keys().copied().collect();
        let mut more = true;
        while more {
            more = false;
            // The streams take turns, so that none falls behind the others.
            for number in &numbers {
                match self.next_of(*number, all, go_on) {
                    Some(true) => more = true,
                    Some(false) => {}
                    None => return false,
                }
            }
        }
        true
    }

    /// Returns the result, and warnings for the user.
    pub fn end(mut self) -> (Followed, Vec<String>) {
        let left: u64 = self.streams.values().map(|it| it.waiting.len() as u64).sum();
        self.followed.unprotected += left;
        if self.told.len() > MOST_TOLD {
            let more = self.told.len() - MOST_TOLD;
            self.told.truncate(MOST_TOLD);
            self.told.push(format!("{more} more of the kind"));
        }
        (self.followed, self.told)
    }

    /// Makes the next stripe of a stream, if one is due. `None` if it was stopped.
    fn next_of(&mut self, number: u16, all: bool, go_on: GoOn<'_>) -> Option<bool> {
        let taking: Vec<(usize, u64)> = (0..self.roots.len())
            .filter(|root| !self.refusing.contains(root))
            .map(|root| (root, self.taken[root]))
            .collect();
        let series = self.streams.get(&number)?;
        let waiting: Vec<usize> = series.waiting.iter().map(|it| it.root).collect();
        let Some(mut places) = placement::stripe(&waiting, self.scheme, self.roots.len(), all)
        else {
            return Some(false);
        };
        let parity = usize::from(self.scheme.parity);
        let targets = loop {
            let holding: Vec<usize> = places.iter().map(|place| waiting[*place]).collect();
            let targets = placement::targets(&holding, &taking, parity);
            // If members refuse, a stripe gets fewer chunks rather than less parity.
            if targets.len() == parity || places.len() == 1 {
                break targets;
            }
            places.pop();
        };
        if targets.is_empty() {
            // No member can take the parity: these chunks stay without.
            let dropped = self.drop_waiting(number, &places);
            self.tell(format!(
                "{dropped} chunks of {} have no parity: no member can take it",
                self.directory(number)
            ));
            return Some(true);
        }
        match self.make(number, &places, &targets, go_on) {
            Ok(bytes) => {
                self.followed.stripes += 1;
                self.followed.chunks += places.len() as u64;
                self.followed.narrow += u64::from(targets.len() < parity);
                self.followed.bytes += bytes * targets.len() as u64;
                targets.iter().for_each(|target| self.taken[*target] += bytes);
                let series = self.streams.get_mut(&number)?;
                series.next += 1;
                places.iter().rev().for_each(|place| drop(series.waiting.remove(*place)));
                if targets.len() < parity {
                    self.tell(format!(
                        "a stripe of {} has {} parity chunks of {parity}: no other member can take one",
                        self.directory(number),
                        targets.len()
                    ));
                }
                Some(true)
            }
            Err(StripeWriteError::Stopped) => None,
            Err(trouble) => {
                self.in_trouble(number, &places, &targets, &trouble);
                Some(true)
            }
        }
    }

    /// Removes the cause of a failed stripe, so that the next attempt differs.
    fn in_trouble(
        &mut self,
        number: u16,
        places: &[usize],
        targets: &[usize],
        trouble: &StripeWriteError,
    ) {
        self.tell(format!("parity of {}: {trouble}", self.directory(number)));
        self.forget_stripe(number);
        match trouble {
            StripeWriteError::Write { at, .. } if *at < targets.len() => {
                self.refusing.insert(targets[*at]);
            }
            StripeWriteError::Beyond { faults, .. } if !faults.is_empty() => {
                // Parity chunks follow the data chunks; none exist yet.
                let bad = faults.iter().filter_map(|(shard, _)| places.get(*shard).copied());
                let bad: Vec<usize> = bad.collect();
                self.drop_waiting(number, &bad);
            }
            _ => {
                self.drop_waiting(number, places);
            }
        }
    }

    /// Removes the files of an incomplete stripe, and does not use its number again.
    fn forget_stripe(&mut self, number: u16) {
        let Some(series) = self.streams.get_mut(&number) else { return };
        for (root, shard) in self
            .roots
            .iter()
            .flat_map(|it| (0..usize::from(self.scheme.parity)).map(move |n| (it, n)))
        {
            let directory = root.join(&series.directory);
            for file in [records_file, parity_file] {
                let path = side_file(&directory, &file(&series.directory, series.next, shard));
                // A file that remains does no harm.
                let _ = std::fs::remove_file(path);
            }
        }
        series.next += 1;
    }

    fn drop_waiting(&mut self, number: u16, places: &[usize]) -> usize {
        let Some(series) = self.streams.get_mut(&number) else { return 0 };
        let mut places = places.to_vec();
        places.sort_unstable();
        places.iter().rev().for_each(|place| drop(series.waiting.remove(*place)));
        self.followed.unprotected += places.len() as u64;
        places.len()
    }

    fn tell(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.told.push(text);
        }
    }

    fn directory(&self, number: u16) -> &str {
        self.streams.get(&number).map_or("", |it| it.directory.as_str())
    }

    /// Writes the parity of these chunks to these roots, and returns the number of bytes on each.
    fn make(
        &mut self,
        number: u16,
        places: &[usize],
        targets: &[usize],
        go_on: GoOn<'_>,
    ) -> Result<u64, StripeWriteError> {
        let series = &self.streams[&number];
        let chunks: Vec<&Waiting> = places.iter().map(|place| &series.waiting[*place]).collect();
        let geometry = series.tails.iter().find_map(IndexTail::geometry);
        let Some(row_bytes) = geometry.map(|it| it.block_bytes) else {
            return Err(StripeWriteError::Beyond { row: 0, faults: Vec::new() });
        };
        let stripe = Stripe {
            number: series.next,
            row_bytes: row_bytes as usize,
            data: chunks.iter().map(|it| series.data_chunk(&self.roots, it)).collect(),
            parity: vec![None; targets.len()],
        };
        if let Some(place) = stripe.data.iter().position(|it| it.root.is_none()) {
            let fault = Fault::System(format!("{} is missing", stripe.data[place].path.display()));
            return Err(StripeWriteError::Beyond { row: 0, faults: vec![(place, fault)] });
        }
        if self.rows.as_ref().is_none_or(|rows| !rows.fits(&stripe)) {
            self.rows = Some(Rows::of(&stripe)?);
        }
        let rows = self.rows.as_mut().expect("made above");
        let raw: Vec<&[u8]> = chunks.iter().map(|it| it.recorded.raw.as_slice()).collect();
        let directories: Vec<PathBuf> =
            targets.iter().map(|root| self.roots[*root].join(&series.directory)).collect();
        let place =
            Place { codec: Codec::of_scan(self.scan), stream: number, name: &series.directory };
        place.write(&stripe, rows, &directories, &raw, go_on)?;
        Ok(stripe.bytes_of(stripe.data.len()))
    }
}

impl Series {
    /// The current or future path of a chunk's file.
    fn path_of(&self, roots: &[PathBuf], waiting: &Waiting) -> PathBuf {
        let chunk = waiting.recorded.chunk;
        let file = self.renamed.as_ref().map_or(chunk, |it| it.in_sight().file_of(chunk));
        roots[waiting.root].join(&self.directory).join(chunk_file(&self.directory, file))
    }

    fn data_chunk(&self, roots: &[PathBuf], waiting: &Waiting) -> DataChunk {
        let (chunk, path) = (waiting.recorded.chunk, self.path_of(roots, waiting));
        let blocks = waiting.recorded.blocks.clone();
        DataChunk {
            chunk,
            root: path.is_file().then_some(waiting.root),
            path: Arc::new(path),
            device: 0,
            bytes: blocks.iter().map(|it| it.offset + u64::from(it.bytes)).max().unwrap_or(0),
            blocks,
        }
    }
}

/// The stream that stripes are written for.
pub struct Place<'a> {
    /// The codec of the scan.
    pub codec: Codec,
    /// The number of the stream.
    pub stream: u16,
    /// The name of its directories.
    pub name: &'a str,
}

impl Place<'_> {
    /// Writes all parity chunks of a stripe, each with its records, into these directories.
    fn write(
        &self,
        stripe: &Stripe,
        rows: &mut Rows,
        directories: &[PathBuf],
        raw: &[&[u8]],
        go_on: GoOn<'_>,
    ) -> Result<(), StripeWriteError> {
        let mut into = Vec::with_capacity(directories.len());
        for (at, directory) in directories.iter().enumerate() {
            let pouring = self
                .begin_parity(stripe, at, directory)
                .map_err(|(path, source)| StripeWriteError::Write { path, at, source })?;
            into.push(pouring);
        }
        pour(stripe, rows, &mut into, go_on)?;
        let crcs = finish(stripe, into)?;
        for (at, (directory, crcs)) in directories.iter().zip(&crcs).enumerate() {
            self.put_records(stripe, at, directory, crcs, raw)
                .map_err(|(path, source)| StripeWriteError::Write { path, at, source })?;
        }
        Ok(())
    }

    /// Begins a parity chunk.
    pub fn begin_parity(
        &self,
        stripe: &Stripe,
        shard: usize,
        directory: &Path,
    ) -> Result<ChunkOutput, (PathBuf, io::Error)> {
        let side = directory.join(SIDE_DIRECTORY);
        let path = side.join(parity_file(self.name, stripe.number, shard));
        let shard = stripe.data.len() + shard;
        let output =
            OutputFile::begin(&side, &path, stripe.bytes_of(shard)).map_err(|it| (path, it))?;
        Ok(ChunkOutput { shard, output, crcs: Vec::new() })
    }

    /// Writes the metadata beside a parity chunk; from then on the parity chunk counts.
    pub fn put_records(
        &self,
        stripe: &Stripe,
        shard: usize,
        directory: &Path,
        crcs: &[u32],
        raw: &[&[u8]],
    ) -> Result<(), (PathBuf, io::Error)> {
        let record = index::Stripe {
            number: stripe.number,
            row_bytes: stripe.row_bytes as u32,
            data: stripe.data.len() as u16,
            parity: stripe.parity.len() as u16,
            shard: shard as u16,
            bytes: stripe.bytes_of(stripe.data.len()),
            records: 0,
        };
        let bytes = metadata(self.codec, self.stream, record, crcs, raw);
        let path = side_file(directory, &records_file(self.name, stripe.number, shard));
        put_file(&path, &bytes).map_err(|source| (path, source))
    }
}
