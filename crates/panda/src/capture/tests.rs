//! A PandA made of bytes: the bytes it sends, the points where its connections break, and the expected result.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullbore_capture::StreamMetrics;
use fullbore_core::account::Verdict;
use fullbore_core::gap::Cause;
use fullbore_core::hint::Hint;
use fullbore_core::panda::{AcquisitionResult, SourceEvent};
use fullbore_formats::panda::{
    Decoder, EndReason, Ending, Event, Field, Header, Kind, Process, Want,
};
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;
use fullbore_time::Tai;
use proptest::prelude::*;

use super::*;
use crate::{Error, Step};

/// Bytes of a block here: a few samples, so that block borders occur often.
const STRIDE: usize = 4096;

/// Each word of a sample holds the sample's index; overwritten words hold this.
const CORRUPT: u32 = 0xDEAD_BEEF;

const SAMPLE_BYTES: usize = 12;

fn header(missed: u64, arm_ns: i64, process: Process) -> Header {
    let field = |n: u32| Field {
        name: format!("COUNTER{n}.OUT"),
        capture: "Value".to_owned(),
        kind: Kind::Uint32,
        offset_bytes: 4 * n,
        scaling: None,
    };
    Header {
        arm_time: Some(Tai(1_795_000_000_000_000_000 + arm_ns)),
        start_time: None,
        hw_time_offset_ns: None,
        missed,
        process,
        sample_bytes: SAMPLE_BYTES as u32,
        fields: (0..3).map(field).collect(),
    }
}

/// The bytes that a server sends on one connection.
#[derive(Clone, Debug, Default)]
struct Sent(Vec<u8>);

impl Sent {
    fn new() -> Self {
        Sent(b"OK\n".to_vec())
    }

    fn header(mut self, header: &Header) -> Self {
        self.0.extend_from_slice(header.to_xml().as_bytes());
        if !self.0.ends_with(b"\n\n") {
            self.0.extend_from_slice(b"\n");
        }
        self
    }

    fn frame(mut self, first: u64, samples: u64, corrupt_from: u64) -> Self {
        let bytes = 8 + samples as usize * SAMPLE_BYTES;
        self.0.extend_from_slice(b"BIN ");
        self.0.extend_from_slice(&(bytes as u32).to_le_bytes());
        for index in first..first + samples {
            let word = if index < corrupt_from { index as u32 } else { CORRUPT };
            (0..3).for_each(|_| self.0.extend_from_slice(&word.to_le_bytes()));
        }
        self
    }

    fn end(mut self, samples: u64, reason: EndReason) -> Self {
        self.0.extend_from_slice(format!("END {samples} {reason}\n").as_bytes());
        self
    }
}

/// A connection that delivers its bytes in pieces of odd sizes, then closes or stays silent.
struct Wire {
    decoder: Decoder,
    bytes: Vec<u8>,
    at: usize,
    pieces: Vec<usize>,
    turn: usize,
    ahead: Vec<u8>,
    pending: Option<Event>,
    closes: bool,
    hold: Hold,
}

/// Time for which a connection is silent after its OK.
#[derive(Clone, Debug, Default)]
enum Hold {
    #[default]
    Not,
    /// For this number of reads, 1 ms each.
    Quiet(u32),
    /// Until the PandA was armed this number of times.
    Armed(Arc<Mutex<u32>>, u32),
    /// Not at all, but every piece takes this long.
    Slow(Duration),
}

impl Wire {
    fn is_held(&self) -> bool {
        self.at >= 3
            && match &self.hold {
                Hold::Not | Hold::Slow(_) => false,
                Hold::Quiet(left) => *left > 0,
                Hold::Armed(armed, wanted) => *armed.lock().unwrap() < *wanted,
            }
    }

    fn receive(&mut self, most: usize) -> Option<Vec<u8>> {
        if self.is_held() {
            return None;
        }
        if let Hold::Slow(pause) = self.hold {
            std::thread::sleep(pause);
        }
        let most = if self.at == 0 { most.min(3) } else { most };
        let piece = self.pieces[self.turn % self.pieces.len()].max(1);
        self.turn += 1;
        let end = (self.at + piece.min(most)).min(self.bytes.len());
        let got = self.bytes[self.at..end].to_vec();
        self.at = end;
        (!got.is_empty()).then_some(got)
    }

