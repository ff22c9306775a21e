//! The sync rounds that make a stream durable on one member, as a pure state machine.
//!
//! ```text
//!            Due, something new              Recorded                 last Synced
//!  Quiet ───────────────────────► Recording ──────────► Syncing ───────────────────► Quiet
//!    ▲      Record(entries)                  Sync(files)           Publish(blocks)     │
//!    ├─────────────────────────────────────────────────────────────────────────────────┘
//!    └──── nothing but a mark was recorded ─────────┘
//!            Finish: rounds until nothing is new and no mark is owed, then Closed
//!            Failed: Broken, for ever; blocks not published are Suspect
//! ```
//!
//! A round covers a block only once the block's write has completed. The round writes the block's record after that,
//! and submits the sync after the record's write has completed, because a sync covers only what had completed when it
//! was submitted.
//! The next round writes a mark for the blocks that a round published, for readers that follow the recording. If the
//! mark is all that a round has to write, the round syncs nothing: losing a mark does no harm, because the blocks it
//! covers are durable, and the next sync of the index, at the latest the one at the end, covers it.

use std::collections::BTreeSet;
use std::mem::take;

use fullbore_core::index::Entry;
use fullbore_time::Tai;

/// A file or directory of the stream that a round may sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncTarget {
    /// The member's root directory.
    Root,
    /// The stream's directory.
    Directory,
    /// The side directory, with all files that are not data.
    Side,
    /// The index.
    Index,
    /// The chunk of this number.
    Chunk(u32),
}

/// The index record of a block whose bytes, and those of all blocks before it, are in its chunk.
pub type Landed = fullbore_core::index::Block;

/// An event of a stream.
#[derive(Debug)]
pub enum Event {
    /// A block landed; these are its index entries.
    Landed(Landed, Vec<Entry>),
    /// An index entry that belongs to no block.
    Noted(Entry),
    /// A name was made or changed in a directory.
    Touched(SyncTarget),
    /// A round is due, if there is something new.
    Due,
    /// The records of the round are written.
    Recorded,
    /// A sync of the round has succeeded, at this time.
    Synced(SyncTarget, Tai),
    /// A write of records or a sync has failed.
    Failed,
    /// No more blocks will land.
    Finish,
}

/// An action that the caller must carry out.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Write these entries to the index.
    Record(Vec<Entry>),
    /// Sync these targets.
    Sync(Vec<SyncTarget>),
    /// Report these blocks as durable.
    Publish(Vec<Landed>),
    /// Report these blocks as suspect: they were written, but may not be on the disk.
    Suspect(Vec<Landed>),
    /// The last round is over.
    Closed,
}

/// The durability state of a stream on one member.
#[derive(Debug, Default)]
pub struct Journal {
    phase: Phase,
    /// Blocks landed since the last round began.
    news: Vec<Landed>,
    entries: Vec<Entry>,
    touched: BTreeSet<SyncTarget>,
    /// The total number of published blocks.
    durable: u64,
    /// The time at which the last round published, until a mark records it.
    owed: Option<Tai>,
    /// True if records were written since the index was last synced.
    unsynced: bool,
    finishing: bool,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Quiet,
    /// A round that writes only a mark.
    Marking,
    Recording(Vec<Landed>),
    Syncing(Vec<Landed>, BTreeSet<SyncTarget>),
    Broken,
    Closed,
}

impl Journal {
    /// Returns the journal of an index that has marks for this many blocks already.
    pub fn continued(durable: u64) -> Self {
        Self { durable, ..Self::default() }
    }

    /// Returns the mark that the last round owes, for a caller that writes and syncs it itself before the next round.
    pub fn take_mark(&mut self) -> Option<Entry> {
        let at = self.owed.take()?;
        Some(Entry::Mark { blocks: self.durable, at })
    }

    /// Returns true if a round would have something to do. A mark is written even if nothing follows, because readers
    /// of a live scan depend on it.
    pub fn has_news(&self) -> bool {
        let news = !self.news.is_empty() || !self.entries.is_empty() || self.owed.is_some();
        !self.broken() && news
    }

    /// Returns true if a round is being carried out.
    pub fn in_round(&self) -> bool {
        matches!(self.phase, Phase::Marking | Phase::Recording(_) | Phase::Syncing(..))
    }

