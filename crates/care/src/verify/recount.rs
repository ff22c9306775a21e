//! Recounts the account from index and frames.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use fullbore_core::account::{Account, Edge, Verdict, judge_together};
use fullbore_core::index::Block;
use fullbore_core::manifest::{ACCOUNT_FILE, Format, MANIFEST_FILE, State, Summary};
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::gaps::Gaps;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::{Tai, frame_ns};
use serde_json::Value;

use super::listed::Listed;
use super::walk::{Clock, ThreadSpan, Timed, Walk};
use super::{Results, StreamResult};

/// Counts the account again from index and data, and returns the differences from the stored one.
pub(super) fn account(
    scan: &Scan,
    stream: &StoredStream,
    results: &Results,
) -> (StreamResult, Vec<Diagnostic>) {
    let counted = Counted::of(stream);
    let good_blocks = results.values().filter(|it| it.fault.is_none()).count() as u64;
    let stored = stream.account.as_ref();
    // If every copy of the account is gone, the manifest still has its terms.
    let summary = scan.manifest.streams[stream.number].account.as_ref();
    let terms = stored.map(|it| it.terms).or_else(|| summary.map(|it| it.terms));
    let good = results.iter().filter(|(_, result)| result.fault.is_none());
    let present: u64 = good.map(|(at, _)| u64::from(stream.blocks[*at].block.present)).sum();
    let written = terms.map_or(0, |terms| terms.written).max(counted.written);
    let result = StreamResult {
        name: stream.name.clone(),
        good_blocks,
        blocks: stream.recorded_blocks(),
        good: false,
        lost: written.saturating_sub(present),
        written: counted.written,
        absent: counted.absent,
        stored: terms,
        verdict: stored.map(|account| account.verdict),
        why_overrun: stored.and_then(Account::why_overrun),
        gaps_unlisted: stored.map_or(0, |account| account.gaps_unlisted),
        unit: if stream.is_of_bytes() { "byte" } else { "frame" },
    };
    let mut recount = Recount::new(scan, stream);
    if scan.manifest.state != State::Recording {
        match stored {
            Some(stored) => recount.check(stored, &counted, results),
            None => recount.no_account(),
        }
    }
    (result, recount.findings)
}

/// The fields in which two summaries differ, in words: each with its value in the first and in the second.
fn differences(one: Option<&Summary>, other: Option<&Summary>) -> (String, String) {
    let fields = |it: Option<&Summary>| {
        let mut fields = BTreeMap::new();
        let json = serde_json::to_value(it).expect("a summary has only plain fields");
        put_fields("", &json, &mut fields);
        fields
    };
    let (one, other) = (fields(one), fields(other));
    let all: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let told = |of: &BTreeMap<String, String>| {
        let differing = all.iter().filter(|name| one.get(**name) != other.get(**name));
        let value = |name: &str| of.get(name).map_or("nothing", String::as_str);
        let words = differing.map(|name| format!("{name} {}", value(name)));
        format!("with {}", words.collect::<Vec<_>>().join(", "))
    };
    (told(&one), told(&other))
}

