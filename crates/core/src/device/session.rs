//! One session of writing or reading chunks: a pure state machine, and its status.
//!
//! ```text
//! Moving ──last chunk, source ended, stop──► Draining ──all held is written──► Closed, or Flushing
//!    └──────────────── abort ─────────────► Dropping ──none is held─────────► Flushing ──► Closed
//! ```
//!
//! *Stop* writes the held bytes; the rest stays in the source until a flush is requested. *Abort* drops the held bytes
//! and then flushes. After either, the status has the address of the last chunk that was written.

use serde::Serialize;

use super::address::{AddressError, Span};

/// The direction of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a source to the medium.
    Write,
    /// From the medium to a sink.
    Read,
}

/// The reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All requested bytes are written.
    Complete,
    /// The source ended early.
    Early,
    /// The session was stopped.
    Stopped,
    /// The session was aborted.
    Aborted,
    /// The medium failed.
    Failed,
}

impl End {
    /// The word for it in a status; none for a complete session.
    fn word(self) -> Option<Word> {
        match self {
            End::Complete => None,
            End::Early => Some(Word::EarlyEnd),
            End::Stopped => Some(Word::Stopped),
            End::Aborted => Some(Word::Aborted),
            End::Failed => Some(Word::Failed),
        }
    }
}

/// An input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This many bytes were taken from the source, and are held.
    Taken(u64),
    /// This many of the held bytes are written, in order.
    Written(u64),
    /// This many of the held bytes will not be written.
    Dropped(u64),
    /// The source has no more data.
    SourceEnded,
    /// Request: write the held bytes, then end.
    Stop,
    /// Request: end now.
    Abort,
    /// The medium accepts no more data.
    Failed,
    /// Request: take the rest of the source, and drop it.
    Flush,
    /// This many bytes of the source were taken and dropped.
    Flushed(u64),
    /// The source has no more bytes to flush.
    Dry,
}

/// An output of the state machine. Each action is requested once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take no more data; write the held bytes.
    Drain,
    /// Take no more data; drop the held bytes that are not being written yet.
    Drop,
    /// Take the rest of the source, and drop it.
    Flush,
    /// Nothing is left to do.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Moving,
    Draining(End),
    Dropping(End),
    Flushing(End),
    Closed(End),
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    direction: Direction,
    span: Span,
    /// The number of bytes that completes the session.
    wanted: u64,
    /// The end reason if the source ends.
    source_ended: End,
    phase: Phase,
    /// True if the session flushes after its last chunk is written.
    flush_after: bool,
    held: u64,
    taken: u64,
    written: u64,
    dropped: u64,
    flushed: u64,
    flush: Option<bool>,
}

/// A word of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Bytes are moving.
    InProgress,
    /// The transfer is over.
    Finished,
    /// The source ended before the last requested byte.
    EarlyEnd,
    /// The session was stopped.
    Stopped,
    /// The session was aborted.
    Aborted,
    /// The medium failed.
    Failed,
    /// The rest of the source is being dropped.
    FlushInProgress,
    /// The rest of the source was dropped.
    FlushFinished,
    /// The data read differs from the data written.
    DataError,
}

impl Word {
    /// Returns the word as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Word::InProgress => "in-progress",
            Word::Finished => "finished",
            Word::EarlyEnd => "early-end",
            Word::Stopped => "stopped",
            Word::Aborted => "aborted",
            Word::Failed => "failed",
            Word::FlushInProgress => "flush-in-progress",
            Word::FlushFinished => "flush-finished",
            Word::DataError => "data-error",
        }
    }
}

/// The status of a session: the write status, or the read status, of the hardware recorders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The direction.
    pub direction: Direction,
    /// The words that apply.
    pub words: Vec<Word>,
    /// The name of the error, if its addresses were refused.
    pub error: Option<&'static str>,
    /// Address of the first chunk.
    pub address_first: Option<u64>,
    /// Address of the last chunk.
    pub address_last: Option<u64>,
    /// Address of the last chunk that was written or read, captured when it ended.
    pub captured_last: Option<u64>,
    /// Bytes written or read.
    pub bytes: u64,
    /// Held bytes that were dropped.
    pub dropped_bytes: u64,
    /// Bytes of the rest of the source that were dropped.
    pub flushed_bytes: u64,
}

impl Status {
    /// Returns the status of a session whose addresses were refused.
    pub fn refused(direction: Direction, error: &AddressError) -> Self {
        Self {
            direction,
            words: vec![],
            error: Some(error.name()),
            address_first: None,
            address_last: None,
            captured_last: None,
            bytes: 0,
            dropped_bytes: 0,
            flushed_bytes: 0,
        }
    }

