//! How far a scan has come: a pure machine that says when it may be sealed.
//!
//! ```text
//! Recording ──close──► Draining ──all streams ended, all members finished──► Sealed
//! ```
//!
//! Streams end in any order, members finish in any order, streams may be discovered late and members
//! may be lost at any moment. The scan is sealed once, after the last of all that was awaited.

use std::collections::BTreeSet;

/// What happens to a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No frame that comes from now on belongs to it: the capture threads are told.
    Close,
    /// A capture thread was told, and has named every stream it will hand on of it.
    Closed,
    /// A stream was discovered.
    Opened(u16),
    /// A stream has handed on its last block, and every member was told.
    Ended(u16),
    /// Nothing came of a stream.
    Silent(u16),
    /// All that a member has of a stream is durable.
    Finished {
        /// Place in the disk set.
        member: usize,
        /// Place in the manifest.
        stream: u16,
    },
    /// A member's writer has gone and will answer nothing more.
    MemberGone(usize),
    /// The capture threads have ended: of streams that have not ended, nothing will be heard.
    CaptureGone,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the account and the final manifest. Asked for once.
    Seal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Recording,
    Draining,
    Sealed,
}

/// One scan.
#[derive(Debug)]
pub struct Lifecycle {
    phase: Phase,
    /// Capture threads that may still name a stream.
    captures: usize,
    /// Members there were at first.
    members_begun: usize,
    /// Whether a capture thread ended before it had said what became of its streams.
    lost: bool,
    members: BTreeSet<usize>,
    /// Streams that have not ended.
    running: BTreeSet<u16>,
    /// Streams that have ended.
    ended: BTreeSet<u16>,
    /// Streams that members have finished. A writer's word may come before the capture thread's.
    finished: BTreeSet<(u16, usize)>,
}

