use proptest::prelude::*;

use super::*;
use crate::account::{Edge, Flow, Host, HostMember};

/// A second, in nanoseconds.
const S: i64 = 1_000_000_000;

fn account(terms: Terms, verdict: Verdict) -> Account {
    let expected = terms.sum();
    let mut account = Account::new(CountedBy::FrameTime);
    (account.terms, account.verdict) = (Terms { expected, ..terms }, verdict);
    account
}

fn written(written: u64) -> Terms {
    Terms { written, ..Terms::default() }
}

fn part(name: &str, account: &Account) -> StreamCompleteness {
    StreamCompleteness::of_account(name, account)
}

fn told(parts: Vec<StreamCompleteness>) -> Completeness {
    Completeness::judged(parts, None, State::Sealed, &[])
}

fn full_disk() -> Account {
    let mut full = account(Terms { overrun: 8404, ..written(4096) }, Verdict::Consistent);
    let failure = Some("the disk is full (making u_a/.fullbore/spare in /tmp/x)".to_owned());
    let member = HostMember { path: "/data".into(), longest_write_ns: 1, failure };
    full.host = Some(Host {
        pool_blocks: 64,
        high_water: 9,
        members: vec![member],
        high_water_history: None,
    });
    full
}

#[test]
fn a_full_disk_is_told_as_a_loss_first_and_as_explained_second() {
    let full = full_disk().completeness();
    assert_eq!(full.headline, "LOST 8404 of 12 500 frames (67 %): the disk is full");
    assert_eq!(
        full.explanation,
        "consistent: every frame that is not recorded is counted, with its cause"
    );
    assert_eq!((full.complete, full.lost, full.expected), (Some(false), 8404, 12_500));
    assert_eq!(full.short(), "LOST 8404 (67 %)");
    assert!(!full.is_good());
}

#[test]
fn a_scan_with_frames_out_of_reach_is_not_complete_and_names_the_member() {
    let mut account = account(written(6000), Verdict::Proven);
    account.unreachable = Some(Unreachable { frames: 768, members: vec!["/data/m1".into()] });
    account.verdict = account.judge();
    let degraded = account.completeness();
    assert_eq!(
        degraded.headline,
        "INCOMPLETE: 6000 frames recorded; 768 frames are on /data/m1, which cannot be reached"
    );
    assert_eq!(
        degraded.explanation,
        "consistent: no frame is missing by the stream's own count, but some of its data could not be read when \
         it was sealed"
    );
    assert!(!degraded.is_good() && degraded.complete == Some(false));
}

#[test]
fn if_all_members_failed_for_different_reasons_none_of_them_is_left_out() {
    let mut both = full_disk();
    let host = both.host.as_mut().unwrap();
    let failure = Some("cannot rename proven in /m1: Input/output error".to_owned());
    host.members.push(HostMember { failure, ..host.members[0].clone() });
    assert_eq!(
        both.completeness().headline,
        "LOST 8404 of 12 500 frames (67 %): 2 of 2 members failed: the disk is full; cannot rename proven in /m1: \
         Input/output error"
    );
    let host = both.host.as_mut().unwrap();
    host.members[1].failure = Some("the disk is full (making spare in /m1)".into());
    assert!(both.completeness().headline.ends_with("(67 %): the disk is full"));
}

