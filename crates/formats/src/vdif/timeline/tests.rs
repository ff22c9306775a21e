use std::collections::HashSet;

use super::super::SampleRate;
use super::*;
use proptest::prelude::*;

const MIDNIGHT: u32 = 86_400;

/// Returns a header of one thread of 8032-byte frames.
fn header(second: Second, frame: u32) -> Header {
    let mut header = Header::default().with_frame_bytes(8032).with_reference_epoch(53);
    header.set_time(second, frame);
    header
}

fn at(seconds: u32) -> Second {
    Second::of(53, seconds)
}

fn at_second(n: usize) -> Second {
    at(n as u32)
}

/// Returns the frames of the thread: `count` frames from frame `from` of second `start`.
fn sent(start: Second, from: u32, count: u32, rate: u32) -> impl Iterator<Item = (Second, u32)> {
    (from..from + count).map(move |n| (Second(start.0 + i64::from(n / rate)), n % rate))
}

#[test]
fn the_usual_stream_counts_on_across_seconds() {
    let mut timeline = Timeline::new(None);
    for (n, (second, frame)) in sent(at(100), 0, 12_000, 4000).enumerate() {
        assert_eq!(timeline.observe(&header(second, frame)), n as i64);
    }
    assert_eq!(timeline.frames_per_second(), Some(4000));
    assert!(timeline.is_derived());
    assert_eq!(timeline.position(8001), Some((at(102), 1)));
    assert_eq!(timeline.position(-1), Some((at(99), 3999)));
    assert_eq!(timeline.time(8001), Some(at(102).start().plus_ns(250_000)));
    assert_eq!(timeline.correction(), 0);
}

#[test]
fn a_first_second_of_unknown_rate_has_positions_and_no_times() {
    let mut timeline = Timeline::new(None);
    assert_eq!(timeline.position(0), None);
    assert_eq!(timeline.observe(&header(at(5), 1000)), 1000);
    assert_eq!(timeline.frames_per_second(), None);
    assert!(!timeline.is_derived());
    assert_eq!(timeline.position(3), Some((at(5), 3)));
    assert_eq!(timeline.position(70_000), None);
    assert_eq!(timeline.position(-1), None);
    assert_eq!(timeline.time(3), None);
}

#[test]
fn a_rate_that_is_given_holds_from_the_first_frame() {
    let mut timeline = Timeline::new(Some(4000));
    assert_eq!(timeline.observe(&header(at(7), 3998)), 3998);
    assert_eq!(timeline.index(&header(at(8), 2)), 4002);
    assert_eq!(timeline.index(&header(at(6), 3999)), -1);
    assert_eq!(timeline.observe(&header(at(7), 4000)), NOWHERE);
    assert_eq!(timeline.frames_per_second(), Some(4000));
    assert!(!timeline.is_derived());
    assert_eq!(Timeline::new(Some(4000)).observe(&header(at(7), 4000)), NOWHERE);
}

#[test]
fn rates_that_cannot_be_count_as_not_given() {
    for rate in [0, (1 << 24) + 1, u64::MAX] {
        assert_eq!(Timeline::new(Some(rate)).frames_per_second(), None);
    }
}

#[test]
fn a_loss_at_the_first_boundary_is_bridged_by_a_round_rate() {
    for lost in 0..=31 {
        let mut timeline = Timeline::new(None);
        timeline.observe(&header(at(0), 3999 - lost));
        assert_eq!(timeline.observe(&header(at(1), 0)), 4000, "{lost} lost");
        assert_eq!(timeline.frames_per_second(), Some(4000));
    }
}

#[test]
fn a_frame_lost_or_overtaken_just_at_the_first_boundary_has_its_place() {
    let small = |second, frame| header(second, frame).with_frame_bytes(1056);
    for lost in 0..=2 {
        let mut timeline = Timeline::new(None);
        timeline.observe(&small(at(0), 999 - lost));
        assert_eq!(timeline.observe(&small(at(1), 0)), 1000, "{lost} overtaken");
        for overtaken in 1000 - lost..1000 {
            assert_eq!(timeline.observe(&small(at(0), overtaken)), i64::from(overtaken));
        }
        assert_eq!(timeline.observe(&small(at(1), 999)), 1999);
        assert_eq!(timeline.observe(&small(at(2), 0)), 2000);
        assert_eq!((timeline.frames_per_second(), timeline.correction()), (Some(1000), 0));
    }
}