    /// Returns the status of a session that has ended with this many bytes.
    pub fn ended(direction: Direction, span: Span, end: End, bytes: u64) -> Self {
        let mut words = vec![Word::Finished];
        words.extend(end.word());
        Self {
            direction,
            words,
            error: None,
            address_first: Some(span.first()),
            address_last: Some(span.last()),
            captured_last: span.last_of(bytes),
            bytes,
            dropped_bytes: 0,
            flushed_bytes: 0,
        }
    }

    /// True if a word applies.
    pub fn has(&self, word: Word) -> bool {
        self.words.contains(&word)
    }
}

impl Session {
    /// Returns a session over these chunks, of `bytes` bytes or of all bytes of the chunks.
    pub fn new(direction: Direction, span: Span, bytes: Option<u64>, flush_after: bool) -> Self {
        Self {
            direction,
            span,
            wanted: bytes.unwrap_or(u64::MAX).min(span.bytes()),
            source_ended: End::Early,
            phase: Phase::Moving,
            flush_after,
            held: 0,
            taken: 0,
            written: 0,
            dropped: 0,
            flushed: 0,
            flush: None,
        }
    }

    /// Makes the end of the source the complete end of the session, so that it does not end early.
    pub fn as_long_as_the_source(self) -> Self {
        Self { source_ended: End::Complete, ..self }
    }

    /// Returns the chunks of the session.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the number of bytes that may still be taken.
    pub fn room(&self) -> u64 {
        match self.phase {
            Phase::Moving => self.wanted - self.taken,
            _ => 0,
        }
    }

    /// Returns the number of bytes written, in order from the start.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the end reason, once the session has ended.
    pub fn end(&self) -> Option<End> {
        match self.phase {
            Phase::Closed(end) => Some(end),
            _ => None,
        }
    }

    /// Processes an event; returns the next action.
    pub fn step(&mut self, event: Event) -> Option<Action> {
        match (self.phase, event) {
            (Phase::Moving, Event::Taken(bytes)) => {
                self.taken += bytes;
                self.held += bytes;
                assert!(self.taken <= self.wanted, "more was taken than there is room for");
                if self.taken < self.wanted {
                    return None;
                }
                self.drain(End::Complete)
            }
            // Nothing was requested: an empty scan has been read completely.
            (Phase::Moving, Event::SourceEnded) if self.wanted == 0 => self.drain(End::Complete),
            (Phase::Moving, Event::SourceEnded) => self.drain(self.source_ended),
            (Phase::Moving, Event::Stop) => self.drain(End::Stopped),
            (Phase::Moving | Phase::Draining(_), Event::Abort) => self.drop_held(End::Aborted),
            (Phase::Moving | Phase::Draining(_), Event::Failed) => self.drop_held(End::Failed),
            (_, Event::Written(bytes)) => {
                self.let_go(bytes);
                self.written += bytes;
                self.go_on()
            }
            (_, Event::Dropped(bytes)) => {
                self.let_go(bytes);
                self.dropped += bytes;
                self.go_on()
            }
            (Phase::Closed(end), Event::Flush) if self.flush.is_none() => self.flush(end),
            (Phase::Flushing(_), Event::Flushed(bytes)) => {
                self.flushed += bytes;
                None
            }
            // A request to end while the rest is being flushed cuts the flush short.
            (Phase::Flushing(end), Event::Dry | Event::Stop | Event::Abort | Event::Failed) => {
                self.flush = Some(true);
                self.phase = Phase::Closed(end);
                Some(Action::Close)
            }
            (Phase::Dropping(_), Event::Failed) => {
                self.phase = Phase::Dropping(End::Failed);
                None
            }
            // A repeated request is harmless. So is the end of a source that is no longer read.
            (
                Phase::Draining(_) | Phase::Dropping(_) | Phase::Flushing(_) | Phase::Closed(_),
                Event::SourceEnded | Event::Stop | Event::Abort | Event::Failed,
            ) => None,
            (_, Event::Flush) => {
                self.flush_after = true;
                None
            }
            (_, Event::Dry) => None,
            (
                Phase::Draining(_) | Phase::Dropping(_) | Phase::Flushing(_) | Phase::Closed(_),
                Event::Taken(_),
            )
            | (
                Phase::Moving | Phase::Draining(_) | Phase::Dropping(_) | Phase::Closed(_),
                Event::Flushed(_),
            ) => unreachable!("{event:?} cannot happen while {:?}", self.phase),
        }
    }