#[test]
fn each_status_has_its_words() {
    let proven = account(written(12_500), Verdict::Proven);
    assert_eq!(proven.completeness().headline, "COMPLETE: all 12 500 frames");
    let missing = Terms { missing: 11, ..written(11_916) };
    let lost = account(missing, Verdict::Unexplained).completeness();
    assert_eq!(
        lost.headline,
        "LOST 11 of 11 927 frames (0.09 %): lost before they reached this host"
    );
    assert_eq!(
        lost.explanation,
        "unexplained: 11 frames were lost before this host, and no counter here accounts for them"
    );
    let dropped = account(missing, Verdict::Consistent).completeness();
    assert!(dropped.headline.ends_with("dropped by this host before fullbore could read them"));
    let several = Terms { missing: 4, damaged: 2, ..written(994) };
    assert_eq!(
        account(several, Verdict::Unexplained).completeness().headline,
        "LOST 6 of 1000 frames (0.60 %): 4 lost before they reached this host, 2 came damaged"
    );
    let mut uncounted = account(written(3000), Verdict::Unproven);
    uncounted.counted_by = CountedBy::Nothing;
    let unknown = uncounted.completeness();
    assert_eq!(
        unknown.headline,
        "UNKNOWN: 3000 frames recorded; the frames carry no number, so losses before this host cannot be seen"
    );
    assert!(unknown.complete.is_none() && unknown.is_good());
    let mut anew = account(written(1000), Verdict::Unexplained);
    anew.restarts = 1;
    let anew = anew.completeness();
    assert!(anew.headline.starts_with("UNKNOWN: 1000 frames recorded; the sender restarted"));
    assert!(!anew.is_good());
    let mut outside = account(written(1000), Verdict::Consistent);
    outside.out_of_window = 3;
    let outside = outside.completeness();
    assert_eq!(
        outside.headline,
        "INCOMPLETE: 1000 frames recorded, no loss among them; 3 frames came and were not kept"
    );
    assert!(!outside.is_good());
}

#[test]
fn each_missing_frame_is_told_with_the_cause_that_its_own_counter_shows() {
    let missing = |missing, verdict, explained| {
        let mut account = account(Terms { missing, ..written(2300) }, verdict);
        account.explained = explained;
        account
    };
    let partly = missing(1573, Verdict::Unexplained, Some(1373));
    let both = partly.completeness();
    assert_eq!(
        both.headline,
        "LOST 1573 of 3873 frames (41 %): 200 lost before they reached this host, \
         1373 dropped by this host before fullbore could read them"
    );
    assert_eq!(
        both.explanation,
        "unexplained: 200 frames were lost before this host, and no counter here accounts for them"
    );
    let summary = StreamCompleteness::of_summary("", &Summary::from(&partly));
    assert_eq!(told(vec![summary]), both, "a manifest says the same");
    // A thread of one frame makes the account unproven. This does not show a loss on this host.
    let unproven = missing(20, Verdict::Unproven, Some(0)).completeness().headline;
    assert!(
        unproven.starts_with("LOST 20 of 2320 frames (0.86 %): where they were lost is not known"),
        "{unproven}"
    );
    let some = missing(20, Verdict::Unproven, Some(15)).completeness().headline;
    assert!(
        some.contains(
            "15 dropped by this host before fullbore could read them, 5 lost at an unknown place"
        ),
        "{some}"
    );
    // Earlier accounts do not have the number of frames that counters explain.
    let before = missing(20, Verdict::Unproven, None).completeness().headline;
    assert!(before.contains("where they were lost is not known"), "{before}");
}

#[test]
fn a_scan_names_the_streams_that_something_is_wrong_with() {
    let good = account(written(1000), Verdict::Proven);
    let mut silent = Account::new(CountedBy::FrameTime);
    silent.presence = vec![Presence::NeverCame];
    silent.verdict = Verdict::Unexplained;
    assert_eq!(
        told(vec![part("5000", &silent)]).headline,
        "INCOMPLETE: nothing was recorded; stream 5000 never delivered a frame"
    );
    let lossy = account(Terms { missing: 3, ..written(997) }, Verdict::Unexplained);
    let both = told(vec![part("a", &good), part("b", &lossy), part("c", &silent)]);
    assert_eq!(
        both.headline,
        "LOST 3 of 2000 frames (0.15 %) in 1 of 3 streams: lost before they reached this host; \
         stream c never delivered a frame"
    );
    let names = ["1", "2", "3", "4", "5"];
    let mut parts: Vec<StreamCompleteness> = names.iter().map(|name| part(name, &silent)).collect();
    parts.push(part("6", &good));
    let many = told(parts).headline;
    assert!(many.contains("streams 1, 2, 3 and 2 more never delivered a frame"), "{many}");
    let all = told(vec![part("a", &good), part("b", &good)]).headline;
    assert_eq!(all, "COMPLETE: all 2000 frames of 2 streams");
}

#[test]
fn a_scan_without_a_lost_frame_that_is_less_safe_says_so() {
    let good = account(written(1000), Verdict::Proven);
    let wanting = [Degradation::Failed { path: "/b".into(), why: "it was unplugged".to_owned() }];
    let told = Completeness::judged(vec![part("a", &good)], None, State::Sealed, &wanting);
    assert_eq!(
        told.headline,
        "COMPLETE: all 1000 frames; it is degraded: /b failed: it was unplugged"
    );
}

