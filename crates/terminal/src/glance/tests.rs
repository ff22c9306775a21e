use fullbore_core::account::{CountedBy, Edge, Host, HostMember, Presence, Terms, judge_together};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::high_water::HighWaterHistory;
use serde_json::json;

use super::*;
use crate::account_table::time_between;

const NIL: &str = "00000000-0000-0000-0000-000000000000";
const FRAMES: u64 = 12_504;

/// The account of a stream of 12 504 frames at 1600 a second, without those in the gaps.
fn account(gaps: &[(i64, u64, Cause)]) -> Account {
    let begin: Tai = "2026-11-24T13:11:36Z".parse().unwrap();
    let edge = |index: i64| {
        let time = begin.plus_ns(index * 625_000);
        Edge { index, time: Some(time), seen: time }
    };
    let mut account = Account::new(CountedBy::FrameTime);
    account.terms = Terms { expected: FRAMES, written: FRAMES, ..Terms::default() };
    (account.first, account.last) = (Some(edge(0)), Some(edge(FRAMES as i64 - 1)));
    account.presence =
        vec![Presence::CameLate { ns: 1_260_000_000 }, Presence::WentEarly { ns: 2_800_000_000 }];
    for &(first, count, cause) in gaps {
        account.push_gap(Gap { first, count, cause });
        account.terms.written -= count;
        match cause {
            Cause::Missing => account.terms.missing += count,
            _ => account.terms.overrun += count,
        }
    }
    let history = HighWaterHistory { step_ms: 250, blocks: vec![2; 32] };
    account.host = Some(Host {
        pool_blocks: 130,
        high_water: 3,
        members: vec![HostMember {
            path: "/mnt/disk0".into(),
            longest_write_ns: 9_500_000,
            failure: None,
        }],
        high_water_history: Some(history),
    });
    account
}

fn manifest(names: &[String]) -> Manifest {
    let stream = |name: &String| {
        json!({
            "name": name, "directory": format!("test_one_ds{name}"),
            "source": format!("udp://0.0.0.0:{name}?format=vdif"), "stripped_bytes": 0,
            "format": { "name": "vdif", "frames_per_second": 1600, "derived": true, "threads": [0] },
            "geometry": null, "fill": { "kind": "omit" }, "blocks": 25, "bytes": 100_432_128,
            "account": null,
        })
    };
    let streams: Vec<_> = names.iter().map(stream).collect();
    serde_json::from_value(json!({
        "version": 1, "uuid": NIL, "scan": { "session": "test", "scan": "one" },
        "state": "sealed", "software": "fullbore 0.1.0", "host": "rec1",
        "armed": "2026-11-24T13:11:34.740Z", "stopped": "2026-11-24T13:11:46.614Z",
        "members": [], "streams": streams, "markers": [],
    }))
    .unwrap()
}

/// The text for these streams, named 46220 and so on.
fn text(mut accounts: Vec<Account>, columns: usize) -> String {
    judge_together(&mut accounts);
    let names: Vec<String> = (0..accounts.len()).map(|it| (46_220 + it).to_string()).collect();
    let manifest = manifest(&names);
    let completeness = Completeness::of_accounts(&manifest, &accounts);
    let stream =
        |(name, account)| Stream { name, account, time_of: Box::new(time_between(account)) };
    let streams = names.iter().map(String::as_str).zip(&accounts).map(stream).collect();
    let glance =
        Glance { manifest: &manifest, completeness: &completeness, missing: None, streams };
    let text = glance.text(Paper { columns, lines: 24, colour: false }, &[]);
    let fits = |line: &str| line.chars().count() <= columns;
    assert!(text.lines().all(fits) && text.lines().count() <= 24, "{text}");
    text
}