    fn over(&mut self) -> Step {
        if self.closes && !self.is_held() {
            return Step::Closed;
        }
        if let Hold::Quiet(left) = &mut self.hold {
            *left = left.saturating_sub(1);
        }
        std::thread::sleep(Duration::from_millis(1));
        Step::Quiet
    }
}

impl Data for Wire {
    fn wants_payload(&self) -> u64 {
        match self.decoder.want() {
            Want::Payload { bytes } if self.pending.is_none() => bytes,
            _ => 0,
        }
    }

    fn next(&mut self, room: &mut [u8]) -> Result<Step, Error> {
        loop {
            if let Some(event) = self.pending.take() {
                return Ok(Step::Event(event));
            }
            if let Want::Payload { bytes } = self.decoder.want() {
                let most = room.len().min(bytes as usize);
                if self.ahead.is_empty() {
                    match self.receive(most) {
                        Some(got) => self.ahead = got,
                        None => return Ok(self.over()),
                    }
                }
                let n = self.ahead.len().min(most);
                room[..n].copy_from_slice(&self.ahead[..n]);
                self.ahead.drain(..n);
                self.pending = self.decoder.payload_taken(n as u64);
                return Ok(Step::Payload(n));
            }
            let (taken, event) = self.decoder.feed(&self.ahead)?;
            self.ahead.drain(..taken);
            if let Some(event) = event {
                return Ok(Step::Event(event));
            }
            if matches!(self.decoder.want(), Want::Text { .. }) {
                match self.receive(4096) {
                    Some(got) => self.ahead.extend(got),
                    None => return Ok(self.over()),
                }
            }
        }
    }
}

/// A sequence of connections, and the answers of the control port.
struct Script {
    wires: VecDeque<Wire>,
    captured: Captured,
    armed: Arc<Mutex<u32>>,
    disarmed: Arc<Mutex<u32>>,
}

impl Device for Script {
    type Data = Wire;

    fn connect(&mut self) -> Result<Wire, Error> {
        self.wires.pop_front().ok_or_else(|| Error::NoAddress { host: "nobody".to_owned() })
    }

    fn arm(&mut self) -> Result<(), Error> {
        *self.armed.lock().unwrap() += 1;
        Ok(())
    }

    fn disarm(&mut self) -> Result<(), Error> {
        *self.disarmed.lock().unwrap() += 1;
        Ok(())
    }

    fn captured(&mut self) -> Captured {
        // While another connection can be made, the acquisition has not ended.
        let told = self.wires.is_empty() || self.captured == Captured::Unknown;
        if told { self.captured } else { Captured::Busy }
    }

    fn is_alive(&mut self) -> bool {
        true
    }
}

/// Keeps every row, and returns blocks late.
#[derive(Default)]
struct Kept {
    rows: Vec<Vec<(u64, u32)>>,
    closed: Vec<AcquisitionResult>,
    begun: Vec<Arc<Acquisition>>,
    empty: VecDeque<Block>,
    lazy: usize,
    early: Option<Duration>,
    stop_after: Option<usize>,
    warned: Vec<SourceEvent>,
}

impl AcquisitionSink for Kept {
    fn stop_request(&mut self) -> StopRequest {
        let rows = self.rows.last().map_or(0, Vec::len);
        if self.stop_after.is_some_and(|most| rows >= most) {
            StopRequest::Stop
        } else {
            StopRequest::Go
        }
    }

    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize {
        stride / sample_bytes * sample_bytes
    }

    fn hand_on_after(&self) -> Option<Duration> {
        self.early
    }

    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), SinkClosed> {
        self.begun.push(acquisition.clone());
        self.rows.push(Vec::new());
        Ok(())
    }

    fn filled(&mut self, batch: Batch) {
        let rows = self.rows.last_mut().unwrap();
        for (n, sample) in batch.block[..batch.bytes].chunks(SAMPLE_BYTES).enumerate() {
            let words: Vec<u32> =
                sample.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
            assert!(words.iter().all(|&word| word == words[0]), "a torn sample: {words:x?}");
            // In blocks that are passed on only when full, samples follow one another across holes.
            let index = match self.early {
                Some(_) => batch.first + n as u64,
                None => u64::from(words[0]),
            };
            rows.push((index, words[0]));
        }
        self.empty.push_back(batch.block);
    }

    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, SinkClosed> {
        // While no block is urgently needed, a few are held back.
        let keep = if wait.is_zero() { self.lazy } else { 0 };
        Ok(if self.empty.len() > keep { self.empty.pop_front() } else { None })
    }

    fn report(&mut self, event: SourceEvent) {
        if matches!(event, SourceEvent::Unseen { .. } | SourceEvent::StaysArmed { .. }) {
            self.warned.push(event);
        }
    }

    fn end(&mut self, closed: AcquisitionResult) {
        self.closed.push(closed);
    }
}