    /// Returns true if a write of records or a sync has failed.
    pub fn broken(&self) -> bool {
        matches!(self.phase, Phase::Broken)
    }

    /// Handles an event; returns the actions in order.
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        match (take(&mut self.phase), event) {
            (Phase::Broken, Event::Landed(block, _)) => {
                self.phase = Phase::Broken;
                vec![Action::Suspect(vec![block])]
            }
            (Phase::Broken, Event::Finish) => {
                self.phase = Phase::Closed;
                vec![Action::Closed]
            }
            // Completions of operations that were in flight at the failure change nothing.
            (
                phase @ (Phase::Broken | Phase::Closed),
                Event::Noted(_)
                | Event::Touched(_)
                | Event::Due
                | Event::Recorded
                | Event::Synced(..)
                | Event::Failed,
            ) => {
                self.phase = phase;
                vec![]
            }
            (Phase::Closed, event @ (Event::Landed(..) | Event::Finish)) => {
                unreachable!("{event:?} after the last round")
            }
            (phase, Event::Landed(block, entries)) => {
                self.news.push(block);
                self.entries.extend(entries);
                self.touched.insert(SyncTarget::Chunk(block.chunk));
                self.stay(phase)
            }
            (phase, Event::Noted(entry)) => {
                self.entries.push(entry);
                self.stay(phase)
            }
            (phase, Event::Touched(part)) => {
                self.touched.insert(part);
                self.stay(phase)
            }
            (Phase::Quiet, Event::Due) if self.has_news() => self.begin(),
            (phase, Event::Due) => self.stay(phase),
            (Phase::Quiet, Event::Finish) => {
                self.finishing = true;
                self.go_on()
            }
            (phase, Event::Finish) => {
                self.finishing = true;
                self.stay(phase)
            }
            (Phase::Marking, Event::Recorded) => {
                self.unsynced = true;
                self.go_on()
            }
            (Phase::Recording(covered), Event::Recorded) => {
                // More blocks may have landed since; syncing their chunk early does no harm.
                let mut parts = take(&mut self.touched);
                parts.insert(SyncTarget::Index);
                self.unsynced = false;
                let list = parts.iter().copied().collect();
                // A chunk with blocks that this round does not cover must be synced again in the next.
                self.touched =
                    self.news.iter().map(|block| SyncTarget::Chunk(block.chunk)).collect();
                self.phase = Phase::Syncing(covered, parts);
                vec![Action::Sync(list)]
            }
            (Phase::Syncing(covered, mut waiting), Event::Synced(part, at)) => {
                assert!(waiting.remove(&part), "{part:?} was synced and not asked for");
                if !waiting.is_empty() {
                    self.phase = Phase::Syncing(covered, waiting);
                    return vec![];
                }
                self.publish(covered, at)
            }
            (Phase::Recording(covered) | Phase::Syncing(covered, _), Event::Failed) => {
                self.break_off(covered)
            }
            (Phase::Quiet | Phase::Marking, Event::Failed) => self.break_off(vec![]),
            (phase, event @ (Event::Recorded | Event::Synced(..))) => {
                unreachable!("{event:?} cannot happen while {phase:?}")
            }
        }
    }

    fn stay(&mut self, phase: Phase) -> Vec<Action> {
        self.phase = phase;
        vec![]
    }

    /// Begins a round with everything new, and the mark of the round before.
    fn begin(&mut self) -> Vec<Action> {
        let mark = self.owed.take().map(|at| Entry::Mark { blocks: self.durable, at });
        let entries: Vec<Entry> = mark.into_iter().chain(take(&mut self.entries)).collect();
        let covered = take(&mut self.news);
        let only_marks = entries.iter().all(|entry| matches!(entry, Entry::Mark { .. }));
        self.phase = match covered.is_empty() && only_marks && !self.finishing {
            true => Phase::Marking,
            false => Phase::Recording(covered),
        };
        vec![Action::Record(entries)]
    }

    fn publish(&mut self, covered: Vec<Landed>, at: Tai) -> Vec<Action> {
        let mut actions = vec![];
        if !covered.is_empty() {
            self.durable += covered.len() as u64;
            self.owed = Some(at);
            actions.push(Action::Publish(covered));
        }
        actions.extend(self.go_on());
        actions
    }

    /// Continues after a round, or finishes in the quiet state.
    fn go_on(&mut self) -> Vec<Action> {
        if self.finishing && (self.has_news() || self.unsynced) {
            return self.begin();
        }
        if self.finishing {
            self.phase = Phase::Closed;
            return vec![Action::Closed];
        }
        vec![]
    }

    fn break_off(&mut self, mut suspect: Vec<Landed>) -> Vec<Action> {
        suspect.append(&mut self.news);
        self.entries.clear();
        let closed = self.finishing;
        self.phase = if closed { Phase::Closed } else { Phase::Broken };
        let last = closed.then_some(Action::Closed);
        [Action::Suspect(suspect)].into_iter().chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fullbore_time::Tai;
    use proptest::prelude::*;

    use super::*;

    /// A disk with minimal guarantees: what had completed when a sync was submitted is durable when the sync succeeds,
    /// and nothing else is.
    #[derive(Default)]
    struct Environment {
        journal: Journal,
        landed: Vec<Landed>,
        record_wish: Option<Vec<Entry>>,
        recorded: Vec<Entry>,
        /// Target, and the blocks landed, entries recorded and touches of it when the sync was submitted.
        syncs: Vec<(SyncTarget, usize, usize, usize)>,
        safe_data: BTreeSet<u64>,
        safe_entries: usize,
        /// The number of touches of each directory, and how many of them are durable.
        touches: BTreeMap<SyncTarget, usize>,
        safe_touches: BTreeMap<SyncTarget, usize>,
        /// The touches before each block.
        needs: Vec<BTreeMap<SyncTarget, usize>>,
        published: Vec<u64>,
        suspect: Vec<u64>,
        closed: bool,
        failed: bool,
    }

    impl Environment {
        fn tell(&mut self, event: Event) {
            for action in self.journal.step(event) {
                match action {
                    Action::Record(entries) => {
                        assert!(self.record_wish.replace(entries).is_none(), "two rounds at once");
                    }
                    Action::Sync(parts) => {
                        for part in parts {
                            let touches = self.touches.get(&part).copied().unwrap_or(0);
                            let seen = (part, self.landed.len(), self.recorded.len(), touches);
                            self.syncs.push(seen);
                        }
                    }
                    Action::Publish(blocks) => self.check_published(&blocks),
                    Action::Suspect(blocks) => {
                        assert!(self.failed);
                        self.suspect.extend(blocks.iter().map(|block| block.sequence));
                    }
                    Action::Closed => {
                        assert!(!self.closed, "closed twice");
                        self.closed = true;
                    }
                }
            }
        }

        fn check_published(&mut self, blocks: &[Landed]) {
            let safe = &self.recorded[..self.safe_entries];
            for block in blocks {
                let sequence = block.sequence;
                assert!(self.safe_data.contains(&sequence), "data of {sequence} is not safe");
                let is_its = |e: &Entry| matches!(e, Entry::Block(b) if b.sequence == sequence);
                assert!(safe.iter().any(is_its), "record of {sequence} is not safe");
                for (part, touches) in &self.needs[sequence as usize] {
                    let safe = self.safe_touches.get(part).copied().unwrap_or(0);
                    assert!(
                        safe >= *touches,
                        "a name in {part:?} that {sequence} needs is not safe"
                    );
                }
                self.published.push(sequence);
            }
        }

        fn land(&mut self, chunk: u32) {
            let sequence = self.landed.len() as u64;
            let block = block(sequence, chunk);
            self.landed.push(block);
            self.needs.push(self.touches.clone());
            self.tell(Event::Landed(block, vec![Entry::Block(block)]));
        }

        fn complete_record(&mut self) {
            if let Some(entries) = self.record_wish.take() {
                self.recorded.extend(entries);
                self.tell(Event::Recorded);
            }
        }

        fn complete_sync(&mut self, choice: usize) {
            if self.syncs.is_empty() {
                return;
            }
            let (part, landed, recorded, touches) = self.syncs.remove(choice % self.syncs.len());
            match part {
                SyncTarget::Index => self.safe_entries = recorded,
                SyncTarget::Chunk(chunk) => {
                    let covered = self.landed[..landed].iter().filter(|b| b.chunk == chunk);
                    self.safe_data.extend(covered.map(|block| block.sequence));
                }
                SyncTarget::Root | SyncTarget::Directory | SyncTarget::Side => {
                    self.safe_touches.insert(part, touches);
                }
            }
            self.tell(Event::Synced(part, Tai(1)));
        }

        fn drain(&mut self) {
            for _ in 0..1000 {
                self.complete_record();
                self.complete_sync(0);
            }
        }
    }

    fn block(sequence: u64, chunk: u32) -> Landed {
        Landed {
            sequence,
            offset: 0,
            chunk,
            bytes: 4096,
            crc: 0,
            frames: 1,
            present: 1,
            invalid: 0,
            first: 0,
            time: None,
            seen: Tai(0),
        }
    }

    #[test]
    fn a_round_that_has_only_a_mark_to_write_syncs_nothing_until_the_end() {
        let mut environment = Environment::default();
        environment.land(0);
        environment.tell(Event::Due);
        environment.drain();
        assert_eq!(environment.published, [0]);
        environment.tell(Event::Due);
        environment.complete_record();
        assert!(matches!(environment.recorded.last(), Some(Entry::Mark { blocks: 1, .. })));
        assert!(environment.syncs.is_empty() && !environment.journal.in_round());
        assert!(!environment.journal.has_news(), "nobody waits for more");
        environment.tell(Event::Finish);
        assert_eq!(environment.syncs, [], "there is nothing to write but what is there");
        environment.drain();
        assert!(environment.closed);
        assert_eq!(environment.safe_entries, environment.recorded.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_published_before_data_record_and_sync_completed_in_that_order(
            happenings in prop::collection::vec((0..9u8, any::<u16>()), 0..120)
        ) {
            let mut environment = Environment::default();
            let mut finished = false;
            for (what, choice) in happenings {
                match what {
                    0..=2 if !finished => environment.land(u32::from(choice % 3)),
                    3 => environment.tell(Event::Due),
                    4 => environment.complete_record(),
                    5 | 6 => environment.complete_sync(choice.into()),
                    7 if !environment.closed => {
                        let part = [SyncTarget::Root, SyncTarget::Directory, SyncTarget::Side][usize::from(choice % 3)];
                        *environment.touches.entry(part).or_default() += 1;
                        environment.tell(Event::Touched(part));
                    }
                    8 if choice % 8 == 0 && !finished => {
                        finished = true;
                        environment.tell(Event::Finish);
                    }
                    _ => {}
                }
            }
            if !finished {
                environment.tell(Event::Finish);
            }
            environment.drain();
            prop_assert!(environment.closed, "never closed: {:?}", environment.journal);
            let all: Vec<u64> = (0..environment.landed.len() as u64).collect();
            prop_assert_eq!(&environment.published, &all, "every block is published once, in order");
            let marked = environment.recorded.iter().rev().find_map(|entry| match entry {
                Entry::Mark { blocks, .. } => Some(*blocks),
                _ => None,
            });
            prop_assert_eq!(marked.unwrap_or(0), all.len() as u64, "the last mark covers everything");
            prop_assert_eq!(environment.safe_entries, environment.recorded.len());
        }

        #[test]
        fn after_a_failure_every_block_is_published_or_suspect(
            happenings in prop::collection::vec((0..6u8, any::<u16>()), 0..60), fail_at in 0..60usize
        ) {
            let mut environment = Environment::default();
            for (step, (what, choice)) in happenings.into_iter().enumerate() {
                if step == fail_at {
                    environment.failed = true;
                    environment.tell(Event::Failed);
                    environment.record_wish = None;
                    environment.syncs.clear();
                }
                match what {
                    0..=2 => environment.land(u32::from(choice % 3)),
                    3 => environment.tell(Event::Due),
                    4 => environment.complete_record(),
                    _ => environment.complete_sync(choice.into()),
                }
            }
            environment.tell(Event::Finish);
            environment.drain();
            prop_assert!(environment.closed);
            let mut told = [&environment.published[..], &environment.suspect[..]].concat();
            told.sort_unstable();
            let all: Vec<u64> = (0..environment.landed.len() as u64).collect();
            prop_assert_eq!(told, all);
        }
    }
}
