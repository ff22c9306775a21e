//! The account, counted again from index and frames.

use std::collections::HashMap;

use fullbore_core::account::Account;
use fullbore_core::gap::Cause;
use fullbore_core::index::Block;
use fullbore_core::manifest::{ACCOUNT_FILE, Format, MANIFEST_FILE, State, Summary};

use super::walk::{Clock, ThreadSpan, Walk};
use super::{Results, StreamResult};
use crate::store::finding::{Finding, What};
use crate::store::gaps::Gaps;
use crate::store::reader::{Scan, Stream};

/// The account as index and data have it, and where the stored one differs.
pub(super) fn account(
    scan: &Scan,
    stream: &Stream,
    results: &Results,
) -> (StreamResult, Vec<Finding>) {
    let counted = Counted::of(stream);
    let good_blocks = results.values().filter(|it| it.fault.is_none()).count() as u64;
    let stored = stream.account.as_ref();
    let absent_blocks: u64 = stream.absent.iter().map(|absent| absent.count).sum();
    let good = results.iter().filter(|(_, result)| result.fault.is_none());
    let present: u64 = good.map(|(at, _)| u64::from(stream.blocks[*at].block.present)).sum();
    let written = stored.map_or(0, |account| account.terms.written).max(counted.written);
    let result = StreamResult {
        name: stream.name.clone(),
        good_blocks,
        blocks: stream.blocks.len() as u64 + absent_blocks,
        good: false,
        lost: written.saturating_sub(present),
        written: counted.written,
        absent: counted.absent,
        stored: stored.map(|account| account.terms),
        verdict: stored.map(|account| account.verdict),
        why_overrun: stored.and_then(Account::why_overrun),
        gaps_unlisted: stored.map_or(0, |account| account.gaps_unlisted),
    };
    let mut books = Books::new(scan, stream);
    if scan.manifest.state != State::Recording {
        match stored {
            Some(stored) => books.check(stored, &counted, results),
            None => books.no_account(),
        }
    }
    (result, books.findings)
}

/// What the index says of a stream.
struct Counted {
    written: u64,
    filled: u64,
    invalid: u64,
    /// Gaps between the first and the last frame of the account, where indices are places.
    gaps: Gaps,
    absent: Option<u64>,
}

impl Counted {
    fn of(stream: &Stream) -> Self {
        let sum = |of: fn(&Block) -> u32| {
            stream.blocks.iter().map(|it| u64::from(of(&it.block))).sum::<u64>()
        };
        // A first block may begin, and a last one end, with places that belong to no scan.
        let gaps = match stream.placed_edges() {
            Some((first, last)) => stream.gaps.clipped(first..last.saturating_add(1)),
            None => stream.gaps.clone(),
        };
        Self {
            written: sum(|block| block.present),
            filled: sum(|block| block.frames - block.present),
            invalid: sum(|block| block.invalid),
            absent: stream.is_filled().then(|| gaps.frames()),
            gaps,
        }
    }
}

struct Books<'a> {
    scan: &'a Scan,
    stream: &'a Stream,
    findings: Vec<Finding>,
}

impl<'a> Books<'a> {
    fn new(scan: &'a Scan, stream: &'a Stream) -> Self {
        Self { scan, stream, findings: Vec::new() }
    }

    fn tell(&mut self, file: &str, what: What) {
        let holding = self.scan.inventory.of_stream(self.stream.number).next();
        self.findings.push(Finding {
            stream: Some(self.stream.name.clone()),
            member: None,
            file: holding.map(|holding| holding.side(file)),
            frames: None,
            what,
        });
    }

    /// Only a stream of which nothing ever lay on any member needs none.
    fn no_account(&mut self) {
        if self.scan.inventory.of_stream(self.stream.number).next().is_none() {
            let told = &self.scan.manifest.streams[self.stream.number];
            if told.blocks > 0 {
                self.tell(ACCOUNT_FILE, What::AccountMissing);
            }
        }
    }

    fn check(&mut self, stored: &Account, counted: &Counted, results: &Results) {
        if !stored.terms.balance() {
            let (expected, sum) = (stored.terms.expected, stored.terms.sum());
            self.tell(ACCOUNT_FILE, What::AccountUnbalanced { expected, sum });
        }
        self.compare("verdict", stored.verdict, stored.verdict.max(stored.judge()));
        self.check_manifest(stored);
        // With a part of the index away every sum differs, and the reason has been told.
        if self.stream.complete && self.stream.absent.is_empty() {
            self.check_terms(stored, counted);
            self.check_data(stored, results);
        }
    }

    fn check_terms(&mut self, stored: &Account, counted: &Counted) {
        let terms = &stored.terms;
        self.compare("written", terms.written, counted.written);
        self.compare("filled", stored.filled, counted.filled);
        self.compare("invalid", stored.invalid, counted.invalid);
        let frame_bytes = self.stream.geometry.map_or(0, |it| u64::from(it.frame_bytes));
        if frame_bytes > 0 {
            self.compare("bytes", stored.bytes, counted.written * frame_bytes);
        } else if counted.filled == 0 {
            self.compare("bytes", stored.bytes, self.stream.bytes());
        }
        // Of a stream without a block there is no index: its account alone says what was not written.
        let indexed = !self.stream.blocks.is_empty();
        if let Some(absent) = counted.absent.filter(|_| indexed) {
            self.check_gaps(stored, counted, absent);
        }
    }