struct Run {
    kept: Kept,
    ended: SourceEnd,
    armed: u32,
    disarmed: u32,
}

fn settings(acquisitions: u64) -> Settings {
    let reconnect = Duration::from_millis(1);
    Settings { acquisitions: Some(acquisitions), arm: false, reconnect }
}

fn record(wires: Vec<Sent>, pieces: &[usize], captured: Captured, settings: Settings) -> Run {
    let kept = Kept { lazy: 1, ..Kept::default() };
    record_into(kept, wires, pieces, captured, settings)
}

fn record_into(
    kept: Kept,
    wires: Vec<Sent>,
    pieces: &[usize],
    captured: Captured,
    settings: Settings,
) -> Run {
    let wires = wires.into_iter().map(|sent| (sent, Hold::Not)).collect();
    record_held(kept, wires, Arc::default(), pieces, captured, settings)
}

/// The same with delayed connections; `armed` counts the ARM commands.
fn record_held(
    kept: Kept,
    wires: Vec<(Sent, Hold)>,
    armed: Arc<Mutex<u32>>,
    pieces: &[usize],
    captured: Captured,
    settings: Settings,
) -> Run {
    let closes = kept.stop_after.is_none();
    let wires = wires.into_iter().map(|(Sent(bytes), hold)| Wire {
        decoder: Decoder::new(),
        bytes,
        at: 0,
        pieces: pieces.to_vec(),
        turn: 0,
        ahead: Vec::new(),
        pending: None,
        closes,
        hold,
    });
    let disarmed = Arc::new(Mutex::new(0));
    let counted = (armed.clone(), disarmed.clone());
    let device = Script { wires: wires.collect(), captured, armed, disarmed };
    let pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), STRIDE, 0);
    let metrics = Arc::new(StreamMetrics::default());
    let (kept, ended) = Source::new(device, kept, pool, STRIDE, settings, metrics).run();
    let (armed, disarmed) = (*counted.0.lock().unwrap(), *counted.1.lock().unwrap());
    Run { kept, ended, armed, disarmed }
}

fn all_true(rows: &[(u64, u32)]) {
    for pair in rows.windows(2) {
        assert!(pair[0].0 < pair[1].0, "rows go on: {pair:?}");
    }
    for &(index, word) in rows {
        assert_eq!(word, index as u32, "sample {index} is not itself");
    }
}

#[test]
fn a_stop_before_the_first_header_disarms_what_was_armed() {
    let kept = Kept { stop_after: Some(0), ..Kept::default() };
    let arming = Settings { arm: true, ..settings(1) };
    let run = record_into(kept, vec![Sent::new()], &[4096], Captured::Over(0), arming);
    assert_eq!((run.armed, run.disarmed), (1, 1));
    assert!(run.kept.closed.is_empty());
}

#[test]
fn what_was_armed_and_disarmed_before_its_header_is_told_of_if_samples_were_taken() {
    let arming = Settings { arm: true, ..settings(1) };
    for (captured, told) in
        [(Captured::Over(0), 0), (Captured::Over(77), 1), (Captured::Unknown, 1)]
    {
        let kept = Kept { stop_after: Some(0), ..Kept::default() };
        let header = header(0, 0, Process::Raw).to_xml().into_bytes();
        // The header has arrived in part.
        let sent = Sent([Sent::new().0, header[..header.len() / 2].to_vec()].concat());
        let run = record_into(kept, vec![sent], &[4096], captured, arming);
        assert!(run.kept.closed.is_empty() && run.disarmed == 1);
        assert_eq!(run.kept.warned.len(), told, "{:?}", run.kept.warned);
    }
}

