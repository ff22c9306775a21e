use proptest::prelude::*;

use super::*;
use crate::pace::{CATCH_UP, Clock, Gate, Waiting};

const MS: u64 = 1_000_000;

fn account(streams: usize) -> Underruns {
    Underruns::new((0..streams).map(|n| n.to_string()), MS)
}

#[test]
fn a_sender_that_keeps_its_pace_has_no_gap() {
    let mut account = account(2);
    for n in 0..1000 {
        account.sent(n % 2, Some(n as u64), MS);
    }
    let account = account.finish();
    assert!(account.is_complete() && account.gaps.is_empty());
    assert_eq!((account.counts.planned, account.counts.on_time), (1000, 1000));
}

#[test]
fn a_stall_is_one_gap_of_each_stream_with_its_cause() {
    for (cause, disk_ns, socket_ns) in
        [(Cause::Cpu, 0, 0), (Cause::Disk, 30 * MS, 0), (Cause::Socket, 0, 30 * MS)]
    {
        let mut account = account(2);
        for n in 0..10 {
            account.sent(n % 2, Some(n as u64), 0);
        }
        account.waited_for_frames(disk_ns);
        account.waited_for_socket(socket_ns);
        // The lateness shrinks while the sender catches up.
        for n in 10..30u64 {
            account.sent(n as usize % 2, Some(n), (40 - n) * MS);
        }
        account.sent(0, Some(30), MS);
        account.sent(1, Some(31), 0);
        let account = account.finish();
        assert_eq!(account.gaps.len(), 2);
        for (stream, gap) in account.gaps.iter().enumerate() {
            assert_eq!(
                (gap.stream.as_str(), gap.kind, gap.cause),
                (["0", "1"][stream], Kind::Late, cause)
            );
            assert_eq!((gap.first, gap.packets), (5, 10));
            assert_eq!((gap.most_late_seconds * 1e3).round(), 30.0 - stream as f64);
            assert_eq!(gap.due_seconds, Some((10 + stream) as f64 / 1e9));
        }
    }
}

#[test]
fn a_second_stall_while_catching_up_has_its_own_cause() {
    let mut account = account(1);
    account.sent(0, Some(0), 20 * MS);
    account.sent(0, Some(1), 19 * MS);
    account.waited_for_frames(50 * MS);
    account.sent(0, Some(2), 68 * MS);
    let causes: Vec<_> = account.finish().gaps.iter().map(|gap| (gap.cause, gap.packets)).collect();
    assert_eq!(causes, [(Cause::Cpu, 2), (Cause::Disk, 1)]);
}

#[test]
fn packets_not_sent_are_counted_apart_from_late_ones() {
    let mut account = account(1);
    account.sent(0, None, 0);
    account.not_sent(0, None, 5, Cause::Unreadable);
    account.not_sent(0, None, 0, Cause::Refused);
    account.not_sent(0, None, 2, Cause::Refused);
    account.sent(0, None, 0);
    let account = account.finish();
    let gaps: Vec<_> = account.gaps.iter().map(|gap| (gap.cause, gap.first, gap.packets)).collect();
    assert_eq!(gaps, [(Cause::Unreadable, 1, 5), (Cause::Refused, 6, 2)]);
    assert_eq!((account.counts.planned, account.counts.not_sent), (9, 7));
}

#[test]
fn gaps_beyond_the_list_are_counted() {
    let mut account = account(1);
    for n in 0..2 * (MOST_GAPS as u64 + 7) {
        account.sent(0, Some(n), n % 2 * 2 * MS);
    }
    let account = account.finish();
    assert_eq!((account.gaps.len(), account.gaps_not_listed), (MOST_GAPS, 7));
    assert_eq!(account.counts.late, MOST_GAPS as u64 + 7);
}

/// A clock that moves during waits, and when the environment stalls the sender.
#[derive(Debug, Default)]
struct Simulated(std::rc::Rc<std::cell::Cell<u64>>);

