//! Checks the redundancy that is left: the damaged or missing chunks of each stripe, and the number of further members
//! that may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fullbore_core::redundancy::Scheme;
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::read::{ExtentReader, StartError, pool};
use fullbore_store::reader::{BlockLocation, Scan, StoredStream};
use fullbore_store::redundancy::stripe::Stripe;
use fullbore_store::redundancy::stripes_of;
use serde::Serialize;

/// The redundancy that a scan still has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedundancyStatus {
    /// The maximum number of data chunks of a stripe.
    pub data: u16,
    /// Parity chunks of each stripe.
    pub parity: u16,
    /// Stripes that any member has metadata of.
    pub stripes: u64,
    /// Data chunks in these stripes.
    pub chunks: u64,
    /// Data chunks in no stripe.
    pub unprotected: u64,
    /// Chunks, data or parity, that are damaged or missing.
    pub lost: u64,
    /// Data chunks that cannot be read in full, not even through parity. Blocks that are in no index and no stripe
    /// metadata count as the chunks that they fill.
    pub beyond: u64,
    /// The number of further members, whichever they are, that may be lost without losing anything that can be read
    /// now.
    pub may_lose: usize,
}

/// The status of a stripe.
#[derive(Debug)]
pub struct StripeStatus {
    /// The stripe.
    pub stripe: Arc<Stripe>,
    /// Damaged or missing chunks, data before parity.
    pub bad: BTreeSet<usize>,
    /// Rows with too few intact chunks.
    pub beyond: BTreeSet<usize>,
}

/// The result of checking a scan's redundancy.
#[derive(Debug)]
pub struct Checked {
    /// The summary.
    pub left: RedundancyStatus,
    /// The stripes of each stream.
    pub stripes: Vec<Vec<StripeStatus>>,
    /// Positions of blocks of each stream that are bad and can be restored from parity.
    pub mended: Vec<BTreeSet<usize>>,
    /// The problems found.
    pub findings: Vec<Diagnostic>,
}

/// Bytes of parity of a scan.
pub fn parity_bytes(scan: &Scan) -> u64 {
    let stripes = scan.streams.iter().flat_map(StoredStream::stripes);
    stripes.map(|it| it.parity.iter().flatten().count() as u64 * it.bytes_of(it.data.len())).sum()
}