#[test]
fn a_second_of_an_odd_rate_is_early_until_one_before_it_has_confirmed_the_rate() {
    let mut timeline = Timeline::new(None);
    let mut early = Vec::new();
    for (second, frame) in sent(at(0), 0, 4 * 3907, 3907) {
        let header = header(second, frame);
        if timeline.is_early(&header) {
            early.push(second.0 - at(0).0);
            timeline.settle();
            assert!(!timeline.is_early(&header), "nobody waits any longer");
        }
        timeline.observe(&header);
    }
    assert_eq!(early, [1, 2], "the second border confirms what the first one showed");
    // If the rate is given, or round, waiting is not necessary.
    for (given, last) in [(Some(3907), 3906), (None, 3999), (None, 3998)] {
        let mut timeline = Timeline::new(given);
        timeline.observe(&header(at(0), last));
        assert!(!timeline.is_early(&header(at(1), 0)), "{given:?} {last}");
    }
    let mut waiting = Timeline::new(None);
    waiting.observe(&header(at(0), 3905));
    assert!(waiting.is_early(&header(at(1), 0)));
    waiting.observe(&header(at(0), 3906));
    waiting.settle();
    assert_eq!(waiting.observe(&header(at(1), 0)), 3907);
    assert_eq!((waiting.frames_per_second(), waiting.correction()), (Some(3907), 0));
}

#[test]
fn a_rate_that_headers_tell_and_frames_refute_is_learnt_anew_and_costs_no_place() {
    let rate = SampleRate { in_mhz: true, count: 16 };
    let template = header(at(0), 0)
        .with_frame_bytes(5032)
        .with_bits_per_sample(2)
        .with_extended(Extended::Nict { rate, das: *b"test\0\0\0\0" });
    let template = template.with_complex(true);
    assert_eq!(template.frames_per_second(), Some(1600));
    let mut timeline = Timeline::new(None);
    for (n, (second, frame)) in sent(at(0), 0, 20_000, 5000).enumerate() {
        let mut header = template;
        header.set_time(second, frame);
        assert_eq!(timeline.observe(&header), n as i64);
        assert_eq!(timeline.refuted().is_some(), n >= 1600, "{n}");
    }
    assert_eq!(timeline.frames_per_second(), Some(5000));
    assert!(timeline.is_derived());
    assert_eq!((timeline.refuted(), timeline.correction()), (Some((1600, 5000)), 0));
}

#[test]
fn a_given_rate_is_doubted_once_two_seconds_have_ended_far_below_it() {
    let mut timeline = Timeline::new(Some(2000));
    for (n, (second, frame)) in sent(at(0), 0, 3000, 1000).enumerate() {
        let mut header = header(at(0), 0);
        header.set_time(second, frame);
        timeline.observe(&header);
        assert_eq!(timeline.exaggerated(), (n >= 2000).then_some((2000, 1000)), "{n}");
    }
    // Frames that are lost anywhere do not shorten the seconds.
    let mut timeline = Timeline::new(Some(2000));
    for (second, frame) in sent(at(0), 0, 8000, 2000) {
        if (i64::from(frame) + second.0 * 7) % 13 != 0 {
            let mut header = header(at(0), 0);
            header.set_time(second, frame);
            timeline.observe(&header);
        }
    }
    assert_eq!(timeline.exaggerated(), None);
}

