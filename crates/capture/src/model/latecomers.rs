//! Threads and stations that begin, pause and return at random, with stray datagrams and forged frames: every whole
//! frame is recorded once, or counted and lowers the verdict.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A sender: station, thread, bytes of a frame.
type Who = (u16, u16, usize);

const SENDERS: [Who; 5] = [
    (0x4142, 0, 512),
    (0x4142, 1, 512),
    (0x4142, 7, 512),
    (0x5858, 0, 512),
    // Frames of another length fit the same blocks.
    (0x5959, 3, 1024),
];

const FPS: u64 = 37;

#[derive(Clone, Debug)]
enum Act {
    /// A sender sends this many frames in order.
    Frames(usize, u8),
    /// A sender is silent for this many frames.
    Pause(usize, u8),
    /// A datagram of this many bytes that is no frame.
    Rubbish(u16),
    /// One frame of an unknown station.
    Forged(u16),
    Drain,
    Look,
    Hurry,
    Cut,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        10 => (0..SENDERS.len(), 1u8..30).prop_map(|(who, count)| Act::Frames(who, count)),
        2 => (0..SENDERS.len(), 1u8..30).prop_map(|(who, count)| Act::Pause(who, count)),
        2 => (0u16..700).prop_map(Act::Rubbish),
        1 => (1u16..2000).prop_map(Act::Forged),
        4 => Just(Act::Drain),
        3 => Just(Act::Look),
        1 => Just(Act::Hurry),
        1 => Just(Act::Cut),
    ];
    prop::collection::vec(act, 1..80)
}

/// The scope of the packet number before a frame: all senders, each sender, or no counting at all.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    OfAll,
    OfEach,
    Senseless,
}

fn frame((station, thread, bytes): Who, number: u64) -> Vec<u8> {
    let mut frame = vec![number as u8 ^ 0x5A; bytes];
    let mut header = Header::default()
        .with_reference_epoch(50)
        .with_frame_bytes(bytes as u32)
        .with_thread(thread)
        .with_station(station);
    let second = Second::of(50, 1_000_000).0 + (number / FPS) as i64;
    header.set_time(Second(second), (number % FPS) as u32);
    header.write(&mut frame).unwrap();
    frame[32..40].copy_from_slice(&number.to_le_bytes());
    frame
}

/// The frames sent whole, by sender.
#[derive(Default)]
struct Truth {
    next: [u64; SENDERS.len()],
    sent: BTreeMap<Who, BTreeSet<u64>>,
    forged: u64,
    rubbish: u64,
    /// The kind of packet numbers before frames, if there are any.
    numbers: Option<Numbers>,
    numbered: u64,
}

impl Truth {
    fn whole(&self) -> u64 {
        self.forged + self.sent.values().map(|numbers| numbers.len() as u64).sum::<u64>()
    }