#[test]
fn a_stop_receives_what_was_armed_to_its_end_however_long_that_takes() {
    let arming = Settings { arm: true, ..settings(1) };
    let mut sent = Sent::new().header(&header(0, 0, Process::Raw));
    for n in 0..300 {
        sent = sent.frame(n * 10, 10, 3000);
    }
    let wires = vec![(sent.end(3000, EndReason::Disarmed), Hold::Slow(Duration::from_millis(9)))];
    let early = Some(Duration::ZERO);
    let kept = Kept { early, stop_after: Some(10), ..Kept::default() };
    let run = record_held(kept, wires, Arc::default(), &[128], Captured::Over(3000), arming);
    let closed = &run.kept.closed[0];
    assert_eq!(closed.ending, Ending::End(EndReason::Disarmed));
    assert_eq!((closed.account.verdict, run.disarmed), (Verdict::Proven, 1));
    assert_eq!(run.kept.rows[0].len(), 3000);
}

#[test]
fn what_does_not_come_any_more_after_a_stop_is_asked_for_and_missing() {
    let sent = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 500, 500);
    let sent = sent.frame(500, 20, 520);
    let run = |captured, arm| {
        let settings = Settings { arm, ..settings(1) };
        let early = Some(Duration::ZERO);
        let kept = Kept { early, stop_after: Some(500), ..Kept::default() };
        let run = record_into(kept, vec![sent.clone()], &[999], captured, settings);
        assert_eq!(run.disarmed, u32::from(arm));
        assert_eq!(run.kept.closed[0].ending, Ending::Left);
        run.kept.closed[0].account.clone()
    };
    let armed = run(Captured::Over(9000), true);
    assert_eq!((armed.verdict, armed.terms.missing), (Verdict::Consistent, 9000 - 520));
    assert_eq!(run(Captured::Unknown, true).verdict, Verdict::Unproven);
    // An acquisition that another client has armed continues, and its number of samples is unknown.
    assert_eq!(run(Captured::Busy, false).verdict, Verdict::Unproven);
}

#[test]
fn a_header_that_no_other_connection_would_make_readable_is_armed_once_and_disarmed() {
    let arming = Settings { arm: true, ..settings(1) };
    let header = header(0, 0, Process::Raw).to_xml().replacen("int32", "float16", 1);
    let sent = Sent([Sent::new().0, header.into_bytes(), b"\n\n".to_vec()].concat());
    let run = record(vec![sent; 5], &[4096], Captured::Over(10), arming);
    assert!(
        matches!(&run.ended, SourceEnd::Failed(Error::Data(error)) if error.would_come_again())
    );
    assert_eq!((run.armed, run.disarmed, run.kept.closed.len()), (1, 1, 0));
}

#[test]
fn a_panda_that_does_not_tell_whether_it_is_armed_is_given_up_after_a_time_and_disarmed() {
    let reconnect = Duration::from_millis(1200);
    let arming = Settings { arm: true, reconnect, ..settings(1) };
    let (lost, good) = lost_before_the_header();
    let one_that_stays = vec![(lost.clone(), Hold::Not), (good, Hold::Quiet(u32::MAX))];
    let mut some_that_are_lost = vec![(lost.clone(), Hold::Not)];
    some_that_are_lost.extend(vec![(lost, Hold::Quiet(700)); 3]);
    for wires in [one_that_stays, some_that_are_lost] {
        let (begun, kept) = (Instant::now(), Kept::default());
        let run = record_held(kept, wires, Arc::default(), &[4096], Captured::Unknown, arming);
        assert!(matches!(run.ended, SourceEnd::Failed(Error::Untold { .. })), "{:?}", run.ended);
        assert_eq!((run.armed, run.disarmed, run.kept.closed.len()), (1, 1, 0));
        assert!(begun.elapsed() >= reconnect && run.kept.warned.len() == 1);
    }
}

/// A connection that is lost right after its OK, and another one with one good acquisition.
fn lost_before_the_header() -> (Sent, Sent) {
    let sent = Sent::new().header(&header(0, 0, Process::Raw));
    (Sent::new(), sent.frame(0, 300, 300).end(300, EndReason::Ok))
}