proptest! {
    #[test]
    fn whatever_the_rate_it_is_found_and_no_frame_is_invented(
        rate in prop::sample::select(vec![20u32, 64, 98, 99, 100, 469, 600, 1000, 3936, 3999, 4000]),
        words in 4u32..1100, from in any::<prop::sample::Index>(),
    ) {
        // At the end of a second too few frames arrive before the boundary to show its position.
        let from = from.index(rate as usize - 16) as u32 / 2;
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(0), from, 5 * rate, rate).enumerate() {
            let header = header(second, frame).with_frame_bytes(words * 8);
            prop_assert_eq!(timeline.observe(&header), n as i64 + i64::from(from));
        }
        prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(rate)));
    }

    #[test]
    fn no_two_frames_share_a_place_while_rates_rise_and_fall(
        ends in prop::collection::vec((60u32..70, 0u32..4, 0u32..6), 2..12),
        words in 4u32..1100, from in 0u32..50, swapped in any::<bool>(),
    ) {
        let mut timeline = Timeline::new(None);
        let mut sent: Vec<(Second, u32)> = Vec::new();
        for (n, (end, lost, at)) in ends.iter().enumerate() {
            let begin = if n == 0 { from } else { 0 };
            let gone = end.saturating_sub(lost + at)..end.saturating_sub(*at);
            let frames = (begin..*end).filter(|frame| !gone.contains(frame));
            sent.extend(frames.map(|frame| (at_second(n), frame)));
        }
        if swapped {
            // The last frame of each second arrives after the first of the next.
            for k in 1..sent.len() {
                if sent[k].1 == 0 {
                    sent.swap(k - 1, k);
                }
            }
        }
        let mut placed = std::collections::BTreeMap::new();
        for (second, frame) in sent {
            let header = header(second, frame).with_frame_bytes(words * 8);
            let index = timeline.index(&header);
            prop_assert_eq!(timeline.observe(&header), index);
            if index != NOWHERE {
                prop_assert_eq!(placed.insert(index, (second, frame)), None);
            }
        }
        prop_assert!(placed.values().is_sorted());
        for (index, frame) in placed {
            prop_assert_eq!(timeline.position(index), Some(frame));
        }
    }

    #[test]
    fn a_rate_taken_too_high_is_lowered_after_three_seconds(
        shown in 200u32..4000, lost in 1u32..16, words in 4u32..1100
    ) {
        let mut timeline = Timeline::new(None);
        for (second, frame) in sent(at(0), 0, 6 * shown, shown) {
            // Frames shortly before the end of the first second are lost, so it may be longer.
            let gone = second == at(0) && (shown - 2 - lost..shown - 2).contains(&frame);
            if !gone {
                timeline.observe(&header(second, frame).with_frame_bytes(words * 8));
            }
        }
        prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(shown)));
    }
}

#[test]
fn a_stream_that_begins_late_in_a_second_invents_no_frame_at_its_end() {
    // With 1000 bytes of payload, 125 frames a second are a whole number of Mbit/s.
    for (rate, begins) in [(100, 66), (100, 90), (110, 40), (110, 95), (200, 170), (990, 980)] {
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(100), begins, 3 * rate, rate).enumerate() {
            let header = header(second, frame).with_frame_bytes(1032);
            let index = n as i64 + i64::from(begins);
            assert_eq!(timeline.observe(&header), index, "{rate} from {begins}");
        }
        assert_eq!(timeline.frames_per_second(), Some(rate.into()));
        assert_eq!(timeline.correction(), 0);
    }
}

#[test]
fn a_rate_that_is_not_round_is_taken_as_it_is() {
    let mut timeline = Timeline::new(None);
    for (n, (second, frame)) in sent(at(0), 0, 9000, 3900).enumerate() {
        assert_eq!(timeline.observe(&header(second, frame)), n as i64);
    }
    assert_eq!(timeline.frames_per_second(), Some(3900));
}

#[test]
fn a_rate_found_too_small_is_raised_for_later_seconds_and_the_rest_is_a_correction() {
    let mut timeline = Timeline::new(None);
    timeline.observe(&header(at(0), 3899)); // a hundred are lost
    assert_eq!(timeline.observe(&header(at(3), 0)), 3 * 3900);
    assert_eq!(timeline.frames_per_second(), Some(3900));
    assert_eq!(timeline.observe(&header(at(3), 3999)), 3 * 3900 + 3999);
    assert_eq!(timeline.frames_per_second(), Some(4000));
    assert_eq!(timeline.observe(&header(at(4), 0)), 3 * 3900 + 4000);
    assert_eq!(timeline.correction(), 3 * 100);
    assert_eq!(timeline.index(&header(at(2), 5)), 2 * 3900 + 5, "earlier starts stay");
    assert_eq!(timeline.index(&header(at(2), 3900)), NOWHERE);
    assert_eq!(timeline.position(2 * 3900 + 5), Some((at(2), 5)));
}

