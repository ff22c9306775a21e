//! The facts of an account beside its balance, as the index of a device stores them.
//!
//! Each scan has an entry of a fixed size. Facts of which a scan has any number (its plan, the time range of its data,
//! the presence of its stream and of each thread) follow the entries of all scans, 24 bytes each, in the order of the
//! scans:
//!
//! ```text
//! head │ scan 0 │ scan 1 │ scan 2 │ facts of scan 0 │ facts of scan 1 │ facts of scan 2 │ zeros
//! ```

use zerocopy::little_endian::{I64, U16};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::account::{Account, CountedBy, Presence};
use crate::completeness::{Covered, OtherCounts, Planned, ThreadPresence};
use fullbore_time::Tai;

/// Bytes of a fact.
pub(super) const FACT_BYTES: usize = 24;

/// The most facts of one scan. Threads beyond them are counted and not named.
pub(super) const MOST_FACTS: usize = 64;

/// The value of an instant that was not planned.
const NO_TIME: i64 = i64::MIN;

/// The value of an unknown number of frames.
const NO_FRAMES: i64 = -1;

/// The layout of a fact on the device.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawFact {
    kind: u8,
    /// 0: a fact about the stream; 1: about one of its threads.
    of_thread: u8,
    station: U16,
    thread: U16,
    reserved: [u8; 2],
    a: I64,
    b: I64,
}

// Facts are found by their number, so the size must not change.
const _: () = assert!(size_of::<RawFact>() == FACT_BYTES);

/// The values of [`RawFact::kind`].
mod kind {
    pub const PLANNED: u8 = 1;
    pub const COVERED: u8 = 2;
    pub const RECEIVED: u8 = 3;
    pub const NEVER_CAME: u8 = 4;
    pub const ONLY_FOREIGN: u8 = 5;
    pub const ONLY_EXCLUDED: u8 = 6;
    pub const NOT_KNOWN: u8 = 7;
    pub const NOT_EXPECTED: u8 = 8;
    pub const CAME_LATE: u8 = 9;
    pub const WENT_EARLY: u8 = 10;
    pub const STARTED_LATE: u8 = 11;
    pub const DIED_EARLY: u8 = 12;
    pub const LACKS_BEGINNING: u8 = 13;
    pub const LACKS_END: u8 = 14;
}

/// The facts of an account beside the balance that the index stores, so that it describes a scan as its recorder did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extract {
    /// The number by which frames were counted; `None` if they were not counted.
    pub counted_by: Option<CountedBy>,
    /// Facts that the numbers alone cannot show.
    pub presence: Vec<Presence>,
    /// Number of threads that were not present all the time, beyond those that are named.
    pub unnamed_threads: u32,
    /// Facts beside the balance. The index does not store why frames were overrun: the ending of the scan tells it.
    pub beside: OtherCounts,
}

impl From<&Account> for Extract {
    fn from(account: &Account) -> Self {
        Self {
            counted_by: Some(account.counted_by),
            presence: account.presence.clone(),
            unnamed_threads: 0,
            beside: OtherCounts { why_overrun: None, ..OtherCounts::from(account) },
        }
    }
}

impl Extract {
    /// Returns the number of its facts.
    fn facts(&self) -> usize {
        let OtherCounts { covered, received, threads, .. } = &self.beside;
        let of_threads: usize = threads.iter().map(|thread| thread.presence.len()).sum();
        self.presence.len()
            + usize::from(covered.is_some())
            + usize::from(received.is_some())
            + of_threads
    }

    /// Drops the fact that is needed least: the name of a thread, which is still counted, then the time range.
    fn drop_least(&mut self) {
        let OtherCounts { covered, received, threads, .. } = &mut self.beside;
        if threads.pop().is_some() {
            self.unnamed_threads = self.unnamed_threads.saturating_add(1);
        } else if received.take().is_none() && covered.take().is_none() {
            self.presence.pop();
        }
    }
}

/// Returns the number of facts of a scan.
pub(super) fn count(planned: Option<&Planned>, extract: Option<&Extract>) -> usize {
    usize::from(planned.is_some()) + extract.map_or(0, Extract::facts)
}

/// Drops facts until there are no more than `most`.
pub(super) fn trim(planned: &mut Option<Planned>, extract: &mut Option<Extract>, most: usize) {
    while count(planned.as_ref(), extract.as_ref()) > most {
        match extract.as_mut().filter(|it| it.facts() > 0) {
            Some(extract) => extract.drop_least(),
            None => *planned = None,
        }
    }
}