#[test]
fn a_connection_lost_between_arm_and_header_is_made_again_and_not_armed_again() {
    let arming = Settings { arm: true, ..settings(1) };
    for hold in [Hold::Not, Hold::Quiet(1200)] {
        let (lost, good) = lost_before_the_header();
        let wires = vec![(lost.clone(), Hold::Not), (lost, Hold::Not), (good, hold)];
        // While it is silent, it is armed.
        let kept = Kept::default();
        let run = record_held(kept, wires, Arc::default(), &[4096], Captured::Busy, arming);
        assert!(matches!(run.ended, SourceEnd::Done), "{:?}", run.ended);
        assert_eq!((run.armed, run.kept.closed.len()), (1, 1));
        assert_eq!(run.kept.closed[0].account.verdict, Verdict::Proven);
        assert_eq!(run.kept.rows[0].len(), 300);
    }
}

#[test]
fn a_panda_that_was_armed_and_is_not_any_more_is_armed_again() {
    let arming = Settings { arm: true, ..settings(1) };
    for (unseen, told) in [(0, 0), (77, 1)] {
        let (armed, (lost, good)) = (Arc::new(Mutex::new(0)), lost_before_the_header());
        let wires = vec![(lost, Hold::Not), (good, Hold::Armed(armed.clone(), 2))];
        let captured = Captured::Over(unseen);
        let run = record_held(Kept::default(), wires, armed, &[4096], captured, arming);
        assert!(matches!(run.ended, SourceEnd::Done), "{:?}", run.ended);
        assert_eq!((run.armed, run.kept.rows[0].len()), (2, 300));
        // An acquisition that was not received causes a warning.
        assert_eq!(run.kept.warned.len(), told, "{:?}", run.kept.warned);
    }
}

#[test]
fn acquisitions_follow_one_another_on_one_connection() {
    let mut sent = Sent::new();
    for n in 0..3 {
        sent = sent.header(&header(0, n, Process::Raw)).frame(0, 700, 700).frame(700, 0, 700);
        sent = sent.frame(700, 34, 734).end(734, EndReason::Ok);
    }
    for piece in [1, 7, 4096, 1 << 20] {
        let arming = Settings { arm: true, ..settings(3) };
        let run = record(vec![sent.clone()], &[piece], Captured::Over(734), arming);
        assert!(matches!(run.ended, SourceEnd::Done), "{:?}", run.ended);
        assert_eq!(run.armed, 3);
        assert_eq!(run.kept.closed.len(), 3);
        for (rows, closed) in run.kept.rows.iter().zip(&run.kept.closed) {
            assert_eq!(rows.len(), 734);
            all_true(rows);
            assert_eq!(closed.account.verdict, Verdict::Proven);
        }
    }
}

#[test]
fn samples_whose_trigger_times_fall_are_doubted() {
    let mut timed = header(0, 0, Process::Raw);
    timed.fields.truncate(2);
    let time = Field { name: "PCAP.TS_TRIG".to_owned(), ..timed.fields[1].clone() };
    timed.fields[1] = Field { kind: Kind::Int64, ..time };
    let run = |second: u64| {
        let sent = Sent::new().header(&timed).frame(0, 500, 500).frame(second, 500, 1000);
        record(vec![sent.end(1000, EndReason::Ok)], &[4096], Captured::Over(1000), settings(1))
    };
    assert_eq!(run(500).kept.closed[0].account.verdict, Verdict::Proven);
    let doubted = &run(300).kept.closed[0];
    assert_eq!(doubted.account.verdict, Verdict::Unexplained);
    assert!(doubted.notes.iter().any(|note| note.contains("sample 500")), "{:?}", doubted.notes);
}

#[test]
fn an_overrun_is_joined_again_and_no_corrupt_sample_passes() {
    let first = Sent::new().header(&header(0, 0, Process::Raw));
    let first = first.frame(0, 1000, 1000).frame(1000, 500, 1200).end(1500, EndReason::DataOverrun);
    let second = Sent::new().header(&header(9000, 0, Process::Raw)).frame(9000, 800, 9800);
    let second = second.end(800, EndReason::Ok);
    let run = record(vec![first, second], &[999], Captured::Over(9800), settings(1));
    all_true(&run.kept.rows[0]);
    assert_eq!(run.kept.rows[0].len(), 1800);
    let closed = &run.kept.closed[0];
    let terms = closed.account.terms;
    assert_eq!((terms.expected, terms.damaged, terms.missing), (9800, 500, 7500));
    assert_eq!(closed.account.verdict, Verdict::Consistent);
    assert_eq!(closed.connections.len(), 2);
}