#[test]
fn a_rate_raised_twice_corrects_each_boundary_once() {
    let mut timeline = Timeline::new(None);
    for (second, last) in [(0, 3799), (1, 3899), (2, 3999)] {
        timeline.observe(&header(at(second), last));
    }
    assert_eq!(timeline.observe(&header(at(3), 0)), 3800 + 3900 + 4000);
    assert_eq!(timeline.correction(), 200 + 100);
}

#[test]
fn frames_of_the_second_before_may_come_after_the_first() {
    let mut timeline = Timeline::new(None);
    assert_eq!(timeline.observe(&header(at(1), 1)), 1);
    assert_eq!(timeline.observe(&header(at(0), 3998)), -2);
    assert_eq!(timeline.observe(&header(at(0), 3999)), -1);
    assert_eq!(timeline.observe(&header(at(1), 0)), 0);
    assert_eq!(timeline.position(-2), Some((at(0), 3998)));
    assert_eq!(timeline.frames_per_second(), Some(4000));
}

#[test]
fn an_invalid_frame_that_fits_nowhere_has_an_index_and_teaches_nothing() {
    let mut timeline = Timeline::new(None);
    let strange = header(at(900), 12_000_000).with_invalid(true);
    assert_eq!(timeline.observe(&strange), 12_000_000);
    assert_eq!(timeline.observe(&header(at(0), 0)), 0);
    timeline.observe(&strange);
    assert_eq!(timeline.observe(&header(at(0), 3999)), 3999);
    assert_eq!(timeline.observe(&header(at(1), 0)), 4000);
}

fn with_rate(header: Header, rate: Extended) -> Header {
    header.with_frame_bytes(5032).with_bits_per_sample(2).with_extended(rate)
}

#[test]
fn the_extended_data_tell_the_rate_before_any_boundary() {
    let rate = SampleRate { in_mhz: true, count: 16 };
    let vlba = Extended::Vlba {
        rate,
        lo_tuning: 0,
        unassigned: 0,
        dbe: 0,
        intermediate: 0,
        subband: 0,
        upper_sideband: true,
        major: 0,
        minor: 0,
        personality: 0,
    };
    let mut timeline = Timeline::new(None);
    timeline.observe(&with_rate(header(at(0), 7), Extended::Zero { words: [0; 4] }));
    assert_eq!(timeline.frames_per_second(), None);
    timeline.observe(&with_rate(header(at(0), 8), vlba));
    assert_eq!(timeline.frames_per_second(), Some(1600));
    assert!(!timeline.is_derived());
    assert_eq!(timeline.observe(&with_rate(header(at(2), 0), vlba)), 3200);
}

#[test]
fn a_sender_that_counts_real_samples_in_version_1_is_understood() {
    let rate = SampleRate { in_mhz: true, count: 32 };
    let nict = Extended::Nict { rate, das: *b"counting" };
    let mut timeline = Timeline::new(None);
    for (n, (second, frame)) in sent(at(0), 900, 4000, 1600).enumerate() {
        let index = timeline.observe(&with_rate(header(second, frame), nict));
        assert_eq!(index, 900 + n as i64);
    }
    assert_eq!(timeline.frames_per_second(), Some(1600));
    assert!(!timeline.is_derived());
    assert_eq!(timeline.correction(), 0);
}

#[test]
fn an_epoch_change_is_seamless_with_and_without_a_leap_second() {
    // The half-year 33 had 184 days and ended with a leap second; 35 had 184 days and none.
    for (epoch, last) in [(33, 184 * MIDNIGHT), (35, 184 * MIDNIGHT - 1)] {
        let mut timeline = Timeline::new(Some(4000));
        let before = header(at(0), 3999).with_reference_epoch(epoch).with_seconds(last);
        let after = header(at(0), 0).with_reference_epoch(epoch + 1).with_seconds(0);
        assert_eq!(timeline.observe(&before), 3999);
        assert_eq!(timeline.observe(&after), 4000);
        assert_eq!(before.second().0 + 1, after.second().0);
        let still_counted = before.with_seconds(last + 1).with_frame_number(0);
        assert_eq!(timeline.index(&still_counted), 4000, "the old epoch may go on");
    }
}

