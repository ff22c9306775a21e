//! The packets that a camera is asked to send again.
//!
//! ```text
//! packets that come    0 1 2 . . 5 6 …       block 8: 3–4 are a gap
//!                      8 9 . .  | 0 1        block 9 begins: 10–11, the tail of block 8, are a gap too
//!
//! gap ──after 2 ms──► asked ──after 20 ms──► asked again … five times, or until 200 ms have passed: given up
//!    └── the packet comes ──► filled
//! ```
//!
//! A camera sends the packets of a request in order. While they come, those behind them are not asked for again: the link
//! would carry them several times.
//!
//! It opens no socket and reads no clock. The memory is bounded: 8 blocks with 256 gaps each. A
//! gap beyond that is not asked for.

use std::collections::VecDeque;
use std::time::Duration;

use super::blocks::BlockCounter;
use super::packet::{Content, Packet};

/// Blocks whose gaps are asked for.
const MOST_BLOCKS: usize = 8;

/// Gaps of a block that are asked for.
const MOST_GAPS: usize = 256;

/// The time for which a packet may be overtaken before it is asked for.
const GRACE: Duration = Duration::from_millis(2);

/// The time for the answer to a request.
const PATIENCE: Duration = Duration::from_millis(20);

/// The time after which a gap is given up: cameras keep packets for a few blocks only.
const WINDOW: Duration = Duration::from_millis(200);

/// The requests for a gap.
const MOST_REQUESTS: u8 = 5;

/// Packets of a block, and the most of them that are asked for.
const MOST_PACKETS: u32 = 1 << 24;

/// Packets of one block that a camera is asked to send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The block id.
    pub block: u64,
    /// True if ids are extended.
    pub extended: bool,
    /// The first packet.
    pub first: u32,
    /// The last packet.
    pub last: u32,
}

/// What became of packets that did not come at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resends {
    /// Requests sent.
    pub requests: u64,
    /// Packets that came after a request for them.
    pub filled: u64,
    /// Packets that the camera no longer had.
    pub unavailable: u64,
    /// Packets that did not come in time, among them those that the camera no longer had.
    pub given_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u32,
    last: u32,
    /// The time at which it was seen.
    since: Duration,
    /// The time of the next request.
    due: Duration,
    requests: u8,
}

impl Gap {
    fn packets(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }
}

#[derive(Clone, Debug)]
struct Block {
    id: u64,
    extended: bool,
    number: i64,
    /// The packet after the last one that has come.
    next: u32,
    gaps: Vec<Gap>,
}

impl Block {
    fn miss(&mut self, packets: std::ops::Range<u32>, now: Duration) {
        let end = packets.end.min(MOST_PACKETS);
        if packets.start < end && self.gaps.len() < MOST_GAPS {
            let (first, last) = (packets.start, end - 1);
            self.gaps.push(Gap { first, last, since: now, due: now + GRACE, requests: 0 });
        }
        self.next = self.next.max(packets.end);
    }

    /// Takes a packet out of its gap. Returns the gap as it was. Those behind an answer to a request are on their way.
    fn fill(&mut self, packet: u32, now: Duration) -> Option<Gap> {
        let at = self.gaps.iter().position(|gap| (gap.first..=gap.last).contains(&packet))?;
        let gap = self.gaps.swap_remove(at);
        if gap.first < packet {
            self.gaps.push(Gap { last: packet - 1, ..gap });
        }
        if packet < gap.last && self.gaps.len() < MOST_GAPS {
            let due = if gap.requests > 0 { gap.due.max(now + PATIENCE) } else { gap.due };
            self.gaps.push(Gap { first: packet + 1, due, ..gap });
        }
        Some(gap)
    }
}

/// The gaps of one stream. Times are those since any origin.
#[derive(Clone, Debug, Default)]
pub struct ResendTracker {
    blocks: VecDeque<Block>,
    counter: BlockCounter,
    resends: Resends,
    /// The earliest time at which anything is to be done.
    due: Option<Duration>,
}