#[test]
fn what_comes_again_after_a_lost_connection_is_not_written_twice() {
    let first = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 1000, 1000);
    let mut first = first.frame(1000, 500, 1500);
    first.0.truncate(first.0.len() - 5);
    let second = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 400, 400);
    let second = second.frame(400, 2000, 2400).end(2400, EndReason::Disarmed);
    let run = record(vec![first, second], &[512], Captured::Over(2400), settings(1));
    all_true(&run.kept.rows[0]);
    assert_eq!(run.kept.rows[0].len(), 2400);
    let account = &run.kept.closed[0].account;
    assert_eq!((account.verdict, account.duplicates), (Verdict::Proven, 1000));
}

#[test]
fn a_server_that_restarts_begins_a_new_acquisition() {
    let first = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 100, 100);
    let first = first.frame(100, 100, 200);
    let second = Sent::new().header(&header(0, 5, Process::Raw)).frame(0, 50, 50);
    let second = second.end(50, EndReason::Ok);
    let run = record(vec![first, second], &[64], Captured::Over(50), settings(2));
    let verdicts: Vec<_> = run.kept.closed.iter().map(|closed| closed.account.verdict).collect();
    assert_eq!(verdicts, [Verdict::Unproven, Verdict::Proven]);
    assert_eq!(run.kept.closed[0].ending, Ending::ConnectionLost);
    assert_eq!((run.kept.rows[0].len(), run.kept.rows[1].len()), (100, 50));
}

#[test]
fn a_stop_leaves_where_a_frame_is_certified() {
    let mut sent = Sent::new().header(&header(0, 0, Process::Raw));
    // Enough for the stop to be seen while samples still arrive.
    for n in 0..6000 {
        sent = sent.frame(n * 341, 341, 6000 * 341);
    }
    let kept = Kept { stop_after: Some(341), lazy: 0, ..Kept::default() };
    let run = record_into(kept, vec![sent], &[100], Captured::Busy, settings(9));
    let account = &run.kept.closed[0].account;
    assert_eq!(run.kept.closed[0].ending, Ending::Left);
    assert_eq!(account.verdict, Verdict::Unproven);
    assert_eq!(account.terms.damaged, 0, "{:?}", account.terms);
    assert_eq!(run.kept.rows[0].len() as u64, account.terms.written);
    all_true(&run.kept.rows[0]);
}

#[test]
fn what_others_arm_next_is_no_contradiction_and_what_we_armed_is() {
    let sent = || {
        let sent = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 500, 500);
        sent.end(500, EndReason::Disarmed)
    };
    let run = record(vec![sent()], &[4096], Captured::Over(900), settings(1));
    let closed = &run.kept.closed[0];
    assert_eq!((closed.account.verdict, closed.account.terms.expected), (Verdict::Proven, 500));
    assert!(closed.notes.iter().any(|note| note.contains("900")), "{:?}", closed.notes);
    let (arming, armed) = (Settings { arm: true, ..settings(1) }, Arc::default());
    let wires = vec![(sent(), Hold::Armed(Arc::clone(&armed), 1))];
    let run = record_held(Kept::default(), wires, armed, &[4096], Captured::Over(900), arming);
    assert_eq!(run.kept.closed[0].account.verdict, Verdict::Unexplained);
}

#[test]
fn a_frame_larger_than_all_block_memory_is_refused_and_more_memory_advised() {
    let sent = || Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 200_000, 200_000);
    let run = record((0..10).map(|_| sent()).collect(), &[4096], Captured::Busy, settings(1));
    let SourceEnd::Failed(error) = run.ended else { panic!("{:?}", run.ended) };
    assert!(error.hint().unwrap().contains("--buffer"), "{error}");
}

#[test]
fn a_frame_larger_than_all_block_memory_is_refused() {
    let sent = Sent::new().header(&header(0, 0, Process::Raw)).frame(0, 200_000, 200_000);
    let run = record(vec![sent], &[4096], Captured::Unknown, settings(1));
    assert!(matches!(&run.kept.closed[0].ending, Ending::Damaged(what) if what.contains("block")));
    assert!(run.kept.rows[0].is_empty());
}