    /// Returns the bytes before the frame of this number of a sender on the wire.
    fn head(&mut self, number: u64) -> Vec<u8> {
        self.numbered += 1;
        let psn = match self.numbers {
            None => return Vec::new(),
            Some(Numbers::OfAll) => self.numbered,
            Some(Numbers::OfEach) => number,
            Some(Numbers::Senseless) => self.numbered.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        psn.to_le_bytes().to_vec()
    }
}

fn play(bench: &mut Bench, truth: &mut Truth, act: &Act) {
    let mut datagrams = Vec::new();
    match *act {
        Act::Frames(who, count) => {
            for _ in 0..count {
                let number = truth.next[who];
                truth.next[who] += 1;
                truth.sent.entry(SENDERS[who]).or_default().insert(number);
                datagrams.push([truth.head(number), frame(SENDERS[who], number)].concat());
            }
        }
        Act::Pause(who, count) => truth.next[who] += u64::from(count),
        Act::Rubbish(bytes) => {
            truth.rubbish += 1;
            datagrams.push(vec![0xA5; usize::from(bytes)]);
        }
        Act::Forged(station) => {
            truth.forged += 1;
            // A different station each time, so that no two agree.
            let station = station.wrapping_add(truth.forged as u16 * 2048);
            datagrams.push([truth.head(0), frame((station | 0x8000, 9, 512), 0)].concat());
        }
        Act::Drain => while bench.receive() > 0 {},
        Act::Look => {
            bench.answer(usize::MAX);
            bench.with(Port::look);
        }
        Act::Hurry => {
            while bench.receive() > 0 {}
            bench.now = bench.now.plus_ns(1_000_000_000);
            bench.port.hurry();
            bench.with(Port::look);
        }
        Act::Cut if bench.openings.len() < 6 => bench.begin(),
        Act::Cut => {}
    }
    bench.datagrams += datagrams.len() as u64;
    let slices: Vec<_> = datagrams.iter().map(|d| [IoSlice::new(&[]), IoSlice::new(d)]).collect();
    for group in slices.chunks(64) {
        bench.sender.send(group).unwrap();
    }
    while datagrams.len() > 1 && bench.receive() > 0 {}
}

/// Returns the frames in the blocks, by sender. Fill frames are marked invalid and do not count.
fn written(bench: &Bench) -> BTreeMap<Who, Vec<u64>> {
    let mut written: BTreeMap<Who, Vec<u64>> = BTreeMap::new();
    for page in &bench.pages {
        let mut rest = page.bytes.as_slice();
        while let Ok(header) = Header::read(rest) {
            let bytes = header.frame_bytes() as usize;
            if !header.invalid() {
                let who = (header.station(), header.thread(), bytes);
                let number = u64::from_le_bytes(rest[32..40].try_into().unwrap());
                assert_eq!(rest[..bytes], frame(who, number), "a frame is not as it was sent");
                written.entry(who).or_default().push(number);
            }
            rest = &rest[bytes..];
        }
    }
    written
}

fn every_frame_is_recorded_or_counted(text: &str, acts: &[Act]) {
    every_numbered_frame_is_recorded_or_counted(text, None, acts);
}

fn every_numbered_frame_is_recorded_or_counted(text: &str, numbers: Option<Numbers>, acts: &[Act]) {
    let mut bench = Bench::new(text, wire(Kind::Vdif, &[0]), 2);
    let mut truth = Truth { numbers, ..Truth::default() };
    acts.iter().for_each(|act| play(&mut bench, &mut truth, act));
    bench.finish();
    let accounts: Vec<&Account> = bench
        .notices
        .iter()
        .filter_map(|notice| match notice {
            CaptureEvent::Ended { account, .. } | CaptureEvent::Silent { account, .. } => {
                Some(&**account)
            }
            _ => None,
        })
        .collect();
    assert!(accounts.iter().all(|account| account.terms.balance()));
    let sum = |of: fn(&Account) -> u64| accounts.iter().map(|account| of(account)).sum::<u64>();
    let unrecorded = sum(|account| account.unrecorded) + sum(|account| account.out_of_window);
    let kept = sum(|account| account.terms.written);
    let written = written(&bench);
    let cuts = acts.iter().filter(|act| matches!(act, Act::Cut)).count();
    assert_eq!(written.values().map(Vec::len).sum::<usize>() as u64, kept, "account and pages");
    assert_eq!(kept + unrecorded, truth.whole(), "a whole frame left no trace");
    for (who, numbers) in &truth.sent {
        let mut found = written.get(who).cloned().unwrap_or_default();
        found.sort_unstable();
        let all: Vec<u64> = numbers.iter().copied().collect();
        match numbers.len() {
            // Too few frames to tell a thread from a mistake.
            ..3 => assert!(found.iter().all(|number| numbers.contains(number))),
            // A few frames after a long silence are not accepted if a longer silence follows: they count as
            // out-of-window.
            _ if sum(|account| account.out_of_window) > 0 => {
                assert!(found.iter().all(|number| numbers.contains(number)));
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{who:?} is recorded once");
            }
            // Fewer than three frames in a scan are too few to tell, and are counted in that scan. Only a cut can divide
            // three frames between scans.
            _ => {
                let few = if cuts > 0 { 2 * (cuts + 1) } else { 0 };
                assert!(found.iter().all(|number| numbers.contains(number)));
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{who:?} is recorded once");
                assert!(all.len() - found.len() <= few, "{who:?} is recorded whole: {found:?}");
            }
        }
    }
    let of_streams = accounts.iter().filter(|account| account.terms.expected > 0);
    for account in of_streams.filter(|account| account.unrecorded > 0) {
        assert!(account.judge() > Verdict::Proven && account.not_kept() > 0, "{account:#?}");
    }
    let foreign = sum(|account| account.foreign);
    assert_eq!(foreign, truth.rubbish, "foreign, and datagrams that are no frames");
}

#[test]
fn three_frames_of_a_thread_that_a_cut_divides_are_counted_in_both_scans() {
    let acts = [Act::Frames(1, 2), Act::Frames(4, 3), Act::Cut, Act::Frames(1, 1)];
    every_frame_is_recorded_or_counted("udp://127.0.0.1:1?fps=37", &acts);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 3, ..ProptestConfig::default() })]

    #[test]
    fn threads_that_begin_late_are_recorded_together(acts in acts()) {
        every_frame_is_recorded_or_counted("udp://127.0.0.1:1?fps=37", &acts);
    }

    #[test]
    fn threads_that_begin_late_are_recorded_without_fill(acts in acts()) {
        every_frame_is_recorded_or_counted("udp://127.0.0.1:1?fps=37&fill=omit", &acts);
    }

    #[test]
    fn threads_that_begin_late_are_recorded_split(acts in acts()) {
        every_frame_is_recorded_or_counted("udp://127.0.0.1:1?fps=37&threads=split", &acts);
    }

    #[test]
    fn threads_that_begin_late_are_recorded_behind_any_packet_number(
        numbers in prop_oneof![Just(Numbers::OfAll), Just(Numbers::OfEach), Just(Numbers::Senseless)],
        text in prop_oneof![Just(""), Just("&fill=omit"), Just("&threads=split")],
        acts in acts(),
    ) {
        let text = format!("udp://127.0.0.1:1?format=vtp&fps=37{text}");
        every_numbered_frame_is_recorded_or_counted(&text, Some(numbers), &acts);
    }

    #[test]
    fn frames_of_another_length_or_thread_than_asked_for_are_excluded_with_their_number(
        fill in prop_oneof![Just(""), Just("&fill=omit")],
        acts in acts(),
    ) {
        let text = format!("udp://127.0.0.1:1?fps=37&frame=512&threads=0,1{fill}");
        let mut bench = Bench::new(&text, wire(Kind::Vdif, &[0]), 1);
        let mut truth = Truth::default();
        acts.iter().for_each(|act| play(&mut bench, &mut truth, act));
        bench.finish();
        let unwanted = |who: &Who| who.1 > 1 || who.2 != 512;
        let unwanted = truth.sent.iter().filter(|(who, _)| unwanted(who));
        let unwanted = truth.forged + unwanted.map(|(_, sent)| sent.len() as u64).sum::<u64>();
        let excluded: u64 = bench.notices.iter().map(|notice| match notice {
            CaptureEvent::Ended { account, .. } | CaptureEvent::Silent { account, .. } => account.excluded,
            _ => 0,
        }).sum();
        prop_assert_eq!(excluded, unwanted);
        let written = written(&bench);
        prop_assert!(written.keys().all(|who| who.1 <= 1 && who.2 == 512), "{:?}", written.keys());
    }
}