/// Reads all parity of a scan and determines its remaining redundancy, if it was recorded with any. `bad` has the
/// damaged or missing blocks of each stream; `progress` is called with the number of bytes of parity read.
pub fn check(
    scan: &Scan,
    bad: &[BTreeSet<usize>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<Checked>, StartError> {
    let Some(scheme) = scan.manifest.redundancy.map(|it| it.scheme()) else { return Ok(None) };
    let mut all: Vec<Vec<Arc<Stripe>>> = Vec::new();
    for stream in &scan.streams {
        // Stripes of which no block is known are found by their metadata only.
        let mut stripes: BTreeMap<u32, Arc<Stripe>> = BTreeMap::new();
        stripes.extend(
            stripes_of(&scan.inventory, stream.number)
                .into_iter()
                .map(|told| (told.stripe.number, told.stripe)),
        );
        all.push(stripes.into_values().collect());
    }
    let bad_parity = read_parity(&all, progress)?;
    let mut checked = Checked {
        left: RedundancyStatus {
            data: scheme.data,
            parity: scheme.parity,
            stripes: 0,
            chunks: 0,
            unprotected: 0,
            lost: 0,
            beyond: 0,
            may_lose: usize::from(scheme.parity),
        },
        stripes: Vec::new(),
        mended: Vec::new(),
        findings: Vec::new(),
    };
    for ((stream, stripes), (bad, bad_parity)) in
        scan.streams.iter().zip(&all).zip(bad.iter().zip(&bad_parity))
    {
        checked.take(stream, stripes, bad, bad_parity, scheme);
    }
    if checked.left.beyond > 0 || checked.left.unprotected > 0 {
        checked.left.may_lose = 0;
    }
    Ok(Some(checked))
}

/// Bad rows of each parity chunk of each stream, by position of stripe and shard.
type BadRows = BTreeMap<(usize, usize), BTreeSet<usize>>;

fn read_parity(
    all: &[Vec<Arc<Stripe>>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<BadRows>, StartError> {
    type Job<'a> = (usize, usize, usize, &'a Stripe);
    let mut lanes: BTreeMap<u64, Vec<Job<'_>>> = BTreeMap::new();
    let mut row_bytes = 4096;
    for (stream, stripes) in all.iter().enumerate() {
        for (at, stripe) in stripes.iter().enumerate() {
            row_bytes = row_bytes.max(stripe.row_bytes);
            for (shard, parity) in stripe.parity.iter().enumerate() {
                if let Some(parity) = parity {
                    lanes.entry(parity.device).or_default().push((stream, at, shard, stripe));
                }
            }
        }
    }
    let mut memory = pool(lanes.len().max(1), row_bytes)?;
    let done = AtomicU64::new(0);
    let mut found: Vec<BadRows> = all.iter().map(|_| BadRows::new()).collect();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for lane in lanes.values() {
            let mut block = memory.take().expect("the pool has a block for every thread");
            let done = &done;
            running.push(scope.spawn(move || {
                let mut reader = ExtentReader::default();
                let mut bad: Vec<(usize, usize, usize, usize)> = Vec::new();
                for (stream, at, shard, stripe) in lane {
                    let place = stripe.data.len() + shard;
                    for row in 0..stripe.rows() {
                        if stripe.read_row(place, row, &mut reader, &mut block).is_err() {
                            bad.push((*stream, *at, *shard, row));
                        }
                        let bytes = stripe.length(place, row) as u64;
                        progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
                    }
                }
                bad
            }));
        }
        for thread in running {
            match thread.join() {
                Ok(bad) => bad.into_iter().for_each(|(stream, at, shard, row)| {
                    found[stream].entry((at, shard)).or_default().insert(row);
                }),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    Ok(found)
}

impl Checked {
    fn take(
        &mut self,
        stream: &StoredStream,
        stripes: &[Arc<Stripe>],
        bad: &BTreeSet<usize>,
        bad_parity: &BadRows,
        scheme: Scheme,
    ) {
        let places: BTreeMap<u32, usize> =
            stripes.iter().enumerate().map(|(at, stripe)| (stripe.number, at)).collect();
        let mut rows: Vec<BTreeMap<usize, BTreeSet<usize>>> = vec![BTreeMap::new(); stripes.len()];
        let mut bad_shards: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); stripes.len()];
        let mut unprotected: BTreeSet<u32> = BTreeSet::new();
        let mut beyond: BTreeSet<u32> = BTreeSet::new();
        for (position, location) in stream.blocks.iter().enumerate() {
            let stripe = location.stripe.as_ref();
            let at = stripe.and_then(|it| Some((places.get(&it.stripe.number)?, it)));
            let Some((&at, in_stripe)) = at else {
                unprotected.insert(location.block.chunk);
                if bad.contains(&position) {
                    beyond.insert(location.block.chunk);
                }
                continue;
            };
            if bad.contains(&position) {
                bad_shards[at].insert(in_stripe.place);
                for row in rows_of(location, &in_stripe.stripe) {
                    rows[at].entry(row).or_default().insert(in_stripe.place);
                }
            }
        }
        let (mut missing, mut damaged) = (0, 0);
        for (at, stripe) in stripes.iter().enumerate() {
            for (shard, parity) in stripe.parity.iter().enumerate() {
                let place = stripe.data.len() + shard;
                let bad_rows: Vec<usize> = match (parity, bad_parity.get(&(at, shard))) {
                    (None, _) => (0..stripe.rows()).collect(),
                    (Some(_), Some(rows)) => rows.iter().copied().collect(),
                    (Some(_), None) => continue,
                };
                match parity {
                    None => missing += 1,
                    Some(parity) => {
                        damaged += 1;
                        self.findings.push(Diagnostic {
                            stream: Some(stream.name.clone()),
                            member: None,
                            file: Some(parity.path.to_path_buf()),
                            frames: None,
                            what: DiagnosticKind::ParityDamaged { rows: bad_rows.len() as u64 },
                        });
                    }
                }
                bad_shards[at].insert(place);
                for row in bad_rows {
                    rows[at].entry(row).or_default().insert(place);
                }
            }
        }
        let mut statuses = Vec::with_capacity(stripes.len());
        for (stripe, (bad, rows)) in stripes.iter().zip(bad_shards.into_iter().zip(rows)) {
            let most = stripe.parity.len();
            let over: BTreeSet<usize> =
                rows.iter().filter(|(_, bad)| bad.len() > most).map(|(row, _)| *row).collect();
            for row in &over {
                let lost = rows[row].iter().filter_map(|shard| stripe.data.get(*shard));
                beyond.extend(lost.map(|chunk| chunk.chunk));
            }
            // Each row is judged alone: chunks may be damaged in different rows. Most rows are intact.
            let whole = BTreeSet::new();
            let may_lose = rows.values().chain([&whole]).map(|bad| may_lose(stripe, bad)).min();
            let most = may_lose.unwrap_or(0).min(usize::from(scheme.parity));
            self.left.may_lose = self.left.may_lose.min(most);
            self.left.stripes += 1;
            self.left.chunks += stripe.data.len() as u64;
            self.left.lost += bad.len() as u64;
            statuses.push(StripeStatus { stripe: stripe.clone(), bad, beyond: over });
        }
        self.left.unprotected += unprotected.len() as u64;
        self.left.beyond += beyond.len() as u64;
        // Only the number is known of blocks that are in no index and no stripe metadata.
        let absent: u64 = stream.absent.iter().map(|absent| absent.count).sum();
        let chunk_blocks = stream.geometry.map_or(1, |it| u64::from(it.chunk_blocks).max(1));
        self.left.beyond += absent.div_ceil(chunk_blocks);
        self.left.lost += beyond.intersection(&unprotected).count() as u64;
        self.tell(stream, missing, unprotected.len() as u64);
        debug_assert!(damaged <= bad_parity.len());
        self.mended.push(mended(stream, bad, &places, &statuses));
        self.stripes.push(statuses);
    }

    fn tell(&mut self, stream: &StoredStream, missing: u64, unprotected: u64) {
        let mut tell = |what| {
            self.findings.push(Diagnostic {
                stream: Some(stream.name.clone()),
                member: None,
                file: None,
                frames: None,
                what,
            });
        };
        if missing > 0 {
            tell(DiagnosticKind::ParityMissing { chunks: missing });
        }
        if unprotected > 0 {
            tell(DiagnosticKind::ChunksUnprotected { chunks: unprotected });
        }
    }
}

/// Returns the bad blocks of which every row can be restored.
fn mended(
    stream: &StoredStream,
    bad: &BTreeSet<usize>,
    places: &BTreeMap<u32, usize>,
    statuses: &[StripeStatus],
) -> BTreeSet<usize> {
    let can_be = |position: &usize| {
        let location = &stream.blocks[*position];
        let Some(in_stripe) = &location.stripe else { return false };
        let Some(at) = places.get(&in_stripe.stripe.number) else { return false };
        rows_of(location, &in_stripe.stripe).all(|row| !statuses[*at].beyond.contains(&row))
    };
    bad.iter().copied().filter(can_be).collect()
}

fn rows_of(location: &BlockLocation, stripe: &Stripe) -> std::ops::Range<usize> {
    let row = stripe.row_bytes as u64;
    let end = location.block.offset + u64::from(location.block.bytes);
    (location.block.offset / row) as usize..end.div_ceil(row) as usize
}

/// Returns the number of members, whichever they are, that may be lost, by a row in which these chunks are damaged or
/// missing.
fn may_lose(stripe: &Stripe, bad: &BTreeSet<usize>) -> usize {
    let mut on: BTreeMap<usize, usize> = BTreeMap::new();
    for shard in (0..stripe.shards()).filter(|shard| !bad.contains(shard)) {
        if let Some(root) = stripe.root_of(shard) {
            *on.entry(root).or_default() += 1;
        }
    }
    let mut counts: Vec<usize> = on.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = stripe.parity.len().saturating_sub(bad.len());
    counts
        .into_iter()
        .take_while(|count| left.checked_sub(*count).map(|less| left = less).is_some())
        .count()
}