impl Clock for Simulated {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
    fn wait_until(&mut self, ns: u64) {
        self.0.set(self.0.get().max(ns));
    }
}

/// What happens before a packet.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Nothing,
    Stall(Cause, u64),
    Unreadable(u64),
    Refused,
}

fn happens() -> impl Strategy<Value = Happens> {
    let cause = prop::sample::select(vec![Cause::Disk, Cause::Socket, Cause::Cpu]);
    prop_oneof![
        40 => Just(Happens::Nothing),
        2 => (cause, 0u64..50 * MS).prop_map(|(cause, ns)| Happens::Stall(cause, ns)),
        1 => (1u64..20).prop_map(Happens::Unreadable),
        1 => Just(Happens::Refused),
    ]
}

proptest! {
    /// The gate paces packets in an environment that stalls the sender, and the account is compared with a list of what
    /// happened to each packet.
    #[test]
    fn every_packet_is_in_the_account_once_and_each_gap_names_its_packets(
        streams in 1usize..5,
        period_ns in 1_000u64..MS,
        waiting in prop::sample::select(vec![Waiting::Exact, Waiting::Gentle]),
        events in prop::collection::vec(happens(), 1..400),
    ) {
        let clock = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut gate = Gate::new(Simulated(clock.clone()), waiting, CATCH_UP);
        let mut account = account(streams);
        // For each packet of each stream: 0 on time, 1 late, 2 not sent.
        let mut fates = vec![Vec::new(); streams];
        let mut stalls = Vec::new();
        for (n, event) in events.iter().enumerate() {
            let (stream, due_ns) = (n % streams, n as u64 * period_ns);
            match *event {
                Happens::Stall(cause, ns) => {
                    stalls.push((cause, ns));
                    clock.set(clock.get() + ns);
                    match cause {
                        Cause::Disk => account.waited_for_frames(ns),
                        Cause::Socket => account.waited_for_socket(ns),
                        _ => {}
                    }
                }
                Happens::Unreadable(frames) => {
                    account.not_sent(stream, None, frames, Cause::Unreadable);
                    fates[stream].extend((0..frames).map(|_| 2));
                }
                Happens::Nothing | Happens::Refused => {}
            }
            let (until_ns, now_ns) = gate.pass(due_ns);
            prop_assert!(due_ns <= until_ns && due_ns <= now_ns, "released before its time");
            if let Happens::Refused = event {
                account.not_sent(stream, Some(due_ns), 1, Cause::Refused);
                fates[stream].push(2);
            } else {
                account.sent(stream, Some(due_ns), now_ns - due_ns);
                fates[stream].push(u8::from(now_ns - due_ns > MS));
            }
        }
        let account = account.finish();
        let count = |fate| fates.iter().flatten().filter(|it| **it == fate).count() as u64;
        prop_assert_eq!(account.counts.on_time, count(0));
        prop_assert_eq!(account.counts.late, count(1));
        prop_assert_eq!(account.counts.not_sent, count(2));
        // The gaps cover the packets that were late or not sent, each once.
        let mut named = fates.clone();
        for gap in &account.gaps {
            let fate = if gap.kind == Kind::Late { 1 } else { 2 };
            let stream: usize = gap.stream.parse().unwrap();
            for at in gap.first..gap.first + gap.packets {
                prop_assert_eq!(std::mem::take(&mut named[stream][at as usize]), fate);
            }
        }
        prop_assert!(named.iter().flatten().all(|left| *left == 0), "a packet is in no gap");
        // A late packet has a cause that occurred.
        for gap in account.gaps.iter().filter(|gap| gap.kind == Kind::Late) {
            let possible = |it: &(Cause, u64)| it.0 == gap.cause && it.1 > 0;
            prop_assert!(stalls.iter().any(possible), "{:?} of {:?}", gap, stalls);
        }
    }
}