    fn let_go(&mut self, bytes: u64) {
        self.held = self.held.checked_sub(bytes).expect("only what is held is written or dropped");
    }

    fn drain(&mut self, end: End) -> Option<Action> {
        self.phase = Phase::Draining(end);
        // If a source ends at once, no bytes are held.
        self.go_on().or(Some(Action::Drain))
    }

    fn drop_held(&mut self, end: End) -> Option<Action> {
        self.phase = Phase::Dropping(end);
        self.go_on().or(Some(Action::Drop))
    }

    fn flush(&mut self, end: End) -> Option<Action> {
        self.flush = Some(false);
        self.phase = Phase::Flushing(end);
        Some(Action::Flush)
    }

    /// When no more bytes are held: flushes, or ends.
    fn go_on(&mut self) -> Option<Action> {
        let end = match self.phase {
            Phase::Draining(end) | Phase::Dropping(end) if self.held == 0 => end,
            _ => return None,
        };
        let wanted = self.flush_after && matches!(end, End::Complete | End::Stopped);
        if end == End::Aborted || wanted {
            return self.flush(end);
        }
        self.phase = Phase::Closed(end);
        Some(Action::Close)
    }

    /// Returns the current status.
    pub fn status(&self) -> Status {
        let mut words = Vec::new();
        let end = match self.phase {
            Phase::Moving => {
                words.push(Word::InProgress);
                None
            }
            Phase::Draining(end) | Phase::Dropping(end) => {
                words.push(Word::InProgress);
                Some(end)
            }
            Phase::Flushing(end) | Phase::Closed(end) => {
                words.push(Word::Finished);
                Some(end)
            }
        };
        words.extend(end.and_then(End::word));
        words.extend(self.flush.map(|done| match done {
            false => Word::FlushInProgress,
            true => Word::FlushFinished,
        }));
        Status {
            direction: self.direction,
            words,
            error: None,
            address_first: Some(self.span.first()),
            address_last: Some(self.span.last()),
            captured_last: self.span.last_of(self.written),
            bytes: self.written,
            dropped_bytes: self.dropped,
            flushed_bytes: self.flushed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 128 << 10;

    fn session(chunks: u64, flush_after: bool) -> Session {
        let span = Span::new(Some(CHUNK), Some(chunks * CHUNK), CHUNK as u32, 1 << 30).unwrap();
        Session::new(Direction::Write, span, None, flush_after)
    }

    #[test]
    fn a_session_that_is_full_is_finished_and_its_last_address_captured() {
        let mut it = session(2, false);
        assert_eq!(it.step(Event::Taken(CHUNK)), None);
        assert_eq!(it.step(Event::Taken(CHUNK)), Some(Action::Drain));
        assert_eq!((it.room(), it.status().words), (0, vec![Word::InProgress]));
        assert_eq!(it.step(Event::Written(CHUNK)), None);
        assert_eq!(it.step(Event::Written(CHUNK)), Some(Action::Close));
        let status = it.status();
        assert_eq!((status.words, status.captured_last), (vec![Word::Finished], Some(2 * CHUNK)));
    }

    #[test]
    fn a_source_that_ends_early_is_told_as_such() {
        let mut it = session(2, true);
        it.step(Event::Taken(1000));
        assert_eq!(it.step(Event::SourceEnded), Some(Action::Drain));
        assert_eq!(it.step(Event::Written(1000)), Some(Action::Close));
        let status = it.status();
        assert_eq!(status.words, [Word::Finished, Word::EarlyEnd]);
        assert_eq!((status.bytes, status.captured_last), (1000, Some(CHUNK)));
        let mut nothing = session(2, false);
        assert_eq!(nothing.step(Event::SourceEnded), Some(Action::Close));
        assert_eq!(nothing.status().captured_last, None);
    }

    #[test]
    fn a_scan_without_bytes_is_read_completely() {
        let span = session(2, false).span();
        let mut it = Session::new(Direction::Read, span, Some(0), false);
        assert_eq!(it.step(Event::SourceEnded), Some(Action::Close));
        assert_eq!(it.status().words, [Word::Finished]);
    }

    #[test]
    fn a_session_as_long_as_its_source_is_complete_when_that_ends() {
        let mut it = session(2, false).as_long_as_the_source();
        it.step(Event::Taken(1000));
        assert_eq!(it.step(Event::SourceEnded), Some(Action::Drain));
        assert_eq!(it.step(Event::Written(1000)), Some(Action::Close));
        assert_eq!((it.end(), it.status().words), (Some(End::Complete), vec![Word::Finished]));
    }

    #[test]
    fn a_stop_finishes_what_is_held_and_flushes_when_told_to() {
        let mut it = session(8, false);
        it.step(Event::Taken(3 * CHUNK));
        assert_eq!(it.step(Event::Stop), Some(Action::Drain));
        assert_eq!(it.step(Event::Stop), None, "asking twice is harmless");
        assert_eq!(it.step(Event::Written(3 * CHUNK)), Some(Action::Close));
        assert_eq!(it.status().words, [Word::Finished, Word::Stopped]);
        assert_eq!(it.step(Event::Flush), Some(Action::Flush));
        assert!(it.status().has(Word::FlushInProgress));
        it.step(Event::Flushed(5 * CHUNK));
        assert_eq!(it.step(Event::Dry), Some(Action::Close));
        let status = it.status();
        assert_eq!(status.words, [Word::Finished, Word::Stopped, Word::FlushFinished]);
        assert_eq!((status.flushed_bytes, status.captured_last), (5 * CHUNK, Some(3 * CHUNK)));
    }

    #[test]
    fn an_abort_drops_what_is_held_and_flushes_by_itself() {
        let mut it = session(8, false);
        it.step(Event::Taken(3 * CHUNK));
        assert_eq!(it.step(Event::Abort), Some(Action::Drop));
        assert_eq!(it.step(Event::Written(CHUNK)), None);
        assert_eq!(it.step(Event::Dropped(2 * CHUNK)), Some(Action::Flush));
        assert_eq!(it.step(Event::Dry), Some(Action::Close));
        let status = it.status();
        assert_eq!(status.words, [Word::Finished, Word::Aborted, Word::FlushFinished]);
        assert_eq!((status.dropped_bytes, status.captured_last), (2 * CHUNK, Some(CHUNK)));
    }

    #[test]
    fn a_flush_that_was_asked_for_beforehand_follows_the_last_chunk() {
        let mut it = session(1, true);
        assert_eq!(it.step(Event::Taken(CHUNK)), Some(Action::Drain));
        assert_eq!(it.step(Event::Written(CHUNK)), Some(Action::Flush));
        assert_eq!(
            it.step(Event::Abort),
            Some(Action::Close),
            "no source is waited for without end"
        );
    }

    proptest! {
        /// The environment chooses the order of events: source, medium, stop, abort and flush.
        #[test]
        fn whatever_happens_it_ends_and_every_byte_is_accounted_for(
            steps in proptest::collection::vec((0u8..8, 1u64..(2 * CHUNK)), 0..200),
            flush_after in any::<bool>(),
        ) {
            let mut it = session(16, flush_after);
            let (mut held, mut flushing) = (0u64, false);
            let mut drive = |it: &mut Session, what: u8, bytes: u64, held: &mut u64| {
                let event = match what {
                    0..=2 if it.room() > 0 => {
                        let bytes = bytes.min(it.room());
                        *held += bytes;
                        Event::Taken(bytes)
                    }
                    3 if *held > 0 => {
                        let bytes = bytes.min(*held);
                        *held -= bytes;
                        Event::Written(bytes)
                    }
                    4 => Event::SourceEnded,
                    5 => Event::Stop,
                    6 if bytes.is_multiple_of(4) => Event::Abort,
                    7 if flushing => Event::Flushed(bytes),
                    7 if bytes.is_multiple_of(2) => Event::Flush,
                    _ => return,
                };
                match it.step(event) {
                    Some(Action::Flush) => flushing = true,
                    Some(Action::Close) => flushing = false,
                    Some(Action::Drain | Action::Drop) | None => {}
                }
            };
            for (what, bytes) in steps {
                drive(&mut it, what, bytes, &mut held);
            }
            // Finally the source ends, the medium writes, and nothing remains to be flushed.
            drive(&mut it, 4, 0, &mut held);
            while held > 0 {
                drive(&mut it, 3, u64::MAX, &mut held);
            }
            if flushing {
                prop_assert_eq!(it.step(Event::Dry), Some(Action::Close));
            }
            prop_assert!(it.end().is_some(), "{:?}", it);
            let status = it.status();
            prop_assert!(status.has(Word::Finished) && !status.has(Word::InProgress));
            prop_assert_eq!(it.taken, status.bytes + status.dropped_bytes);
            prop_assert_eq!(status.captured_last, it.span().last_of(status.bytes));
            prop_assert!(status.bytes <= it.span().bytes());
        }
    }
}