/// Returns the facts of a scan in their layout on the device.
pub(super) fn encode(planned: Option<&Planned>, extract: Option<&Extract>) -> Vec<RawFact> {
    let mut facts = Vec::new();
    if let Some(Planned { begin, end }) = planned {
        let time = |time: &Option<Tai>| time.map_or(NO_TIME, |time| time.0);
        facts.push(RawFact::of(kind::PLANNED, time(begin), time(end)));
    }
    let Some(Extract { presence, beside, .. }) = extract else { return facts };
    facts.extend(presence.iter().map(RawFact::of_presence));
    let ranges = [(kind::COVERED, beside.covered), (kind::RECEIVED, beside.received)];
    let range = |(kind, range): (u8, Option<Covered>)| {
        let Covered { from, to } = range?;
        Some(RawFact::of(kind, from.0, to.0))
    };
    facts.extend(ranges.into_iter().filter_map(range));
    for ThreadPresence { station, thread, presence } in &beside.threads {
        let (station, thread) = ((*station).into(), (*thread).into());
        let of_thread = |fact| RawFact { of_thread: 1, station, thread, ..fact };
        facts.extend(presence.iter().map(RawFact::of_presence).map(of_thread));
    }
    facts
}

/// Adds facts on the device to the description of a scan.
pub(super) fn decode(
    facts: &[RawFact],
    planned: &mut Option<Planned>,
    extract: &mut Option<Extract>,
) -> Result<(), &'static str> {
    for fact in facts {
        let (a, b) = (fact.a.get(), fact.b.get());
        if fact.kind == kind::PLANNED {
            let time = |ns: i64| Some(ns).filter(|&ns| ns != NO_TIME).map(Tai);
            *planned = Some(Planned { begin: time(a), end: time(b) });
            continue;
        }
        let extract = extract.as_mut().ok_or("it has facts, but its frames were not counted")?;
        let range = Some(Covered { from: Tai(a), to: Tai(b) });
        match fact.kind {
            kind::COVERED => extract.beside.covered = range,
            kind::RECEIVED => extract.beside.received = range,
            _ => extract.add(fact, fact.presence().ok_or("a fact about it is invalid")?),
        }
    }
    Ok(())
}

impl Extract {
    /// Adds the presence of the stream or of one of its threads.
    fn add(&mut self, fact: &RawFact, presence: Presence) {
        if fact.of_thread == 0 {
            return self.presence.push(presence);
        }
        let (station, thread) = (fact.station.get(), fact.thread.get());
        let threads = &mut self.beside.threads;
        match threads.last_mut().filter(|it| (it.station, it.thread) == (station, thread)) {
            Some(same) => same.presence.push(presence),
            None => threads.push(ThreadPresence { station, thread, presence: vec![presence] }),
        }
    }
}

impl RawFact {
    fn of(kind: u8, a: i64, b: i64) -> Self {
        Self { kind, a: a.into(), b: b.into(), ..Self::new_zeroed() }
    }

    fn of_presence(presence: &Presence) -> Self {
        let frames = |frames: Option<u64>| frames.map_or(NO_FRAMES, u64::cast_signed);
        match *presence {
            Presence::NeverCame => Self::of(kind::NEVER_CAME, 0, 0),
            Presence::OnlyForeign { datagrams } => {
                Self::of(kind::ONLY_FOREIGN, datagrams.cast_signed(), 0)
            }
            Presence::OnlyExcluded { datagrams } => {
                Self::of(kind::ONLY_EXCLUDED, datagrams.cast_signed(), 0)
            }
            Presence::NotKnown => Self::of(kind::NOT_KNOWN, 0, 0),
            Presence::NotExpected => Self::of(kind::NOT_EXPECTED, 0, 0),
            Presence::CameLate { ns } => Self::of(kind::CAME_LATE, ns, 0),
            Presence::WentEarly { ns } => Self::of(kind::WENT_EARLY, ns, 0),
            Presence::StartedLate { ns } => Self::of(kind::STARTED_LATE, ns, 0),
            Presence::DiedEarly { ns } => Self::of(kind::DIED_EARLY, ns, 0),
            Presence::LacksBeginning { ns, frames: of } => {
                Self::of(kind::LACKS_BEGINNING, ns, frames(of))
            }
            Presence::LacksEnd { ns, frames: of } => Self::of(kind::LACKS_END, ns, frames(of)),
        }
    }