#[test]
fn what_is_recovered_is_not_called_complete() {
    let found = account(written(1000), Verdict::Consistent);
    let told = Completeness::judged(vec![part("a", &found)], None, State::Recovered, &[]);
    assert_eq!((told.status, told.complete), (Status::Unknown, None));
    assert!(told.headline.contains("recovered"), "{}", told.headline);
}

#[test]
fn recovered_scan_says_that_no_loss_counter_survived() {
    let lost = Terms { expected: 1000, written: 990, missing: 10, ..Terms::default() };
    let found = account(lost, Verdict::Unexplained);
    let of = |state| Completeness::judged(vec![part("a", &found)], None, state, &[]);
    let (recovered, sealed) = (of(State::Recovered), of(State::Sealed));
    assert!(sealed.headline.ends_with("lost before they reached this host"), "{}", sealed.headline);
    assert!(
        recovered.headline.contains(
            "LOST 10 of 1000 frames (1.0 %): where is not known, since no loss counter survived the recorder"
        ),
        "{}",
        recovered.headline
    );
    assert_eq!(
        recovered.explanation,
        "unexplained: 10 frames are missing, and no loss counter of this host survived the recorder"
    );
}

#[test]
fn what_an_abort_discards_is_not_blamed_on_the_disks() {
    let lost = Terms { expected: 1000, written: 990, overrun: 10, ..Terms::default() };
    let found = account(lost, Verdict::Consistent);
    let of = |state| Completeness::judged(vec![part("a", &found)], None, state, &[]).headline;
    assert!(of(State::Aborted).contains("(1.0 %): the abort discarded them"));
    assert!(of(State::Sealed).ends_with("(1.0 %): they arrived while no block was free"));
}

fn planned() -> Planned {
    Planned { begin: Some(Tai(100 * S)), end: Some(Tai(104 * S)) }
}

fn seen(first: i64, last: i64, frames: u64) -> Account {
    let mut account = account(written(frames), Verdict::Proven);
    let edge = |index, ns| Some(Edge { index, time: Some(Tai(ns)), seen: Tai(ns + 1_000_000) });
    (account.first, account.last) = (edge(0, first), edge(frames as i64 - 1, last));
    account
}

#[test]
fn a_scheduled_scan_of_four_seconds_with_one_second_of_data_is_not_complete() {
    let mut short = seen(102_300_000_000, 103_300_000_000 - 64_000, 15_625);
    let lacks = planned().lacking(&short, Some(15_625), Tai(100 * S), Some(Tai(104 * S)));
    assert_eq!(
        lacks,
        [
            Presence::LacksBeginning { ns: 2_300_000_000, frames: Some(35_938) },
            Presence::LacksEnd { ns: 700_000_000, frames: Some(10_938) },
        ]
    );
    short.presence = lacks;
    short.verdict = short.judge();
    assert_eq!(short.verdict, Verdict::Unexplained);
    let parts = vec![part("46220", &short)];
    let told = Completeness::judged(parts, Some(planned()), State::Sealed, &[]);
    assert_eq!(
        told.headline,
        "INCOMPLETE: 15 625 frames recorded, no loss among them; 3.0 s of the 4.0 s planned are not \
         covered (46 876 frames): it began 2.3 s late, it ended 0.70 s early"
    );
    assert_eq!(told.short(), "INCOMPLETE, 3.0 s not covered (46 876 frames)");
    assert_eq!(told.uncovered.unwrap().frames, Some(46_876));
    assert!(!told.is_good());
}

#[test]
fn a_scan_that_covers_its_plan_says_so_and_one_of_which_nothing_came_lacks_all_of_it() {
    let full = seen(100 * S, 104 * S - 64_000, 62_500);
    let lacks = planned().lacking(&full, Some(15_625), Tai(100 * S), Some(Tai(104 * S)));
    assert_eq!(lacks, []);
    let told = Completeness::judged(vec![part("a", &full)], Some(planned()), State::Sealed, &[]);
    assert_eq!(told.headline, "COMPLETE: all 62 500 frames, the 4.0 s planned");
    let silent = Account::new(CountedBy::FrameTime);
    let lacks = planned().lacking(&silent, Some(1000), Tai(100 * S), None);
    assert_eq!(lacks, [Presence::LacksBeginning { ns: 4 * S, frames: Some(4000) }]);
    let lacks = planned().lacking(&silent, None, Tai(100 * S), None);
    assert_eq!(lacks, [Presence::LacksBeginning { ns: 4 * S, frames: None }]);
}