/// Puts the fields of an object and of the objects in it. The terms and the other counts need no name before theirs.
fn put_fields(name: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(inner) => {
            let prefix = if matches!(name, "terms" | "beside") { "" } else { name };
            for (name, value) in inner {
                let name = format!("{prefix} {}", name.replace('_', " "));
                put_fields(name.trim_start(), value, fields);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(fields.insert(name.to_owned(), text.clone())),
        other => drop(fields.insert(name.to_owned(), other.to_string())),
    }
}

/// The counts of a stream by its index.
pub(super) struct Counted {
    pub(super) written: u64,
    filled: u64,
    invalid: u64,
    /// Frames of blocks that `recover` found without a record.
    found: u64,
    /// Gaps between the first and the last frame of the account, where indices are places.
    pub(super) gaps: Gaps,
    pub(super) absent: Option<u64>,
}

impl Counted {
    fn of(stream: &StoredStream) -> Self {
        let sum = |of: fn(&Block) -> u32| {
            stream.blocks.iter().map(|it| u64::from(of(&it.block))).sum::<u64>()
        };
        // A first block may begin, and a last one end, with places outside of the scan.
        let gaps = match stream.placed_edges() {
            Some((first, last)) => stream.gaps.clipped(first..last.saturating_add(1)),
            None => stream.gaps.clone(),
        };
        Self {
            written: sum(|block| block.present),
            filled: sum(|block| block.frames - block.present),
            invalid: sum(|block| block.invalid),
            found: found(stream),
            absent: stream.is_filled().then(|| gaps.frames()),
            gaps,
        }
    }
}

fn found(stream: &StoredStream) -> u64 {
    let mut runs = stream.found.clone();
    runs.sort_unstable();
    let was_found = |block: &&Block| {
        let behind = runs.partition_point(|&(first, _)| first <= block.sequence);
        let run = behind.checked_sub(1).map(|at| runs[at]);
        run.is_some_and(|(first, count)| block.sequence - first < count)
    };
    let blocks = stream.blocks.iter().map(|placed| &placed.block);
    blocks.filter(was_found).map(|block| u64::from(block.present)).sum()
}

pub(super) struct Recount<'a> {
    pub(super) scan: &'a Scan,
    pub(super) stream: &'a StoredStream,
    findings: Vec<Diagnostic>,
}

impl<'a> Recount<'a> {
    fn new(scan: &'a Scan, stream: &'a StoredStream) -> Self {
        Self { scan, stream, findings: Vec::new() }
    }

    fn tell(&mut self, file: &str, what: DiagnosticKind) {
        let holding = self.scan.inventory.of_stream(self.stream.number).next();
        self.findings.push(Diagnostic {
            stream: Some(self.stream.name.clone()),
            member: None,
            file: holding.map(|holding| holding.side(file)),
            frames: None,
            what,
        });
    }

    /// Reports a missing account. Only a stream without any data on any member needs none.
    fn no_account(&mut self) {
        if self.scan.inventory.of_stream(self.stream.number).next().is_none() {
            let told = &self.scan.manifest.streams[self.stream.number];
            if told.blocks > 0 {
                self.tell(ACCOUNT_FILE, DiagnosticKind::AccountMissing);
            }
        }
    }

    fn check(&mut self, stored: &Account, counted: &Counted, results: &Results) {
        if !stored.terms.balance() {
            let (expected, sum) = (stored.terms.expected, stored.terms.sum());
            self.tell(ACCOUNT_FILE, DiagnosticKind::AccountUnbalanced { expected, sum });
        }
        self.check_verdict(stored);
        Listed::of(self, stored).check(self);
        self.check_manifest(stored);
        // If a part of the index is missing, every sum differs, and the reason has been reported.
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
        self.check_unverified(stored, counted);
        let frame_bytes = self.stream.geometry.map_or(0, |it| u64::from(it.frame_bytes));
        if frame_bytes > 0 {
            self.compare("bytes", stored.bytes, counted.written * frame_bytes);
        } else if counted.filled == 0 {
            self.compare("bytes", stored.bytes, self.stream.bytes());
        }
        // A stream without a block has no index: only its account has the losses.
        if !self.stream.blocks.is_empty() {
            Listed::of(self, stored).check_index(self, counted);
        }
    }

    /// Checks the unverified frames. Blocks that `recover` found without a record are marked in the index; blocks read
    /// back after a failed sync are not, and parity does not keep the marks. `recover` claims nothing that it cannot
    /// know.
    fn check_unverified(&mut self, stored: &Account, counted: &Counted) {
        let anew = self.is_counted_anew(stored);
        let failed = self.scan.manifest.members.iter().any(|member| member.failure.is_some());
        let exact = self.scan.manifest.redundancy.is_none() && (anew || !failed);
        let least = counted.found;
        let most = if exact { least } else { counted.written.max(least) };
        self.compare("unverified", stored.unverified, stored.unverified.clamp(least, most));
        if anew {
            self.compare("duplicates", stored.duplicates, 0);
            self.compare("reordered", stored.reordered, 0);
        }
    }