    /// The fact as a presence, if it is one.
    fn presence(&self) -> Option<Presence> {
        let (ns, datagrams) = (self.a.get(), self.a.get().cast_unsigned());
        let frames = Some(self.b.get()).filter(|&it| it != NO_FRAMES).map(i64::cast_unsigned);
        Some(match self.kind {
            kind::NEVER_CAME => Presence::NeverCame,
            kind::ONLY_FOREIGN => Presence::OnlyForeign { datagrams },
            kind::ONLY_EXCLUDED => Presence::OnlyExcluded { datagrams },
            kind::NOT_KNOWN => Presence::NotKnown,
            kind::NOT_EXPECTED => Presence::NotExpected,
            kind::CAME_LATE => Presence::CameLate { ns },
            kind::WENT_EARLY => Presence::WentEarly { ns },
            kind::STARTED_LATE => Presence::StartedLate { ns },
            kind::DIED_EARLY => Presence::DiedEarly { ns },
            kind::LACKS_BEGINNING => Presence::LacksBeginning { ns, frames },
            kind::LACKS_END => Presence::LacksEnd { ns, frames },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_presence() -> Vec<Presence> {
        vec![
            Presence::NeverCame,
            Presence::OnlyForeign { datagrams: 100 },
            Presence::OnlyExcluded { datagrams: 7 },
            Presence::NotKnown,
            Presence::NotExpected,
            Presence::CameLate { ns: 1 },
            Presence::WentEarly { ns: 2 },
            Presence::StartedLate { ns: 3 },
            Presence::DiedEarly { ns: 4 },
            Presence::LacksBeginning { ns: 5, frames: None },
            Presence::LacksEnd { ns: 6, frames: Some(0) },
        ]
    }

    fn range(from: i64) -> Option<Covered> {
        Some(Covered { from: Tai(from), to: Tai(from + 9) })
    }

    fn thread(thread: u16, presence: Vec<Presence>) -> ThreadPresence {
        ThreadPresence { station: 0x6167, thread, presence }
    }

    fn extract(threads: Vec<ThreadPresence>) -> Extract {
        Extract {
            presence: every_presence(),
            beside: OtherCounts {
                covered: range(10),
                received: range(20),
                threads,
                ..OtherCounts::default()
            },
            ..Extract::default()
        }
    }

    fn read_back(planned: Option<Planned>, extract: &Extract) -> (Option<Planned>, Extract) {
        let facts = encode(planned.as_ref(), Some(extract));
        assert_eq!(facts.len(), count(planned.as_ref(), Some(extract)));
        let (mut plan, mut read) = (None, Some(Extract::default()));
        decode(&facts, &mut plan, &mut read).unwrap();
        (plan, read.unwrap())
    }

    #[test]
    fn facts_read_back() {
        let silent = thread(1, vec![Presence::NeverCame]);
        let extract = extract(vec![silent, thread(2, every_presence())]);
        for (begin, end) in
            [(Some(Tai(1)), Some(Tai(2))), (None, Some(Tai(2))), (Some(Tai(1)), None)]
        {
            let planned = Some(Planned { begin, end });
            assert_eq!(read_back(planned, &extract), (planned, extract.clone()));
        }
        assert_eq!(read_back(None, &extract), (None, extract));
    }

    #[test]
    fn a_fact_of_an_unknown_kind_is_refused() {
        for kind in [0, kind::LACKS_END + 1, u8::MAX] {
            let facts = [RawFact::of(kind, 0, 0)];
            assert!(decode(&facts, &mut None, &mut Some(Extract::default())).is_err(), "{kind}");
        }
        assert!(decode(&[RawFact::of(kind::NEVER_CAME, 0, 0)], &mut None, &mut None).is_err());
    }

    #[test]
    fn threads_beyond_the_room_are_counted_and_the_plan_and_the_presence_of_the_stream_stay() {
        let threads = (0..100).map(|number| thread(number, vec![Presence::NeverCame])).collect();
        let (mut planned, mut kept) =
            (Some(Planned { begin: Some(Tai(1)), end: None }), Some(extract(threads)));
        trim(&mut planned, &mut kept, MOST_FACTS);
        let cut = kept.clone().unwrap();
        // The plan, the stream's own presence and two ranges are the others.
        let named = MOST_FACTS - 1 - every_presence().len() - 2;
        assert_eq!((cut.beside.threads.len(), cut.unnamed_threads), (named, 100 - named as u32));
        assert_eq!((cut.presence, cut.beside.covered), (every_presence(), range(10)));
        trim(&mut planned, &mut kept, 12);
        let cut = kept.clone().unwrap();
        assert_eq!((cut.unnamed_threads, cut.beside.covered), (100, None));
        assert!(planned.is_some() && cut.presence == every_presence());
        trim(&mut planned, &mut kept, 0);
        assert_eq!(count(planned.as_ref(), kept.as_ref()), 0);
    }
}