#[test]
fn without_a_plan_and_of_a_device_that_counts_for_itself_nothing_is_lacking() {
    let mut late = seen(102 * S, 103 * S, 1000);
    assert_eq!(Planned::default().lacking(&late, None, Tai(100 * S), None), []);
    late.counted_by = CountedBy::ServerCount;
    assert_eq!(planned().lacking(&late, None, Tai(100 * S), None), []);
}

#[test]
fn the_time_of_arrival_counts_where_frames_were_made_at_another_time() {
    let mut played = seen(100 * S, 104 * S, 4000);
    played.first.as_mut().unwrap().time = Some(Tai(7));
    played.last.as_mut().unwrap().time = Some(Tai(4 * S));
    assert_eq!(planned().lacking(&played, None, Tai(100 * S), None), []);
}

#[test]
fn a_sender_that_is_slow_lacks_the_data_that_it_did_not_deliver() {
    let mut slow = seen(100 * S, 104 * S, 3600);
    slow.last.as_mut().unwrap().time = Some(Tai(103 * S + 599_000_000));
    let lacks = planned().lacking(&slow, Some(1000), Tai(100 * S), None);
    assert_eq!(lacks, [Presence::LacksEnd { ns: 400_000_000, frames: Some(400) }]);
}

#[test]
fn the_tolerance_is_a_quarter_of_a_short_plan() {
    let short = Planned { begin: Some(Tai(100 * S)), end: Some(Tai(100 * S + S / 2)) };
    let of = |first_ms: i64, last_ms: i64| {
        let ns = |ms| 100 * S + ms * 1_000_000;
        let frames = (last_ms - first_ms + 1) as u64;
        let account = seen(ns(first_ms), ns(last_ms), frames);
        short.lacking(&account, Some(1000), Tai(100 * S), None).len()
    };
    assert_eq!((of(230, 299), of(126, 499), of(0, 373)), (2, 1, 1));
    assert_eq!(of(124, 375), 0);
}

#[test]
fn a_headline_says_what_part_of_the_plan_the_data_covers() {
    let of = |first, last, frames| {
        let found = seen(first, last, frames);
        Completeness::judged(vec![part("a", &found)], Some(planned()), State::Sealed, &[]).headline
    };
    let (ms, begin) = (1_000_000, 100 * S);
    assert_eq!(of(begin, begin + 3999 * ms, 4000), "COMPLETE: all 4000 frames, the 4.0 s planned");
    assert_eq!(
        of(begin + 200 * ms, begin + 3799 * ms, 3600),
        "COMPLETE: all 3600 frames, 3.6 s of the 4.0 s planned"
    );
}

#[test]
fn a_slow_stream_may_lack_a_few_of_its_frames() {
    let slow = |first, last| planned().lacking(&seen(first, last, 5), None, Tai(0), None);
    assert_eq!(slow(100 * S + S / 2, 103 * S), []);
    assert_eq!(slow(100 * S, 100 * S).len(), 1);
}

/// Returns an account of two threads, of which the second ended three seconds before the first.
fn two_threads() -> Account {
    let mut account = account(written(5000), Verdict::Proven);
    let flow = |thread, frames, last| {
        let only = seen(100 * S, last, frames);
        let (terms, first, last) = (only.terms, only.first, only.last);
        Flow { station: 7, thread, terms, first, last, ..Flow::default() }
    };
    account.flows = vec![flow(0, 4000, 104 * S - 1), flow(1, 1000, 101 * S - 1)];
    (account.first, account.last) = (account.flows[0].first, account.flows[0].last);
    account
}