impl ResendTracker {
    /// Takes the bytes of a packet that came at `now`. They may be cut after the leader of an image.
    pub fn take(&mut self, bytes: &[u8], length: usize, now: Duration) {
        let Ok(packet) = Packet::read(bytes) else { return };
        let number = self.counter.number(&packet);
        if packet.is_error() {
            self.refuse(&packet, number, now);
            return;
        }
        match packet.content {
            Content::Payload(_) => self.counter.learn_length(&packet, length),
            _ => self.counter.learn(&packet, bytes),
        }
        let Some(at) = self.block(&packet, number, now) else { return };
        let block = &mut self.blocks[at];
        if packet.packet == block.next {
            block.next = packet.packet.saturating_add(1);
            return;
        }
        if packet.packet > block.next {
            block.miss(block.next..packet.packet, now);
            block.next = packet.packet.saturating_add(1);
        } else if let Some(gap) = block.fill(packet.packet, now) {
            self.resends.filled += u64::from(gap.requests > 0);
        }
        self.find_due();
    }

    /// Forgets all blocks: the camera begins to count anew. What was asked for does not come any more.
    pub fn restart(&mut self) {
        let open = self.blocks.drain(..).flat_map(|block| block.gaps);
        self.resends.given_up += open.map(|gap| gap.packets()).sum::<u64>();
        (self.counter, self.due) = (BlockCounter::default(), None);
    }

    /// Returns the next request that is due at `now`.
    pub fn request(&mut self, now: Duration) -> Option<Request> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let request = self.blocks.iter_mut().find_map(|block| {
            let due = block.gaps.iter_mut().find(|gap| gap.due <= now && !is_over(gap, now))?;
            due.requests += 1;
            due.due = now + PATIENCE;
            let (first, last) = (due.first, due.last);
            Some(Request { block: block.id, extended: block.extended, first, last })
        });
        for block in &mut self.blocks {
            let given_up = block.gaps.extract_if(.., |gap| gap.due <= now && is_over(gap, now));
            self.resends.given_up += given_up.map(|gap| gap.packets()).sum::<u64>();
        }
        self.resends.requests += u64::from(request.is_some());
        self.find_due();
        request
    }

    /// The time at which a request is due; `None`: all packets have come, or were given up.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// What became of the packets that did not come at first. Gaps that are still open are not counted.
    pub fn resends(&self) -> Resends {
        self.resends
    }

    /// Gives up the packet that the camera no longer has. It may say so of one that is not yet there.
    fn refuse(&mut self, packet: &Packet, number: i64, now: Duration) {
        const NOT_YET: u16 = 0x8010;
        if packet.status == NOT_YET {
            return;
        }
        let Some(block) = self.blocks.iter_mut().find(|block| block.number == number) else {
            return;
        };
        if block.fill(packet.packet, now).is_some() {
            self.resends.unavailable += 1;
            self.resends.given_up += 1;
        }
        self.find_due();
    }

    /// The place of a packet's block. Blocks between the newest one and this one are lost so far, and the newest one has
    /// ended.
    fn block(&mut self, packet: &Packet, number: i64, now: Duration) -> Option<usize> {
        if let Some(at) = self.blocks.iter().rposition(|block| block.number == number) {
            return Some(at);
        }
        let usual = self.counter.usual().and_then(|packets| u32::try_from(packets).ok());
        if let Some(newest) = self.blocks.back_mut() {
            let (last, id) = (newest.number, newest.id);
            if number < last {
                return None;
            }
            if let Some(packets) = self.counter.packets_of(last).or(usual) {
                newest.miss(newest.next..packets, now);
            }
            let lost = number - last - 1;
            if let Some(packets) = usual.filter(|_| lost < MOST_BLOCKS as i64) {
                for step in 1..=lost {
                    let id = successor(id, step as u64, packet);
                    self.open(id, last + step, packet.extended);
                    let block = self.blocks.back_mut().expect("it was opened");
                    block.miss(0..packets, now);
                }
            }
        }
        let is_first = self.blocks.is_empty();
        self.open(packet.block, number, packet.extended);
        let block = self.blocks.back_mut()?;
        if is_first {
            // What came before the first packet is not part of the recording.
            block.next = packet.packet;
        }
        self.find_due();
        Some(self.blocks.len() - 1)
    }

    fn open(&mut self, id: u64, number: i64, extended: bool) {
        if self.blocks.len() == MOST_BLOCKS
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.resends.given_up += oldest.gaps.iter().map(Gap::packets).sum::<u64>();
        }
        self.blocks.push_back(Block { id, extended, number, next: 0, gaps: Vec::new() });
    }

    fn find_due(&mut self) {
        self.due = self.blocks.iter().flat_map(|block| &block.gaps).map(|gap| gap.due).min();
    }
}