fn sent(bench: &mut Bench, truth: &mut Truth, acts: &[Act]) {
    acts.iter().for_each(|act| play(bench, truth, act));
}

#[test]
fn an_intruder_that_comes_first_takes_nothing_from_the_instrument() {
    let intruder = [Act::Frames(4, 3), Act::Drain, Act::Hurry];
    let instrument: Vec<Act> = (0..20).map(|_| Act::Frames(0, 29)).collect();
    let acts = [&intruder[..], &instrument, &[Act::Look]].concat();
    every_frame_is_recorded_or_counted("udp://127.0.0.1:1?fps=37", &acts);
}

#[test]
fn threads_that_are_not_listed_are_excluded_with_their_number() {
    let mut bench = Bench::new("udp://127.0.0.1:1?fps=37&threads=0", wire(Kind::Vdif, &[0]), 1);
    let mut truth = Truth::default();
    let acts = [Act::Frames(0, 20), Act::Drain, Act::Hurry, Act::Frames(1, 7), Act::Frames(0, 5)];
    sent(&mut bench, &mut truth, &acts);
    bench.finish();
    let accounts = bench.accounts(0);
    let (_, account) = accounts.last().unwrap();
    assert_eq!((account.excluded, account.unrecorded), (7, 0));
    assert_eq!(account.judge(), Verdict::Proven, "the user asked for it");
}

#[test]
fn a_listed_thread_of_which_nothing_came_is_a_flow_that_has_nothing() {
    let text = "udp://127.0.0.1:1?fps=37&threads=0,1&fill=omit";
    let flows = |acts: &[Act]| {
        let mut bench = Bench::new(text, wire(Kind::Vdif, &[0]), 1);
        sent(&mut bench, &mut Truth::default(), acts);
        bench.finish();
        let accounts = bench.accounts(0);
        let mut account = accounts.last().unwrap().1.clone();
        account.name_absent_threads();
        let flows =
            account.flows.iter().map(|it| (it.thread, it.terms.written)).collect::<Vec<_>>();
        (flows, account.judge(), account.completeness().is_good())
    };
    let one = [Act::Frames(0, 20), Act::Drain, Act::Hurry, Act::Frames(0, 5)];
    assert_eq!(flows(&one), (vec![(0, 25), (1, 0)], Verdict::Unexplained, false));
    let both = [Act::Frames(0, 20), Act::Frames(1, 20), Act::Drain];
    assert_eq!(flows(&both), (vec![(0, 20), (1, 20)], Verdict::Proven, true));
}

#[test]
fn a_port_of_one_stream_counts_other_threads_against_the_verdict() {
    let mut bench = Bench::new("udp://127.0.0.1:1?fps=37", wire(Kind::Vdif, &[0]), 1);
    bench.port.keep_to_one_stream();
    let mut truth = Truth::default();
    let acts = [Act::Frames(0, 20), Act::Drain, Act::Hurry, Act::Frames(1, 7), Act::Frames(0, 5)];
    sent(&mut bench, &mut truth, &acts);
    bench.finish();
    let accounts = bench.accounts(0);
    let (_, account) = accounts.last().unwrap();
    assert_eq!((account.terms.written, account.unrecorded), (25, 7));
    assert_eq!(account.judge(), Verdict::Consistent);
    assert!(!account.completeness().is_good());
}