#[test]
fn each_of_several_threads_is_held_against_the_plan() {
    let mut account = two_threads();
    let (armed, stopped) = (Tai(100 * S), Some(Tai(104 * S)));
    assert_eq!(planned().lacking(&account, Some(2000), armed, stopped), []);
    for flow in &mut account.flows {
        flow.presence = planned().lacking_of(flow, Some(1000), armed, stopped);
    }
    account.verdict = account.judge();
    assert_eq!(account.verdict, Verdict::Unexplained);
    let parts = vec![part("5000", &account)];
    let told = Completeness::judged(parts, Some(planned()), State::Sealed, &[]);
    assert_eq!(
        told.headline,
        "INCOMPLETE: 5000 frames recorded, no loss among them; 3.0 s of the 4.0 s planned are not covered \
         (2999 frames): station 7, thread 1 ended 3.0 s early"
    );
    let short = StreamCompleteness::of_summary("5000", &Summary::from(&account));
    let of_manifest = Completeness::judged(vec![short], Some(planned()), State::Sealed, &[]);
    assert_eq!(of_manifest, told);
}

#[test]
fn a_thread_that_ends_before_the_others_is_named_with_its_stream() {
    let mut account = two_threads();
    account.flows[1].presence = vec![Presence::DiedEarly { ns: 3 * S }];
    account.verdict = account.judge();
    let words = "stream 5000, station 7, thread 1: ended 3.0 s before the last one";
    let headline = told(vec![part("5000", &account)]).headline;
    assert!(headline.starts_with("INCOMPLETE: ") && headline.ends_with(words), "{headline}");
    account.flows[1].presence = vec![Presence::NeverCame];
    let headline = told(vec![part("5000", &account)]).headline;
    assert!(headline.ends_with("thread 1: sent nothing in this scan"), "{headline}");
}

#[test]
fn a_headline_lists_a_few_of_many_streams() {
    let mut late = account(written(1000), Verdict::Unexplained);
    late.presence = vec![Presence::StartedLate { ns: S }];
    let names: Vec<String> = (0..64).map(|number| number.to_string()).collect();
    let headline = told(names.iter().map(|name| part(name, &late)).collect()).headline;
    assert!(headline.ends_with("stream 2 began 1.0 s after the first one; and 61 more like these"));
    assert!(headline.len() < 250, "{headline}");
}

#[test]
fn a_second_count_that_disagrees_is_told_as_such_and_not_as_a_loss_counter() {
    let mut account = account(written(1000), Verdict::Consistent);
    account.disagreements = 3;
    let told = account.completeness();
    assert_eq!(
        told.headline,
        "COMPLETE: all 1000 frames; the second count of 3 frames disagrees with their time"
    );
    assert_eq!(
        told.explanation,
        "consistent: no frame is missing by the stream's own count, but the second count of frames disagrees with \
         their time"
    );
}

#[test]
fn what_came_and_is_not_of_the_format_is_the_explanation() {
    let mut foreign = Account::new(CountedBy::FrameTime);
    foreign.presence = vec![Presence::OnlyForeign { datagrams: 65_690 }];
    foreign.verdict = Verdict::Unexplained;
    let told = told(vec![part("5000", &foreign)]);
    assert_eq!(
        told.headline,
        "INCOMPLETE: nothing was recorded; stream 5000 got 65 690 datagrams, of which none is a frame of its format"
    );
    assert_eq!(
        told.explanation,
        "unexplained: the received data is not of the format that was expected"
    );
}

#[test]
fn a_stream_without_a_name_is_it() {
    let of_one = |presence| {
        let mut only = Account::new(CountedBy::FrameTime);
        (only.presence, only.verdict) = (vec![presence], Verdict::Unexplained);
        only.completeness().headline
    };
    assert_eq!(
        of_one(Presence::OnlyForeign { datagrams: 100 }),
        "INCOMPLETE: nothing was recorded; it got 100 datagrams, of which none is a frame of its format"
    );
    let excluded = of_one(Presence::OnlyExcluded { datagrams: 1 });
    assert!(excluded.contains("; it got 1 datagram, and the filter"), "{excluded}");
    let mut threads = two_threads();
    threads.flows[1].presence = vec![Presence::DiedEarly { ns: 3 * S }];
    let headline = threads.completeness().headline;
    assert!(headline.contains("; station 7, thread 1: ended 3.0 s before"), "{headline}");
}