/// True if a gap is asked for no more. It is asked for once, however late: requests wait for the answer to a heartbeat.
fn is_over(gap: &Gap, now: Duration) -> bool {
    let is_late = gap.requests > 0 && now.saturating_sub(gap.since) >= WINDOW;
    gap.requests >= MOST_REQUESTS || is_late
}

/// The id so many blocks after another one. An id of 16 bits is never 0. The other one can be longer: a camera may change
/// the form of its ids.
fn successor(id: u64, step: u64, packet: &Packet) -> u64 {
    match packet.extended {
        true => id.wrapping_add(step),
        false => ((id.max(1) - 1) % 0xFFFF + step) % 0xFFFF + 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::write::{Images, LONGEST_HEAD};
    use super::*;

    const IMAGES: Images = Images { payload_packets: 8, payload_bytes: 30, extended: false };

    fn packet(number: u64) -> Vec<u8> {
        let mut bytes = vec![0; LONGEST_HEAD + 30];
        let (head, payload) = IMAGES.write(number, &mut bytes).unwrap();
        bytes.truncate(head + payload);
        bytes
    }

    #[test]
    fn a_short_id_follows_a_long_one() {
        let bytes = packet(1);
        let short = Packet::read(&bytes).unwrap();
        assert_eq!([1, 0xFFFF].map(|id| successor(id, 1, &short)), [2, 1]);
        assert!((1..=0xFFFF).contains(&successor(u64::MAX, 9, &short)));
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn tracker(numbers: impl IntoIterator<Item = u64>) -> ResendTracker {
        let mut tracker = ResendTracker::default();
        for number in numbers {
            let bytes = packet(number);
            tracker.take(&bytes, bytes.len(), ms(0));
        }
        tracker
    }

    fn requests(tracker: &mut ResendTracker, now: Duration) -> Vec<(u64, u32, u32)> {
        let requests = std::iter::from_fn(|| tracker.request(now));
        requests.map(|it| (it.block, it.first, it.last)).collect()
    }

    #[test]
    fn a_gap_is_asked_for_after_a_grace_and_again_until_it_is_filled() {
        let mut tracker = tracker((0..10).chain([10, 11, 14, 15]));
        assert_eq!(requests(&mut tracker, ms(1)), []);
        assert_eq!(requests(&mut tracker, ms(2)), [(2, 2, 3)]);
        assert_eq!(requests(&mut tracker, ms(10)), []);
        let bytes = packet(12);
        tracker.take(&bytes, bytes.len(), ms(11));
        assert_eq!(requests(&mut tracker, ms(30)), []);
        assert_eq!(requests(&mut tracker, ms(31)), [(2, 3, 3)]);
        let bytes = packet(13);
        tracker.take(&bytes, bytes.len(), ms(32));
        assert_eq!((requests(&mut tracker, ms(100)), tracker.due()), (vec![], None));
        let expected = Resends { requests: 2, filled: 2, ..Resends::default() };
        assert_eq!(tracker.resends(), expected);
    }

    #[test]
    fn packets_that_are_on_their_way_are_not_asked_for_again() {
        let images = Images { payload_packets: 300, payload_bytes: 30, extended: false };
        let packet = |number: u64| {
            let mut bytes = vec![0; LONGEST_HEAD + 30];
            let (head, payload) = images.write(number, &mut bytes).unwrap();
            bytes.truncate(head + payload);
            bytes
        };
        let mut tracker = ResendTracker::default();
        for bytes in [packet(0), packet(250)] {
            tracker.take(&bytes, bytes.len(), ms(0));
        }
        assert_eq!(requests(&mut tracker, ms(2)), [(1, 1, 249)]);
        // The camera sends one of them each millisecond. One does not come.
        for number in (1..250).filter(|number| *number != 100) {
            let bytes = packet(number);
            tracker.take(&bytes, bytes.len(), ms(2 + number));
            let asked = requests(&mut tracker, ms(2 + number));
            assert!(asked.iter().all(|it| *it == (1, 100, 100)), "{number}: {asked:?}");
        }
        assert_eq!(tracker.resends().filled, 248);
    }

    #[test]
    fn packets_that_overtake_others_are_not_asked_for() {
        let mut tracker = tracker([0, 2, 1, 4, 3, 5]);
        assert_eq!((requests(&mut tracker, ms(5)), tracker.due()), (vec![], None));
        assert_eq!(tracker.resends(), Resends::default());
    }

    #[test]
    fn the_tail_of_a_block_and_blocks_lost_wholly_are_asked_for() {
        let mut tracker = tracker((0..10).chain(10..17).chain(40..42));
        let expected = [(2, 7, 9), (3, 0, 9), (4, 0, 9)];
        assert_eq!(requests(&mut tracker, ms(3)), expected);
    }

    #[test]
    fn ids_of_16_bits_go_around_without_zero() {
        let from = 65_533 * 10;
        let mut tracker = tracker((from..from + 10).chain(from + 30..from + 31));
        assert_eq!(requests(&mut tracker, ms(3)), [(65_535, 0, 9), (1, 0, 9)]);
    }

    #[test]
    fn a_gap_that_stays_is_given_up_and_one_the_camera_refuses_at_once() {
        let mut tracker = tracker((0..10).chain([10, 12, 14]));
        let mut told = 0;
        for now in 0..300 {
            told += requests(&mut tracker, ms(now)).len();
        }
        assert_eq!((told, tracker.due()), (2 * 5, None));
        assert_eq!(tracker.resends().given_up, 2);
        let mut refused = self::tracker((0..10).chain([10, 12]));
        let mut error = packet(11)[..8].to_vec();
        error[..2].copy_from_slice(&0x800Cu16.to_be_bytes());
        refused.take(&error, 8, ms(1));
        assert_eq!(requests(&mut refused, ms(5)), []);
        let expected = Resends { unavailable: 1, given_up: 1, ..Resends::default() };
        assert_eq!(refused.resends(), expected);
    }

    #[test]
    fn a_gap_is_asked_for_once_after_a_long_pause() {
        let mut tracker = tracker((0..10).chain([10, 12]));
        assert_eq!(requests(&mut tracker, ms(300)), [(2, 1, 1)]);
        assert_eq!((requests(&mut tracker, ms(320)), tracker.due()), (vec![], None));
        assert_eq!(tracker.resends().given_up, 1);
    }

    #[test]
    fn a_camera_that_counts_anew_is_asked_again() {
        let mut tracker = tracker((0..500).chain([502]));
        tracker.restart();
        assert_eq!((tracker.due(), tracker.resends().given_up), (None, 2));
        for number in (0..12).chain([14]) {
            let bytes = packet(number);
            tracker.take(&bytes, bytes.len(), ms(0));
        }
        assert_eq!(requests(&mut tracker, ms(2)), [(2, 2, 3)]);
    }

    #[test]
    fn the_bytes_behind_the_header_of_a_payload_are_not_needed() {
        let mut tracker = ResendTracker::default();
        // The trailer of block 1 is lost: its length is known from its leader and from the length of packet 1.
        for number in (0..5).chain(10..12) {
            let bytes = packet(number);
            let seen = if number == 1 { 9 } else { bytes.len() };
            tracker.take(&bytes[..seen], bytes.len(), ms(0));
        }
        assert_eq!(requests(&mut tracker, ms(3)), [(1, 5, 9)]);
    }

    proptest! {
        #[test]
        fn each_packet_that_does_not_come_is_asked_for_and_no_other(
            lost in prop::collection::btree_set(10u64..100, 0..40),
        ) {
            let mut tracker = tracker((0..110).filter(|number| !lost.contains(number)));
            let mut asked = std::collections::BTreeSet::new();
            for (block, first, last) in requests(&mut tracker, ms(3)) {
                for place in first..=last {
                    prop_assert!(asked.insert((block - 1) * 10 + u64::from(place)));
                }
            }
            // The blocks that are kept: the last eight.
            let kept: std::collections::BTreeSet<u64> = lost.into_iter().filter(|number| *number >= 30).collect();
            let asked: std::collections::BTreeSet<u64> = asked.into_iter().filter(|number| *number >= 30).collect();
            prop_assert_eq!(asked, kept);
        }

        #[test]
        fn any_packets_are_taken_within_bounds(
            packets in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>(), 0u64..500), 0..200),
        ) {
            let mut tracker = ResendTracker::default();
            for (block, packet, extended, now) in packets {
                let mut bytes = vec![0; 40];
                let packet = Packet { status: 0, block, packet: packet.max(1), extended, content: Content::Payload(3) };
                packet.write(&mut bytes).unwrap();
                tracker.take(&bytes, 40, ms(now));
                while tracker.request(ms(now)).is_some() {}
                prop_assert!(tracker.blocks.len() <= MOST_BLOCKS);
                prop_assert!(tracker.blocks.iter().all(|block| block.gaps.len() <= MOST_GAPS));
            }
        }
    }
}