#[test]
fn slow_samples_are_handed_on_before_their_block_is_full() {
    let sent = Sent::new().header(&header(0, 0, Process::Raw));
    let sent = sent.frame(0, 3, 3).frame(3, 2, 5).frame(5, 1, 6);
    let early = Some(Duration::ZERO);
    let kept = Kept { early, stop_after: Some(5), lazy: 0, ..Kept::default() };
    let run = record_into(kept, vec![sent], &[10], Captured::Busy, settings(1));
    assert!(run.kept.rows[0].len() >= 5, "{:?}", run.kept.rows[0]);
    all_true(&run.kept.rows[0]);
}

/// One connection of one acquisition: its starting point, its frames, and its end.
#[derive(Clone, Debug)]
struct Part {
    ahead: i64,
    frames: Vec<u64>,
    /// Ends with an overrun whose last frame is bad from here on, or is cut this many bytes before its end.
    overrun: Option<u64>,
    cut: usize,
}

fn part() -> impl Strategy<Value = Part> {
    (
        -400i64..900,
        prop::collection::vec(0u64..900, 1..5),
        prop::option::of(0u64..900),
        0usize..6000,
    )
        .prop_map(|(ahead, frames, overrun, cut)| Part { ahead, frames, overrun, cut })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn however_connections_die_no_corrupt_sample_passes_and_the_books_balance(
        parts in prop::collection::vec(part(), 1..4),
        pieces in prop::collection::vec(1usize..5000, 1..5),
        early in any::<bool>(), lazy in 0usize..3, tail in 0u64..700, scaled in any::<bool>()
    ) {
        let process = if scaled { Process::Scaled } else { Process::Raw };
        let (mut at, mut reached) = (0u64, 0u64);
        let mut wires = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            // Never before the start of the first connection: no server goes back.
            let missed = if n == 0 { part.ahead.unsigned_abs() } else { at.saturating_add_signed(part.ahead) };
            let missed = if n > 0 { missed.max(parts[0].ahead.unsigned_abs()) } else { missed };
            let mut sent = Sent::new().header(&header(missed, 1, process));
            let head = sent.0.len();
            at = missed;
            let last = part.frames.len() - 1;
            for (k, &samples) in part.frames.iter().enumerate() {
                // Only raw frames can be overwritten while they are sent.
                let bad = part.overrun.filter(|_| k == last && !scaled);
                let corrupt_from = bad.map_or(u64::MAX, |bad| at + bad.min(samples));
                sent = sent.frame(at, samples, corrupt_from);
                at += samples;
            }
            reached = reached.max(at);
            if part.overrun.is_some() {
                sent = sent.end(at - missed, EndReason::DataOverrun);
            } else {
                let left = sent.0.len().saturating_sub(part.cut).max(head);
                sent.0.truncate(left);
            }
            wires.push(sent);
        }
        // The last connection may repeat samples of earlier ones, and reaches at least as far as any of them.
        let total = reached.max(at + tail);
        let sent = Sent::new().header(&header(at, 1, process)).frame(at, total - at, u64::MAX);
        wires.push(sent.end(total - at, EndReason::Ok));
        let early = early.then_some(Duration::ZERO);
        let kept = Kept { lazy, early, ..Kept::default() };
        let run = record_into(kept, wires, &pieces, Captured::Over(total), settings(1));
        prop_assert!(matches!(run.ended, SourceEnd::Done), "{:?}", run.ended);
        let (rows, account) = (&run.kept.rows[0], &run.kept.closed[0].account);
        all_true(rows);
        prop_assert_eq!(rows.len() as u64, account.terms.written);
        prop_assert_eq!(account.terms.expected, total);
        prop_assert!(rows.last().is_none_or(|&(index, _)| index < total));
        prop_assert_ne!(account.verdict, Verdict::Unexplained);
        let lost: u64 = account.gaps.iter().map(|gap| gap.count).sum();
        prop_assert_eq!(lost + account.terms.written, total);
        for gap in &account.gaps {
            let inside = |&(index, _): &(u64, u32)| {
                (gap.first..gap.first + gap.count as i64).contains(&(index as i64))
            };
            prop_assert!(!rows.iter().any(inside), "{:?} is written too", gap);
            prop_assert!(matches!(gap.cause, Cause::Missing | Cause::Damaged));
        }
    }
}