    /// Checks the verdict against the accounts of the scan.
    fn check_verdict(&mut self, stored: &Account) {
        let accounts = self.scan.streams.iter().map(|stream| stream.account.clone());
        let judged = match accounts.collect::<Option<Vec<Account>>>() {
            Some(mut accounts) => {
                judge_together(&mut accounts);
                accounts[self.stream.number].verdict
            }
            // Streams explain each other's losses: if an account is missing, a verdict may be worse.
            None => stored.verdict.max(stored.judge()),
        };
        if self.scan.manifest.state != State::Recovered || !may_stand_recovered(stored) {
            self.compare("verdict", stored.verdict, judged);
        }
    }

    /// Checks against the frames themselves, if they carry information and all could be read.
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
            // The time of an invalid frame is not used, so its place counts as a hole.
            if holes > told.saturating_add(stored.invalid) {
                self.compare("absent (by the time in the frames)", told, holes);
            }
        }
        let certain = clock.rate.is_some_and(|rate| rate > 0);
        if clock.places && certain {
            let mut timed = walks().flat_map(|walk| &walk.threads).filter_map(|span| span.timed);
            self.check_times(stored, clock, timed.next());
        }
        if clock.numbers || (clock.places && !certain) {
            self.check_ends(stored, clock, results);
        }
        let readable = sum(|it| it.bad.count) == 0;
        Listed::of(self, stored).check_frames(self, &threads, readable);
    }

    /// Checks the times of the first and the last frame, which follow from their places if the rate is certain.
    fn check_times(&mut self, stored: &Account, clock: Clock, timed: Option<Timed>) {
        /// The maximum rounding error of a time.
        const ROUNDING_NS: u64 = 1000;
        let Some((rate, timed)) = clock.rate.filter(|rate| *rate > 0).zip(timed) else { return };
        let time = |index: i64| {
            let frames = timed.offset.saturating_add(index.div_euclid(clock.threads));
            let second = frames.div_euclid(rate).saturating_mul(1_000_000_000);
            let number = frames.rem_euclid(rate).unsigned_abs();
            Tai(second.saturating_add(frame_ns(number, rate.unsigned_abs())))
        };
        let mut check = |term, edge: Option<Edge>| {
            let Some((edge, told)) = edge.and_then(|edge| Some((edge, edge.time?))) else { return };
            let counted = time(edge.index);
            if told.0.abs_diff(counted.0) > ROUNDING_NS {
                self.compare(term, told, counted);
            }
        };
        check("first.time", stored.first);
        check("last.time", stored.last);
    }

    /// The same check by the first and the last frame themselves, if the times of others are not known.
    fn check_ends(&mut self, stored: &Account, clock: Clock, results: &Results) {
        // `recover` computes from the records of blocks, and frames without a place may have been the last.
        if self.is_counted_anew(stored) || stored.gaps_unlisted > 0 {
            return;
        }
        let mut ends = results.values().filter_map(|it| it.walk.ends);
        let Some((first, last)) = ends.next() else { return };
        let last = ends.next_back().map_or(last, |(_, last)| last);
        // In a sequential stream, either all frames that arrived exist, or the last one is unknown.
        let all = clock.numbers && Listed::of(self, stored).lost() == 0;
        let arrived = i64::try_from(stored.terms.written).unwrap_or(i64::MAX) - 1;
        for (term, edge, end, arrival) in
            [("first.time", stored.first, first, 0), ("last.time", stored.last, last, arrived)]
        {
            let Some((edge, told)) = edge.and_then(|edge| Some((edge, edge.time?))) else {
                continue;
            };
            let is_it =
                if clock.places { end.index == edge.index } else { all && end.index == arrival };
            let Some(time) = end.time.filter(|_| is_it) else { continue };
            self.check_end(term, told, time);
        }
    }

    /// Checks the time of a frame against its own content, as exactly as its number gives a part of a second.
    fn check_end(&mut self, term: &'static str, told: Tai, (second, number): (i64, u32)) {
        let Format::Frames { frames_per_second: Some(rate), derived, .. } = self.stream.format
        else {
            return;
        };
        // A learnt rate may have been different when the time was recorded, and so may that of another thread.
        let sure_ns: i64 = if derived { 1_000_000_000 } else { 1000 };
        let part = if u64::from(number) < rate { frame_ns(number.into(), rate) } else { 0 };
        let counted = Tai(second.saturating_mul(1_000_000_000).saturating_add(part));
        if told.0.abs_diff(counted.0) > sure_ns.unsigned_abs() {
            self.compare(term, told, counted);
        }
    }

    /// Returns true if `recover` made the account anew.
    fn is_counted_anew(&self, stored: &Account) -> bool {
        self.scan.manifest.state == State::Recovered && stored.host.is_none()
    }

    fn check_manifest(&mut self, stored: &Account) {
        let told = &self.scan.manifest.streams[self.stream.number];
        let mut summary = Summary::from(stored);
        if told.account.as_ref().is_some_and(|told| told.beside.is_none()) {
            // An earlier version did not write it.
            summary.beside = None;
        }
        let summary = Some(summary);
        if told.account != summary {
            let (stored, counted) = differences(told.account.as_ref(), summary.as_ref());
            self.tell(
                MANIFEST_FILE,
                DiagnosticKind::ManifestTerm { term: "account", stored, counted },
            );
        }
        if self.stream.complete && self.stream.absent.is_empty() {
            let counts = [
                ("blocks", told.blocks, self.stream.blocks.len() as u64),
                ("bytes", told.bytes, self.stream.bytes()),
            ];
            for (term, stored, counted) in counts {
                if stored != counted {
                    let (stored, counted) = (stored.to_string(), counted.to_string());
                    self.tell(
                        MANIFEST_FILE,
                        DiagnosticKind::ManifestTerm { term, stored, counted },
                    );
                }
            }
        }
    }

    pub(super) fn compare<T: PartialEq + ToString>(
        &mut self,
        term: &'static str,
        stored: T,
        counted: T,
    ) {
        if stored != counted {
            let (stored, counted) = (stored.to_string(), counted.to_string());
            self.tell(ACCOUNT_FILE, DiagnosticKind::AccountTerm { term, stored, counted });
        }
    }
}

