//! Lifecycle of a scan: a pure state machine that decides when the scan may be sealed.
//!
//! ```text
//! Recording ──close──► Draining ──all streams ended, all members finished──► Sealed
//! ```
//!
//! Streams end in any order and members finish in any order. A stream may be discovered late, and a member may fail at
//! any moment. The scan is sealed once, after the last awaited event.

use std::collections::BTreeSet;

/// An event of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The scan closes: the capture threads are ordered to assign later frames to the next scan.
    Close,
    /// A capture thread received the order and has named all of its streams in this scan.
    Closed,
    /// A stream was discovered.
    Opened(u16),
    /// A stream has sent its last block, and every member has the end of the stream in its queue.
    Ended(u16),
    /// No packet of a stream arrived.
    Silent(u16),
    /// All data that a member has of a stream is durable.
    Finished {
        /// The member's place in the disk set.
        member: usize,
        /// The stream's place in the manifest.
        stream: u16,
    },
    /// A member's writer has ended and sends no more events.
    MemberGone(usize),
    /// The capture threads have ended. Streams that have not ended send no more events.
    CaptureGone,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the account and the final manifest. Returned once.
    Seal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Recording,
    Draining,
    Sealed,
}

/// The state of one scan.
#[derive(Debug)]
pub struct Lifecycle {
    phase: Phase,
    /// The number of capture threads that may still name a stream.
    captures: usize,
    /// The number of members at the start.
    members_begun: usize,
    /// True if a capture thread ended before it reported all of its streams.
    lost: bool,
    members: BTreeSet<usize>,
    /// Streams that have not ended.
    running: BTreeSet<u16>,
    /// Streams that have ended.
    ended: BTreeSet<u16>,
    /// Pairs of a stream and a member that has finished it. A writer's event may arrive before that of the capture
    /// thread.
    finished: BTreeSet<(u16, usize)>,
}

impl Lifecycle {
    /// A scan of these streams on `members` members, received by `captures` capture threads.
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