/// A container is in no store: `info` and `verify` do not find its scan, but it keeps its account.
#[test]
fn a_container_names_its_file() {
    let accounts = good(1);
    let mut manifest = manifest(&["46220".into()]);
    manifest.members = serde_json::from_value(json!([
        { "uuid": NIL, "path": "/data/x.h5", "failure": null, "buffered": true }
    ]))
    .unwrap();
    let completeness = Completeness::of_accounts(&manifest, &accounts);
    let glance =
        Glance { manifest: &manifest, completeness: &completeness, missing: None, streams: vec![] };
    let text = glance.text(Paper { columns: 80, lines: 24, colour: false }, &[]);
    assert!(text.contains("next: the attributes of /data/x.h5"), "{text}");
    assert!(!text.contains("fullbore info"), "{text}");
}

fn good(streams: usize) -> Vec<Account> {
    (0..streams).map(|_| account(&[])).collect()
}

/// Streams of which some lost frames.
fn lossy(streams: usize, lossy: &[usize]) -> Vec<Account> {
    let mut accounts = good(streams);
    for (number, &stream) in lossy.iter().enumerate() {
        let more = 2 * (lossy.len() - number) as u64;
        accounts[stream] = account(&[
            (7, more, Cause::Missing),
            (983, 1, Cause::Missing),
            (1610, 1, Cause::Missing),
            (2982, 3, Cause::Missing),
            (6400, 1, Cause::Missing),
            (9600, 2, Cause::Missing),
        ]);
    }
    accounts
}