#[test]
fn the_leap_second_itself_has_its_own_time() {
    let second = Second::of(33, 184 * MIDNIGHT);
    let before = "2016-12-31T23:59:59Z".parse().unwrap();
    let after: Tai = "2017-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(second.start().since(before), 1_000_000_000);
    assert_eq!(after.since(second.start()), 1_000_000_000);
}

#[test]
fn midnight_is_a_second_like_any_other() {
    let mut timeline = Timeline::new(None);
    let start = at(3 * MIDNIGHT - 1);
    for (n, (second, frame)) in sent(start, 0, 8000, 4000).enumerate() {
        assert_eq!(timeline.observe(&header(second, frame)), n as i64);
    }
}

#[test]
fn seconds_that_no_header_can_tell_become_the_nearest() {
    assert_eq!(Second(i64::MIN).since_epoch(53), (0, 0));
    assert_eq!(Second(i64::MAX).since_epoch(53), (53, 0x3FFF_FFFF));
    assert_eq!(Second(i64::MAX).since_epoch(u32::MAX).0, 63);
}

#[test]
fn a_sender_that_raises_its_rate_for_ever_is_not_followed_for_ever() {
    let mut timeline = Timeline::new(None);
    for n in 0..1000 {
        timeline.observe(&header(at(n), 1000 * n));
    }
    let segments = &timeline.seen.as_ref().unwrap().segments;
    assert!(segments.len() <= SEGMENTS);
    assert_eq!(timeline.observe(&header(at(1000), 1_000_000)), NOWHERE);
}

/// A stream, its losses, and its reordering.
#[derive(Clone, Debug)]
struct Course {
    rate: u32,
    told: bool,
    from: u32,
    count: u32,
    lost: Vec<(u32, u32)>,
    skipped: Option<u32>,
    shuffle: Vec<u32>,
}

fn course() -> impl Strategy<Value = Course> {
    // Round rates, and others that are too far below the next round one to be confused with it.
    let rate = prop_oneof![(1u32..6).prop_map(|n| 125 * n), (4u32..9).prop_map(|n| 125 * n - 60)];
    (rate, any::<bool>()).prop_flat_map(|(rate, told)| {
        (
            0..rate,
            1..rate * 6,
            prop::collection::vec((0..rate * 6, 1u32..90), 0..6),
            prop::option::of(0u32..5),
            prop::collection::vec(0u32..64, 64),
        )
            .prop_map(move |(from, count, lost, skipped, shuffle)| Course {
                rate,
                told,
                from,
                count,
                lost,
                skipped,
                shuffle,
            })
    })
}