    /// Processes an event.
    pub fn step(&mut self, event: Event) -> Option<Action> {
        match (self.phase, event) {
            (Phase::Sealed, _) => return None,
            (Phase::Recording, Event::Close) => self.phase = Phase::Draining,
            // A second close has no effect.
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

    /// True if all awaited events arrived: the end of each stream, and from each member that all of the stream is
    /// durable.
    pub fn is_whole(&self) -> bool {
        let all =
            self.ended.iter().flat_map(|&stream| (0..self.members_begun).map(move |m| (stream, m)));
        !self.lost && all.into_iter().all(|both| self.finished.contains(&both))
    }

    /// True if a member has not reported an ended stream as durable.
    pub fn is_awaited(&self, stream: u16) -> bool {
        let lacks = |&member: &usize| !self.finished.contains(&(stream, member));
        self.ended.contains(&stream) && self.members.iter().any(lacks)
    }

    /// Members that have not reported every ended stream as durable.
    pub fn members_awaited(&self) -> impl Iterator<Item = usize> {
        let lacks = |member: &usize| {
            self.ended.iter().any(|&stream| !self.finished.contains(&(stream, *member)))
        };
        self.members.iter().copied().filter(lacks)
    }

    /// True if the scan is sealed.
    pub fn is_sealed(&self) -> bool {
        self.phase == Phase::Sealed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all events that a scan of these streams on these members needs, each with the event that must precede
    /// it.
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
                // The member's reports may arrive before it ends, and none arrives afterwards.
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

    /// The events of one sender, in order. Events of other senders may come in between.
    type Actor = std::collections::VecDeque<Event>;

    /// The events that each participant sends, in order.
    fn actors(streams: u16, found: u16, members: usize, captures: u16, silent: u16) -> Vec<Actor> {
        let all = streams + found;
        let of_capture = |capture: u16| {
            let own = move |stream: &u16| stream % captures == capture;
            let found = (streams..all).filter(own).map(Event::Opened);
            let ends = (0..all).filter(own).map(move |stream| match stream < silent {
                true => Event::Silent(stream),
                false => Event::Ended(stream),
            });
            // A stream is named before the thread reports that it has named all, and may end long after.
            let mut said: Actor = found.collect();
            said.push_back(Event::Closed);
            said.extend(ends);
            said
        };
        let of_member = move |member: usize| -> Actor {
            (silent.min(all)..all).map(|stream| Event::Finished { member, stream }).collect()
        };
        let mut actors: Vec<Actor> = vec![Actor::from([Event::Close])];
        actors.extend((0..captures).map(of_capture));
        actors.extend((0..members).map(of_member));
        actors
    }

    /// A second, independent model of the events that a scan waits for.
    #[derive(Default)]
    struct Awaited {
        closed: bool,
        capture_gone: bool,
        lost: bool,
        named: u16,
        open: BTreeSet<u16>,
        ended: BTreeSet<u16>,
        finished: BTreeSet<(usize, u16)>,
        gone: BTreeSet<usize>,
    }

    impl Awaited {
        fn take(&mut self, event: Event, captures: u16) {
            match event {
                Event::Close => self.closed = true,
                Event::Closed => self.named += 1,
                Event::Opened(stream) => {
                    self.open.insert(stream);
                }
                Event::Ended(stream) => {
                    self.open.remove(&stream);
                    self.ended.insert(stream);
                }
                Event::Silent(stream) => {
                    self.open.remove(&stream);
                }
                Event::Finished { member, stream } => {
                    self.finished.insert((member, stream));
                }
                Event::MemberGone(member) => {
                    self.gone.insert(member);
                }
                Event::CaptureGone => {
                    self.capture_gone = true;
                    self.lost = self.named < captures || !self.open.is_empty();
                }
            }
        }

        fn lacks(&self, member: usize) -> bool {
            self.ended.iter().any(|stream| !self.finished.contains(&(member, *stream)))
        }

        fn nothing_more(&self, members: usize, captures: u16) -> bool {
            let captured = self.capture_gone || (self.named == captures && self.open.is_empty());
            let durable = (0..members).all(|it| self.gone.contains(&it) || !self.lacks(it));
            self.closed && captured && durable
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_scan_is_sealed_the_moment_nothing_more_can_come_and_called_whole_only_if_all_came(
            streams in 0u16..4, found in 0u16..3, members in 1usize..4, captures in 1u16..4,
            silent in 0u16..4,
            capture_dies in prop::option::weighted(0.3, 0usize..30),
            writers_die in prop::collection::vec((0usize..4, 0usize..30), 0..3),
            order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let mut scan = Lifecycle::new(0..streams, members, usize::from(captures));
            let mut actors = actors(streams, found, members, captures, silent);
            let mut awaited = Awaited { open: (0..streams).collect(), ..Awaited::default() };
            let (mut seals, mut sealed_whole) = (0, None);
            for (turn, pick) in order.iter().cycle().take(400).enumerate() {
                let mut now: Vec<Event> = Vec::new();
                if capture_dies == Some(turn) {
                    // The remaining events of these threads never arrive.
                    actors[1..=usize::from(captures)].iter_mut().for_each(Actor::clear);
                    now.push(Event::CaptureGone);
                }
                for &(member, _) in writers_die.iter().filter(|(_, at)| *at == turn) {
                    let member = member % members;
                    actors[1 + usize::from(captures) + member].clear();
                    now.push(Event::MemberGone(member));
                }
                let ready: Vec<usize> = (0..actors.len()).filter(|&it| !actors[it].is_empty()).collect();
                if !ready.is_empty() {
                    now.extend(actors[ready[pick.index(ready.len())]].pop_front());
                }
                for event in now {
                    awaited.take(event, captures);
                    let action = scan.step(event);
                    let is_due = awaited.nothing_more(members, captures) && seals == 0;
                    prop_assert_eq!(action, is_due.then_some(Action::Seal), "at {:?}", event);
                    if is_due {
                        seals += 1;
                        let whole = !awaited.lost && (0..members).all(|it| !awaited.lacks(it));
                        sealed_whole = Some(whole);
                    }
                    let waits: Vec<usize> = scan.members_awaited().collect();
                    let lacking =
                        (0..members).filter(|it| !awaited.gone.contains(it) && awaited.lacks(*it));
                    prop_assert!(seals > 0 || waits == lacking.collect::<Vec<_>>());
                }
            }
            // When every participant has sent all of its events, or has ended, the scan is sealed or reported as not
            // whole.
            prop_assert_eq!(seals, 1);
            prop_assert_eq!(Some(scan.is_whole()), sealed_whole);
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