#[test]
fn one_good_stream() {
    assert_eq!(
        text(good(1), 80),
        "\
COMPLETE: all 12 504 frames, 7.8 s
test_one sealed, 100 MB in stream 46220 from 2026-11-24 13:11:36 UTC
  proven: no frame is missing by the stream's own count, and no loss counter
    of this host moved
  46220: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back;
        `fullbore info test_one --full` prints every detail
"
    );
    assert_eq!(text(good(1), 200), "\
COMPLETE: all 12 504 frames, 7.8 s   test_one sealed, 100 MB in stream 46220 from 2026-11-24 13:11:36 UTC
  proven: no frame is missing by the stream's own count, and no loss counter of this host moved
  46220: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back; `fullbore info test_one --full` prints every detail
");
}

#[test]
fn eight_good_streams() {
    assert_eq!(
        text(good(8), 80),
        "\
COMPLETE: all 100 032 frames of 8 streams, 7.8 s
test_one sealed, 803 MB in 8 streams from 2026-11-24 13:11:36 UTC
  all 8 streams complete: 46220–46227, 12 504 frames each
  proven: no frame is missing by the stream's own count, and no loss counter
    of this host moved
  all 8 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back;
        `fullbore info test_one --full` prints every detail
"
    );
    assert_eq!(text(good(8), 200), "\
COMPLETE: all 100 032 frames of 8 streams, 7.8 s   test_one sealed, 803 MB in 8 streams from 2026-11-24 13:11:36 UTC
  all 8 streams complete: 46220–46227, 12 504 frames each
  proven: no frame is missing by the stream's own count, and no loss counter of this host moved
  all 8 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back; `fullbore info test_one --full` prints every detail
");
}

#[test]
fn sixty_four_good_streams() {
    assert_eq!(
        text(good(64), 80),
        "\
COMPLETE: all 800 256 frames of 64 streams, 7.8 s
test_one sealed, 6.43 GB in 64 streams from 2026-11-24 13:11:36 UTC
  all 64 streams complete: 46220–46283, 12 504 frames each
  proven: no frame is missing by the stream's own count, and no loss counter
    of this host moved
  all 64 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back;
        `fullbore info test_one --full` prints every detail
"
    );
    assert_eq!(text(good(64), 200), "\
COMPLETE: all 800 256 frames of 64 streams, 7.8 s   test_one sealed, 6.43 GB in 64 streams from 2026-11-24 13:11:36 UTC
  all 64 streams complete: 46220–46283, 12 504 frames each
  proven: no frame is missing by the stream's own count, and no loss counter of this host moved
  all 64 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: `fullbore verify test_one` reads it back; `fullbore info test_one --full` prints every detail
");
}

#[test]
fn one_lossy_stream() {
    assert_eq!(
        text(lossy(1, &[0]), 80),
        "\
LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
test_one sealed, 100 MB in stream 46220, 7.8 s from 2026-11-24 13:11:36 UTC

  missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  unexplained: 10 frames were lost before this host, and no counter here
    accounts for them
  46220: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times;
        `fullbore info test_one --full` lists all gaps
"
    );
    assert_eq!(text(lossy(1, &[0]), 200), "\
LOST 10 of 12 504 frames (0.08 %): lost before they reached this host   test_one sealed, 100 MB in stream 46220, 7.8 s from 2026-11-24 13:11:36 UTC

  missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  unexplained: 10 frames were lost before this host, and no counter here accounts for them
  46220: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times; `fullbore info test_one --full` lists all gaps
");
}

#[test]
fn two_of_eight_streams_are_lossy() {
    assert_eq!(
        text(lossy(8, &[1, 3]), 80),
        "\
LOST 22 of 100 032 frames (0.02 %) in 2 of 8 streams: lost before they reached
this host
test_one sealed, 803 MB in 8 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46221  LOST 12 of 12 504 frames (0.10 %): lost before they reached this host
         missing 7–10 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46223  LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
         missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  6 streams complete: 46220, 46222, 46224–46227, 12 504 frames each
  unexplained: 22 frames were lost before this host, and no counter here
    accounts for them
  all 8 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times;
        `fullbore info test_one --full` lists all gaps
"
    );
    assert_eq!(text(lossy(8, &[1, 3]), 200), "\
LOST 22 of 100 032 frames (0.02 %) in 2 of 8 streams: lost before they reached this host   test_one sealed, 803 MB in 8 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46221  LOST 12 of 12 504 frames (0.10 %): lost before they reached this host
         missing 7–10 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  46223  LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
         missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  6 streams complete: 46220, 46222, 46224–46227, 12 504 frames each
  unexplained: 22 frames were lost before this host, and no counter here accounts for them
  all 8 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times; `fullbore info test_one --full` lists all gaps
");
}

#[test]
fn three_of_sixty_four_streams_are_lossy() {
    assert_eq!(
        text(lossy(64, &[5, 17, 60]), 80),
        "\
LOST 36 of 800 256 frames (less than 0.01 %) in 3 of 64 streams: lost before
they reached this host
test_one sealed, 6.43 GB in 64 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46225  LOST 14 of 12 504 frames (0.11 %): lost before they reached this host
         missing 7–12 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46237  LOST 12 of 12 504 frames (0.10 %): lost before they reached this host
         missing 7–10 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46280  LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
         missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  61 streams complete: 46220–46224, 46226–46236, 46238–46279, 46281–46283,
    12 504 frames each
  unexplained: 36 frames were lost before this host, and no counter here
    accounts for them
  all 64 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times;
        `fullbore info test_one --full` lists all gaps
"
    );
    assert_eq!(text(lossy(64, &[5, 17, 60]), 200), "\
LOST 36 of 800 256 frames (less than 0.01 %) in 3 of 64 streams: lost before they reached this host   test_one sealed, 6.43 GB in 64 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46225  LOST 14 of 12 504 frames (0.11 %): lost before they reached this host
         missing 7–12 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  46237  LOST 12 of 12 504 frames (0.10 %): lost before they reached this host
         missing 7–10 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  46280  LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
         missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, 1610 at 13:11:37.006, 2982–2984 at 13:11:37.863, 6400 at 13:11:40.000, and 1 gap more
  61 streams complete: 46220–46224, 46226–46236, 46238–46279, 46281–46283, 12 504 frames each
  unexplained: 36 frames were lost before this host, and no counter here accounts for them
  all 64 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times; `fullbore info test_one --full` lists all gaps
");
}

#[test]
fn sixty_four_lossy_streams_fit_one_screen() {
    assert_eq!(
        text(lossy(64, &std::array::from_fn::<usize, 64, _>(|it| it)), 80),
        "\
LOST 4672 of 800 256 frames (0.58 %) in 64 of 64 streams: lost before they
reached this host
test_one sealed, 6.43 GB in 64 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46220  LOST 136 of 12 504 frames (1.1 %): lost before they reached this host
         missing 7–134 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46221  LOST 134 of 12 504 frames (1.1 %): lost before they reached this host
         missing 7–132 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46222  LOST 132 of 12 504 frames (1.1 %): lost before they reached this host
         missing 7–130 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46223  LOST 130 of 12 504 frames (1.0 %): lost before they reached this host
         missing 7–128 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  46224  LOST 128 of 12 504 frames (1.0 %): lost before they reached this host
         missing 7–126 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
  59 more streams lost 4012 frames: 46225–46283
  unexplained: 4672 frames were lost before this host, and no counter here
    accounts for them
  all 64 streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender and the network at these times;
        `fullbore info test_one --full` lists all gaps
"
    );
}

/// Eight streams, of which four never came and one came late.
fn half() -> Vec<Account> {
    let mut accounts = good(8);
    for account in &mut accounts[4..] {
        *account = Account::new(CountedBy::FrameTime);
        account.presence = vec![Presence::NeverCame];
    }
    accounts[3].presence = vec![Presence::StartedLate { ns: 2_500_000_000 }];
    accounts
}

#[test]
fn streams_that_never_came_share_a_line() {
    assert_eq!(
        text(half(), 80),
        "\
INCOMPLETE: 50 016 frames recorded, no loss among them; streams 46224, 46225,
46226 and 1 more never delivered a frame; stream 46223 began 2.5 s after the
first one
test_one sealed, 803 MB in 8 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46224–46227  INCOMPLETE: nothing was recorded; it never delivered a frame
  46223        INCOMPLETE: 12 504 frames recorded, no loss among them; it began
               2.5 s after the first one
  3 streams complete: 46220–46222, 12 504 frames each
  unexplained: no counter of this host explains why it is not complete
  46220–46222: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
  next: check the sender's address, port and format;
        `fullbore info test_one --full` prints every detail
"
    );
}

/// Two streams, one of which lost frames because of a full disk.
fn full_disk() -> Vec<Account> {
    let mut accounts = good(2);
    accounts[0] = account(&[(9000, 3000, Cause::Overrun), (12_400, 7, Cause::Missing)]);
    let host = accounts[0].host.as_mut().unwrap();
    host.high_water = 130;
    host.members[0].failure = Some("the disk is full".to_owned());
    host.high_water_history =
        Some(HighWaterHistory { step_ms: 250, blocks: (0..32).map(|it| it * it / 8).collect() });
    accounts
}

#[test]
fn a_full_disk_shows_the_high_water_mark() {
    assert_eq!(
        text(full_disk(), 80),
        "\
LOST 3007 of 25 008 frames (12 %) in 1 of 2 streams: 3000 could not be stored
(the disk is full), 7 lost before they reached this host
test_one sealed, 201 MB in 2 streams, 7.8 s from 2026-11-24 13:11:36 UTC

  46220  LOST 3007 of 12 504 frames (24 %): 3000 could not be stored (the disk
         is full), 7 lost before they reached this host
         overrun 9000–11999 at 13:11:41.625, missing 12400–12406 at 13:11:43.750
  1 stream complete: 46221, 12 504 frames
  unexplained: 7 frames were lost before this host, and no counter here
    accounts for them
  both streams: began 1.3 s after arming, ended 2.8 s before the limit
  recorder: at most 130 of 130 blocks in use, longest write 9.5 ms
  high water |▁▂▂▂▂▂▃▃▃▄▄▅▆▆▇█| over 8.0 s, 120 of 130 blocks at 7.8 s
  next: make the disks keep up (`fullbore bench disk` measures them);
        `fullbore info test_one --full` lists all gaps
"
    );
}