impl Course {
    /// Returns the frames in order of arrival, each with its number since frame 0 of the first second.
    fn arrivals(&self) -> Vec<(u32, Header)> {
        let lost = |n: u32| self.lost.iter().any(|&(at, count)| (at..at + count).contains(&n));
        let skipped = |n: u32| self.skipped == Some(n / self.rate);
        // The leap second and the end of the epoch are in the middle of it.
        let start = Second::of(33, 184 * MIDNIGHT - 2);
        let mut arrivals: Vec<_> = sent(start, self.from, self.count, self.rate)
            .zip(self.from..)
            .filter(|&(_, n)| !lost(n) && !skipped(n))
            .map(|((second, frame), n)| {
                let epoch = if second < Second::of(34, 0) { 33 } else { 34 };
                let mut header = header(at(0), 0).with_reference_epoch(epoch);
                header.set_time(second, frame);
                (n, header)
            })
            .collect();
        arrivals.sort_by_key(|&(n, _)| n + self.shuffle[(n % 64) as usize]);
        arrivals
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_and_however_frames_overtake_every_place_is_its_own(course in course()) {
        let arrivals = course.arrivals();
        let mut timeline = Timeline::new(course.told.then_some(u64::from(course.rate)));
        let mut placed = Vec::new();
        for &(n, header) in &arrivals {
            let index = timeline.index(&header);
            prop_assert_eq!(timeline.observe(&header), index, "asking and observing agree");
            prop_assert!(index != NOWHERE || !course.told, "a true rate leaves nobody out");
            if index != NOWHERE {
                placed.push((n, index, header));
            }
        }
        let places: HashSet<i64> = placed.iter().map(|&(_, index, _)| index).collect();
        prop_assert_eq!(places.len(), placed.len(), "no two frames share a place");
        placed.sort_by_key(|&(n, ..)| n);
        prop_assert!(placed.is_sorted_by_key(|&(_, index, _)| index), "order is kept");
        for &(_, index, header) in &placed {
            let position = Some((header.second(), header.frame_number()));
            prop_assert_eq!(timeline.position(index), position, "and the way back is known");
            prop_assert_eq!(timeline.index(&header), index, "for ever");
        }
    }

    #[test]
    fn once_the_rate_has_shown_indices_and_correction_add_up_to_the_truth(course in course()) {
        let mut timeline = Timeline::new(course.told.then_some(u64::from(course.rate)));
        let placed: Vec<_> = course
            .arrivals()
            .into_iter()
            .map(|(n, header)| (i64::from(n), timeline.observe(&header)))
            .filter(|&(_, index)| index != NOWHERE)
            .collect();
        let (Some(first), Some(last)) = (placed.iter().min(), placed.iter().max()) else {
            return Ok(());
        };
        let spans_seconds = first.0 / i64::from(course.rate) != last.0 / i64::from(course.rate);
        if timeline.frames_per_second() == Some(u64::from(course.rate)) || !spans_seconds {
            let counted = last.1 - first.1 + timeline.correction().cast_signed();
            prop_assert_eq!(counted, last.0 - first.0);
        }
    }

    #[test]
    fn any_frames_in_any_order_leave_the_clock_consistent(
        given in prop::option::of(0u64..1 << 25),
        frames in prop::collection::vec((0u32..64, 0u32..1 << 30, 0u32..1 << 24, any::<bool>()), 0..100),
    ) {
        let mut timeline = Timeline::new(given);
        for (epoch, seconds, frame, invalid) in frames {
            let header = header(Second::of(epoch, seconds), frame)
                .with_reference_epoch(epoch)
                .with_seconds(seconds)
                .with_invalid(invalid);
            let index = timeline.index(&header);
            prop_assert_eq!(timeline.observe(&header), index);
            prop_assert_eq!(timeline.index(&header), index);
            if index != NOWHERE && !invalid {
                prop_assert_eq!(timeline.position(index), Some((header.second(), frame)));
            }
            timeline.time(index);
            timeline.correction();
        }
    }
}

#[test]
fn no_index_however_strange_makes_the_way_back_fail() {
    let mut timeline = Timeline::new(None);
    timeline.observe(&header(at(0), 3999));
    timeline.observe(&header(at(1), 0));
    for index in [i64::MIN, NOWHERE, NOWHERE + 1, -1, i64::MAX] {
        timeline.position(index);
        timeline.time(index);
    }
    assert_eq!(timeline.position(NOWHERE), None);
}

/// The losses of frames in transit.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Random losses of single frames, per thousand.
    Scattered(u32),
    /// Runs of this length, and this many lost frames per thousand in all.
    Bursts(u32, u32),
    /// The same numbers in every second except the last, per thousand.
    Alike(u32),
}