#[test]
fn frames_without_a_number_are_not_said_to_have_lost_none() {
    let mut raw = account(written(1000), Verdict::Unproven);
    raw.counted_by = CountedBy::Nothing;
    raw.presence = vec![Presence::DiedEarly { ns: S }];
    let told = told(vec![part("a", &raw)]);
    assert!(told.headline.starts_with("INCOMPLETE: 1000 frames recorded; stream a ended"));
    assert!(told.headline.ends_with("losses before this host cannot be seen"), "{}", told.headline);
}

#[test]
fn while_it_is_recorded_all_that_is_not_well_is_told() {
    let told = |lost, not_kept, not_frames, left_out| {
        SoFar { lost, not_kept, not_frames, left_out }.to_string()
    };
    assert_eq!(told(0, 0, 0, 0), "nothing lost so far");
    assert_eq!(told(0, 0, 65_690, 0), "65 690 datagrams received that are not frames");
    assert_eq!(told(3, 0, 0, 0), "LOST 3 frames so far");
    assert_eq!(told(0, 1, 0, 0), "1 frame came and was not kept");
    assert_eq!(told(0, 0, 0, 400), "400 datagrams came, all left out by the filter");
    assert_eq!(
        told(3, 300, 7, 0),
        "LOST 3 frames so far, 300 frames came and were not kept, 7 datagrams received that are not frames"
    );
}

#[test]
fn numbers_and_shares_read_well() {
    assert_eq!(
        [0, 999, 8404, 12_500, 1_234_567].map(grouped),
        ["0", "999", "8404", "12 500", "1 234 567"]
    );
    let share = |part, whole| percent(part, whole);
    assert_eq!(share(8404, 12_500), "67 %");
    assert_eq!(share(1, 1_000_000), "less than 0.01 %");
    assert_eq!(share(99_999, 100_000), "more than 99 %");
    assert_eq!(share(5, 5), "100 %");
    assert_eq!(share(25, 1000), "2.5 %");
    assert_eq!([250_000_000, 2_300_000_000, 3600 * S].map(seconds), ["0.25 s", "2.3 s", "3600 s"]);
}