    /// Index and account may name different causes for one frame, as it became late what was missing
    /// first; which frames are not there they must agree on.
    fn check_gaps(&mut self, stored: &Account, counted: &Counted, absent: u64) {
        let terms = &stored.terms;
        // Where the rate was derived, frames may be missing that have no index: no gap tells of them.
        let beyond = match self.is_derived() {
            true => terms.expected.saturating_sub(counted.written + absent).min(terms.missing),
            false => 0,
        };
        self.compare("expected", terms.expected, counted.written + absent + beyond);
        let listed = Gaps::paint(stored.gaps.iter().copied());
        if stored.gaps_unlisted > 0 || listed.frames() != absent {
            return;
        }
        if listed.without_causes() != counted.gaps.without_causes() {
            self.compare("gaps", describe(&listed), describe(&counted.gaps));
        }
        self.compare("missing", terms.missing, listed.total(Cause::Missing) + beyond);
        self.compare("overrun", terms.overrun, listed.total(Cause::Overrun));
        self.compare("damaged", terms.damaged, listed.total(Cause::Damaged));
        self.compare("late", terms.late, listed.total(Cause::Late));
    }

    /// What the frames themselves say, where they say anything and all could be read.
    fn check_data(&mut self, stored: &Account, results: &Results) {
        let walks = || results.values().map(|it| &it.walk);
        let all_read = results.len() == self.stream.blocks.len();
        if !all_read || !walks().all(|walk| walk.walked) {
            return;
        }
        let sum = |of: fn(&Walk) -> u64| walks().map(of).sum::<u64>();
        self.compare("written (by the frames)", stored.terms.written, sum(|it| it.present));
        self.compare("filled (by the frames)", stored.filled, sum(|it| it.fill));
        if sum(|it| it.bad.count) == 0 {
            self.compare("invalid (by the frames)", stored.invalid, sum(|it| it.invalid));
        }
        let clock = Clock::of(self.stream);
        let threads = threads(walks());
        if clock.rate.is_some() && stored.restarts == 0 {
            let told = stored.terms.expected.saturating_sub(stored.terms.written);
            let holes: u64 = threads.values().map(ThreadSpan::holes).sum();
            // The time of an invalid frame is not looked at, so its place counts as a hole.
            if holes > told.saturating_add(stored.invalid) {
                self.compare("absent (by the time in the frames)", told, holes);
            }
        }
        for flow in &stored.flows {
            let frames = threads.get(&(flow.station, flow.thread)).map_or(0, |it| it.frames);
            self.compare("written (of a thread, by the frames)", flow.terms.written, frames);
        }
    }

    fn check_manifest(&mut self, stored: &Account) {
        let told = &self.scan.manifest.streams[self.stream.number];
        let summary = Some(Summary::from(stored));
        if told.account != summary {
            let text = |it: &Option<Summary>| {
                it.as_ref().map_or("nothing".into(), |it| format!("{} {:?}", it.verdict, it.terms))
            };
            let (stored, counted) = (text(&told.account), text(&summary));
            self.tell(MANIFEST_FILE, What::ManifestTerm { term: "account", stored, counted });
        }
        if self.stream.complete && self.stream.absent.is_empty() {
            let counts = [
                ("blocks", told.blocks, self.stream.blocks.len() as u64),
                ("bytes", told.bytes, self.stream.bytes()),
            ];
            for (term, stored, counted) in counts {
                if stored != counted {
                    let (stored, counted) = (stored.to_string(), counted.to_string());
                    self.tell(MANIFEST_FILE, What::ManifestTerm { term, stored, counted });
                }
            }
        }
    }

    fn compare<T: PartialEq + ToString>(&mut self, term: &'static str, stored: T, counted: T) {
        if stored != counted {
            let (stored, counted) = (stored.to_string(), counted.to_string());
            self.tell(ACCOUNT_FILE, What::AccountTerm { term, stored, counted });
        }
    }

    fn is_derived(&self) -> bool {
        matches!(self.stream.format, Format::Vdif { derived: true, .. })
    }
}

fn describe(gaps: &Gaps) -> String {
    let frames: u64 = gaps.iter().map(|gap| gap.count).sum();
    let first = gaps.iter().next().map(|gap| format!(" from frame {} on", gap.first));
    format!("{} of {frames} frames{}", gaps.len(), first.unwrap_or_default())
}

/// Each thread over all blocks.
fn threads<'a>(walks: impl Iterator<Item = &'a Walk>) -> HashMap<(u16, u16), ThreadSpan> {
    let mut all: HashMap<(u16, u16), ThreadSpan> = HashMap::new();
    for span in walks.flat_map(|walk| &walk.threads) {
        all.entry((span.station, span.thread)).and_modify(|it| it.add(span)).or_insert(*span);
    }
    all
}