impl Harm {
    fn hits(self, seed: u64, second: u32, number: u32, rate: u32) -> bool {
        let drawn = |what: u64, per_mille: u32, of: u32| {
            let mut bits = (seed ^ what).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            bits = (bits ^ (bits >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (bits ^ (bits >> 27)) % (1000 * u64::from(of)) < u64::from(per_mille)
        };
        let place = u64::from(second) << 32;
        match self {
            Harm::Scattered(few) => drawn(place | u64::from(number), few, 1),
            Harm::Bursts(length, few) => drawn(place | u64::from(number / length), few, 1),
            Harm::Alike(few) => number + 1 < rate && drawn(u64::from(number), few, 1),
        }
    }
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (0u32..50).prop_map(Harm::Scattered),
        (2u32..8, 0u32..40).prop_map(|(length, few)| Harm::Bursts(length, few)),
        (0u32..50).prop_map(Harm::Alike),
    ]
}

/// Frames per second as stations use them, and values next to those.
fn station_rate() -> impl Strategy<Value = u32> {
    let usual = vec![
        20u32, 25, 50, 64, 100, 125, 200, 250, 400, 469, 500, 625, 1000, 1250, 1600, 1953, 2000,
        3200, 3906, 4000, 5000, 6400, 7812, 8000,
    ];
    let fast =
        vec![10_000u32, 12_500, 12_800, 15_625, 16_000, 25_600, 31_250, 32_000, 62_500, 64_000];
    prop_oneof![
        20 => prop::sample::select(usual),
        1 => prop::sample::select(fast),
    ]
}

/// Bytes of a frame that give round rates, and others.
fn frame_bytes() -> impl Strategy<Value = u32> {
    let usual = prop::sample::select(vec![1032u32, 1056, 2032, 5032, 8032, 8224]);
    prop_oneof![usual, (5u32..1100).prop_map(|words| words * 8)]
}

/// Enough seconds that a number at which all of them end is rarely lost.
const SECONDS: u32 = 9;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn invalid_frames_come_like_any_other(
        rate in station_rate(), bytes in frame_bytes(), harm in harm(), seed in any::<u64>(),
    ) {
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(0), 0, 4 * rate, rate).enumerate() {
            // Other tests cover an invalid first frame and a run of invalid frames.
            let invalid = n > 0 && harm.hits(seed, (second.0 - at(0).0) as u32, frame, rate);
            let header = header(second, frame).with_frame_bytes(bytes).with_invalid(invalid);
            prop_assert_eq!(timeline.observe(&header), n as i64);
        }
        prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(rate)));
        prop_assert_eq!(timeline.correction(), 0);
    }

    #[test]
    fn whatever_is_lost_the_true_rate_is_found_and_no_more_is_missing_from_then_on(
        rate in station_rate(), bytes in frame_bytes(), harm in harm(), seed in any::<u64>(),
        from in any::<prop::sample::Index>(),
    ) {
        let from = from.index(rate as usize) as u32;
        let mut timeline = Timeline::new(None);
        let mut placed = Vec::new();
        let frames = sent(at(0), from, SECONDS * rate, rate).zip(i64::from(from)..);
        for ((second, frame), n) in frames {
            if harm.hits(seed, (second.0 - at(0).0) as u32, frame, rate) {
                continue;
            }
            let header = header(second, frame).with_frame_bytes(bytes);
            let index = timeline.observe(&header);
            prop_assert_ne!(index, NOWHERE);
            placed.push((second, n, index));
        }
        prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(rate)));
        let counted = |from: usize, correction: u64| {
            let (_, first, began) = placed[from];
            let (_, last, ends) = placed[placed.len() - 1];
            (ends - began) + correction.cast_signed() - (last - first)
        };
        let invented = counted(0, timeline.correction());
        prop_assert!((0..=3 * 64).contains(&invented), "{} invented", invented);
        let later = placed.iter().position(|it| it.0 >= at(SECONDS - 2)).unwrap();
        prop_assert_eq!(counted(later, 0), 0);
    }

    #[test]
    fn garbage_marked_invalid_teaches_nothing(
        rate in station_rate(), bytes in frame_bytes(),
        garbage in prop::collection::vec((0u32..64, 0u32..1 << 30, 0u32..1 << 24), 1..40),
        every in 1usize..20, near in any::<bool>(),
    ) {
        let mut timeline = Timeline::new(None);
        let mut garbage = garbage.iter().cycle();
        for (n, (second, frame)) in sent(at(0), 0, 3 * rate, rate).enumerate() {
            let good = header(second, frame).with_frame_bytes(bytes);
            prop_assert_eq!(timeline.observe(&good), n as i64);
            if n % every == 0 {
                let &(epoch, seconds, number) = garbage.next().unwrap();
                let strange = match near {
                    true => header(Second(second.0 - 1 + i64::from(seconds % 4)), number),
                    false => good.with_reference_epoch(epoch).with_seconds(seconds),
                };
                let strange = strange.with_frame_bytes(bytes).with_invalid(true);
                // The next frame in order would not be a wrong one.
                if (strange.second(), strange.frame_number()) != (second, frame + 1) {
                    timeline.observe(&strange.with_frame_number(number));
                }
            }
        }
        prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(rate)));
        prop_assert_eq!(timeline.correction(), 0);
    }
}