#[test]
fn a_manifest_and_an_account_of_before_read_as_they_were() {
    let presence: Presence = serde_json::from_str(r#"{"what":"lacks-end","ns":5}"#).unwrap();
    assert_eq!(presence, Presence::LacksEnd { ns: 5, frames: None });
    let json = serde_json::to_string(&Presence::NeverCame).unwrap();
    assert_eq!(json, r#"{"what":"never-came"}"#);
    let mut summary = serde_json::to_value(Summary::from(&full_disk())).unwrap();
    summary.as_object_mut().unwrap().remove("beside");
    let before: Summary = serde_json::from_value(summary).unwrap();
    let told = Completeness::judged(
        vec![StreamCompleteness::of_summary("a", &before)],
        None,
        State::Sealed,
        &[],
    );
    assert_eq!((told.status, told.lost), (Status::Lost, 8404));
}

fn any_presence() -> impl Strategy<Value = Vec<Presence>> {
    let ns = 0..10 * S;
    let one = prop_oneof![
        Just(Presence::NeverCame),
        Just(Presence::NotKnown),
        Just(Presence::NotExpected),
        ns.clone().prop_map(|ns| Presence::CameLate { ns }),
        ns.clone().prop_map(|ns| Presence::StartedLate { ns }),
        ns.clone().prop_map(|ns| Presence::DiedEarly { ns }),
        (ns.clone(), any::<Option<u64>>())
            .prop_map(|(ns, frames)| Presence::LacksBeginning { ns, frames }),
        (ns, any::<Option<u64>>()).prop_map(|(ns, frames)| Presence::LacksEnd { ns, frames }),
    ];
    prop::collection::vec(one, 0..3)
}

fn any_account() -> impl Strategy<Value = Account> {
    let counts = [0..3u64, 0..3, 0..3, 0..3, 0..3];
    let counted = prop_oneof![
        Just(CountedBy::FrameTime),
        Just(CountedBy::ServerCount),
        Just(CountedBy::Nothing)
    ];
    (0..2000u64, counts, any_presence(), 0..2u64, 0..2u64, counted).prop_map(
        |(
            written,
            [missing, overrun, damaged, late, not_transferred],
            presence,
            out_of_window,
            restarts,
            counted_by,
        )| {
            let terms =
                Terms { expected: 0, written, missing, overrun, damaged, late, not_transferred };
            let mut account = account(terms, Verdict::Proven);
            account.counted_by = counted_by;
            (account.presence, account.out_of_window, account.restarts) =
                (presence, out_of_window, restarts);
            account.verdict = account.judge();
            account
        },
    )
}

proptest! {
    /// An incomplete recording is never called complete.
    #[test]
    fn the_first_word_hides_no_loss(
        accounts in prop::collection::vec(any_account(), 1..4),
        recovered in any::<bool>(),
    ) {
        let state = if recovered { State::Recovered } else { State::Sealed };
        let parts = accounts.iter().map(|it| StreamCompleteness::of_account("a", it)).collect();
        let told = Completeness::judged(parts, Some(planned()), state, &[]);
        let lost: u64 = accounts.iter().map(|it| it.terms.expected - it.terms.written).sum();
        prop_assert_eq!(told.lost, lost);
        prop_assert_eq!(told.status == Status::Lost, lost > 0);
        let of_it = |it: &Presence| {
            !matches!(it, Presence::CameLate { .. } | Presence::WentEarly { .. } | Presence::NotExpected)
        };
        let lacks = accounts.iter().any(|it| it.presence.iter().any(of_it) || it.not_kept() > 0);
        let surely = accounts.iter().all(|it| it.verdict <= Verdict::Consistent && it.restarts == 0);
        let whole = lost == 0 && !lacks && surely && (!recovered || accounts.iter().all(|it| it.verdict == Verdict::Proven));
        prop_assert_eq!(told.complete == Some(true), whole, "{:?}", told);
        prop_assert_eq!(told.headline.starts_with("COMPLETE: "), whole);
        prop_assert_eq!(told.short() == "complete", whole);
        let word = told.headline.split([' ', ':']).next().unwrap();
        prop_assert_eq!(serde_json::Value::from(word.to_lowercase()), serde_json::to_value(told.status).unwrap());
        if told.complete == Some(false) {
            prop_assert!(!told.is_good());
        }
        let worst = accounts.iter().map(|it| it.verdict).max().unwrap();
        let worst = format!("{worst}: ");
        prop_assert!(told.explanation.starts_with(&worst));
    }

    /// Frames removed at the ends of a plan are counted exactly.
    #[test]
    fn what_a_plan_lacks_is_counted_in_frames(
        rate in 100..50_000u64,
        late in 0..1000u64,
        early in 0..1000u64,
    ) {
        let all = 4 * rate;
        let (late, early) = (late * rate / 1000, early * rate / 1000);
        let at = |frame: u64| 100 * S + (i128::from(frame) * i128::from(S) / i128::from(rate)) as i64;
        let mut account = seen(at(late), at(all - early - 1), all - late - early);
        account.last.as_mut().unwrap().seen = Tai(at(all - early - 1));
        let lacks = planned().lacking(&account, Some(rate), Tai(100 * S), None);
        let told = |of: fn(&Presence) -> Option<Option<u64>>| lacks.iter().find_map(of);
        let beginning = told(|it| match it {
            Presence::LacksBeginning { frames, .. } => Some(*frames),
            _ => None,
        });
        // The last frame ends at the start of the next one.
        let ending = told(|it| match it {
            Presence::LacksEnd { frames, .. } => Some(*frames),
            _ => None,
        });
        let noticed = |frames: u64| frames as i64 * S / rate as i64 > TOLERANCE_NS + 2 * S / rate as i64;
        if noticed(late) {
            prop_assert_eq!(beginning, Some(Some(late)));
        }
        if noticed(early) {
            prop_assert_eq!(ending, Some(Some(early)));
        }
        if late == 0 {
            prop_assert_eq!(beginning, None);
        }
        if early == 0 {
            prop_assert_eq!(ending, None);
        }
    }
}

#[test]
fn a_scan_in_which_no_stream_began_is_not_complete() {
    for planned in [None, Some(planned())] {
        let told = Completeness::judged(Vec::new(), planned, State::Sealed, &[]);
        assert_eq!(told.complete, Some(false), "{}", told.headline);
        assert!(!told.is_good());
        assert!(
            told.headline.starts_with("INCOMPLETE: nothing was recorded; no stream began"),
            "{}",
            told.headline
        );
    }
}