impl Lifecycle {
    /// A scan of these streams on so many members, received by so many capture threads.
    pub fn new(streams: impl IntoIterator<Item = u16>, members: usize, captures: usize) -> Self {
        Self {
            phase: Phase::Recording,
            captures,
            members_begun: members,
            lost: false,
            members: (0..members).collect(),
            running: streams.into_iter().collect(),
            ended: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }

    /// Takes an event.
    pub fn step(&mut self, event: Event) -> Option<Action> {
        match (self.phase, event) {
            (Phase::Sealed, _) => return None,
            (Phase::Recording, Event::Close) => self.phase = Phase::Draining,
            // Asking twice is harmless.
            (Phase::Draining, Event::Close) => {}
            (_, Event::Opened(stream)) => {
                if !self.ended.contains(&stream) {
                    self.running.insert(stream);
                }
            }
            (_, Event::Silent(stream)) => {
                self.running.remove(&stream);
            }
            (_, Event::Ended(stream)) => {
                self.running.remove(&stream);
                self.ended.insert(stream);
            }
            (_, Event::Finished { member, stream }) => {
                self.finished.insert((stream, member));
            }
            (_, Event::MemberGone(member)) => {
                self.members.remove(&member);
            }
            (_, Event::Closed) => self.captures = self.captures.saturating_sub(1),
            (_, Event::CaptureGone) => {
                self.lost |= self.captures > 0 || !self.running.is_empty();
                self.captures = 0;
                self.running.clear();
            }
        }
        self.seal_if_done()
    }

    fn seal_if_done(&mut self) -> Option<Action> {
        let mut awaited =
            self.ended.iter().flat_map(|&stream| self.members.iter().map(move |&m| (stream, m)));
        let finished = awaited.all(|both| self.finished.contains(&both));
        let named = self.captures == 0 && self.running.is_empty();
        if self.phase == Phase::Draining && named && finished {
            self.phase = Phase::Sealed;
            return Some(Action::Seal);
        }
        None
    }

    /// Whether all that was awaited came: of every stream its end, and that each member has all of it.
    pub fn is_whole(&self) -> bool {
        let all =
            self.ended.iter().flat_map(|&stream| (0..self.members_begun).map(move |m| (stream, m)));
        !self.lost && all.into_iter().all(|both| self.finished.contains(&both))
    }

    /// Members that have not said of every stream that ended that all of it is durable.
    pub fn members_awaited(&self) -> impl Iterator<Item = usize> {
        let lacks = |member: &usize| {
            self.ended.iter().any(|&stream| !self.finished.contains(&(stream, *member)))
        };
        self.members.iter().copied().filter(lacks)
    }

    /// Whether it has been sealed.
    pub fn is_sealed(&self) -> bool {
        self.phase == Phase::Sealed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything that must happen to a scan of some streams on some members, with what has to come first.
    fn history(streams: u16, members: usize, silent: u16) -> Vec<(Event, Option<Event>)> {
        let mut events = vec![(Event::Close, None), (Event::Closed, Some(Event::Close))];
        for stream in 0..streams {
            if stream < silent {
                events.push((Event::Silent(stream), None));
                continue;
            }
            events.push((Event::Ended(stream), Some(Event::Close)));
            let finished = |member| Event::Finished { member, stream };
            events.extend((0..members).map(|m| (finished(m), None)));
        }
        events
    }

    #[test]
    fn a_scan_of_which_a_thread_was_lost_is_not_whole() {
        let ended = |events: &[Event]| {
            let mut scan = Lifecycle::new(0..1, 1, 1);
            events.iter().for_each(|event| {
                scan.step(*event);
            });
            assert!(scan.is_sealed(), "{events:?}");
            scan.is_whole()
        };
        let finished = Event::Finished { member: 0, stream: 0 };
        let all = [Event::Close, Event::Closed, Event::Ended(0), finished, Event::CaptureGone];
        assert!(ended(&all));
        assert!(ended(&[Event::Close, Event::Silent(0), Event::Closed, Event::CaptureGone]));
        assert!(!ended(&[Event::Close, Event::CaptureGone]), "a capture thread failed");
        assert!(!ended(&[Event::Close, Event::Closed, Event::CaptureGone]), "while it drained");
        assert!(
            !ended(&[Event::Close, Event::Closed, Event::Ended(0), Event::MemberGone(0)]),
            "a writer failed"
        );
    }

    proptest! {
        #[test]
        fn the_scan_is_sealed_once_and_only_after_everything_awaited(
            streams in 1u16..6, members in 1usize..4, silent in 0u16..3,
            gone in prop::option::of(0usize..4), order in prop::collection::vec(any::<prop::sample::Index>(), 64)
        ) {
            let silent = silent.min(streams);
            let mut scan = Lifecycle::new(0..streams, members, 1);
            let mut left = history(streams, members, silent);
            if let Some(member) = gone.filter(|&member| member < members) {
                // Its reports may or may not come before it goes; afterwards none will.
                left.push((Event::MemberGone(member), None));
            }
            let mut seals = 0;
            let mut done: Vec<Event> = Vec::new();
            for pick in order.iter().cycle().take(1000) {
                let lost = |event: &Event| matches!(event, Event::Finished { member, .. }
                    if done.contains(&Event::MemberGone(*member)));
                left.retain(|(event, _)| !lost(event));
                let ready: Vec<usize> = (0..left.len())
                    .filter(|&n| left[n].1.is_none_or(|first| done.contains(&first)))
                    .collect();
                if ready.is_empty() { break; }
                let (event, _) = left.remove(ready[pick.index(ready.len())]);
                done.push(event);
                if scan.step(event) == Some(Action::Seal) {
                    seals += 1;
                    let awaited = left.iter().any(|(event, _)| !matches!(event, Event::MemberGone(_))
                        && !matches!(event, Event::Finished { member, .. }
                            if done.contains(&Event::MemberGone(*member))));
                    prop_assert!(!awaited, "sealed before {:?}", left);
                }
            }
            prop_assert_eq!(seals, 1);
            prop_assert!(scan.is_sealed());
        }
    }

    #[test]
    fn a_stream_discovered_late_is_waited_for() {
        let mut scan = Lifecycle::new([], 1, 1);
        assert_eq!(scan.step(Event::Close), None, "a stream may still be named");
        scan.step(Event::Opened(1));
        scan.step(Event::Closed);
        scan.step(Event::Ended(1));
        assert_eq!(scan.step(Event::Finished { member: 0, stream: 1 }), Some(Action::Seal));
    }
}