/// Returns true if a verdict is possible in a recovered scan. An account that `recover` made was judged by itself, and
/// is never proven. An account that was kept was judged with the others, some of which may have lost their counters
/// since.
fn may_stand_recovered(stored: &Account) -> bool {
    let alone = stored.judge();
    if stored.host.is_none() {
        return stored.verdict == alone.max(Verdict::Consistent);
    }
    let shared = stored.drop_counters.iter().any(|counter| !counter.own && counter.moved() > 0);
    let leans = alone == Verdict::Consistent && stored.terms.missing > 0 && shared;
    stored.verdict == alone || (leans && stored.verdict == Verdict::Unexplained)
}

/// Merges the spans of each thread over all blocks.
fn threads<'a>(walks: impl Iterator<Item = &'a Walk>) -> Threads {
    let mut all = Threads::new();
    for span in walks.flat_map(|walk| &walk.threads) {
        match all.entry((span.station, span.thread)) {
            Entry::Occupied(mut known) => known.get_mut().add(span),
            Entry::Vacant(place) => {
                place.insert(span.clone());
            }
        }
    }
    for span in all.values_mut() {
        span.numbers.settle();
        span.doubtful.settle();
    }
    all
}

/// The content of frames, by station and thread.
pub(super) type Threads = HashMap<(u16, u16), ThreadSpan>;