/// Observes seconds of `rate` frames, which `sent` may change or leave out, and returns index minus number.
fn drift(
    timeline: &mut Timeline,
    rate: u32,
    seconds: u32,
    sent_as: impl Fn(u32, u32, Header) -> Option<Header>,
) -> i64 {
    let mut drift = 0;
    for (n, (second, frame)) in sent(at(0), 0, seconds * rate, rate).enumerate() {
        let plain = header(second, frame).with_frame_bytes(1032);
        if let Some(header) = sent_as((second.0 - at(0).0) as u32, frame, plain) {
            drift = timeline.observe(&header) - n as i64;
        }
    }
    drift
}

#[test]
fn two_frames_marked_invalid_in_each_second_invent_none() {
    for invalid in [vec![3, 53], vec![98], vec![99], vec![0, 99], (60..100).collect()] {
        let mut timeline = Timeline::new(None);
        let drifted = drift(&mut timeline, 100, 5, |_, frame, header| {
            Some(header.with_invalid(invalid.contains(&frame)))
        });
        assert_eq!((drifted, timeline.correction()), (0, 0), "{invalid:?}");
        assert_eq!(timeline.frames_per_second(), Some(100), "{invalid:?}");
    }
}

#[test]
fn two_frames_lost_in_each_second_invent_none() {
    for lost in [vec![3, 53], vec![98], vec![50, 70, 90]] {
        let mut timeline = Timeline::new(None);
        let drifted = drift(&mut timeline, 100, 5, |_, frame, header| {
            (!lost.contains(&frame)).then_some(header)
        });
        assert_eq!((drifted, timeline.correction()), (0, 0), "{lost:?}");
        assert_eq!(timeline.frames_per_second(), Some(100), "{lost:?}");
    }
}

#[test]
fn a_stream_that_begins_with_invalid_frames_alone_has_a_place_for_each() {
    for given in [None, Some(100)] {
        let mut timeline = Timeline::new(given);
        let drifted = drift(&mut timeline, 100, 7, |second, _, header| {
            Some(header.with_invalid(second < 3 || second == 5))
        });
        assert_eq!((drifted, timeline.correction()), (0, 0), "{given:?}");
        assert_eq!(timeline.frames_per_second(), Some(100));
        assert_eq!(timeline.position(250), Some((at(2), 50)));
    }
}

#[test]
fn fill_frames_that_a_sender_made_up_at_the_end_of_its_first_second_are_forgotten() {
    let mut timeline = Timeline::new(None);
    let made_up = |second, frame| header(second, frame).with_frame_bytes(1032).with_invalid(true);
    for second in 0..6 {
        for frame in 0..100 {
            timeline.observe(&header(at(second), frame).with_frame_bytes(1032));
        }
        for frame in if second == 0 { 100..125 } else { 0..0 } {
            timeline.observe(&made_up(at(second), frame));
        }
    }
    assert_eq!(timeline.frames_per_second(), Some(100));
}

#[test]
fn a_rate_that_was_lowered_wrongly_rises_again_and_what_lacked_is_a_correction() {
    let mut timeline = Timeline::new(None);
    let drifted = drift(&mut timeline, 125, 6, |second, frame, header| {
        (second > 2 || frame < 100).then_some(header)
    });
    assert_eq!(timeline.frames_per_second(), Some(125));
    assert_eq!(drifted + timeline.correction().cast_signed(), 0);
}
