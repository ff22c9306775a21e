//! Tests of the clock check for a scan whose recorder died before it wrote the clock offset.

use super::*;

#[test]
fn the_records_of_blocks_tell_how_a_stream_stood_against_the_hosts_clock() {
    let store = Store::new(2);
    let plans = [
        StreamPlan::vdif("a").timely().unsealed(),
        StreamPlan::vdif("b").fill(Fill::Omit).threads(&[1, 3]).timely().unsealed(),
        StreamPlan::raw("c").fill(Fill::Pattern(0x5555_5555)).timely().unsealed(),
    ];
    let laid = store.lay_down("r1_a", &plans);
    recovered(&store, &laid);
    let scan = opened(&store, &laid);
    let clock = |stream: usize| scan.streams[stream].account.clone().unwrap().clock;
    for stream in 0..2 {
        let clock = clock(stream).expect("its frames carry a time");
        // Each frame arrived at the very time that it carries.
        assert_eq!((clock.behind_ns, clock.least_ns, clock.most_ns), (0, 0, 0), "{stream}");
        let blocks = scan.streams[stream].blocks.iter().map(|it| it.block.seen);
        let (first, last) = (blocks.clone().min().unwrap(), blocks.max().unwrap());
        // The last frames may have arrived too soon after earlier ones to be checked.
        assert!(clock.over_ns <= last.since(first) && clock.over_ns > last.since(first) / 2);
        let summary = scan.manifest.streams[stream].account.as_ref().unwrap();
        assert_eq!(summary.clock, Some(clock));
    }
    assert_eq!(clock(2), None, "nothing in these frames tells a time");
}

#[test]
fn blocks_that_were_found_without_a_record_say_nothing_of_the_clock() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").timely().unsealed()]);
    std::fs::remove_file(laid.index_path(0, 0)).unwrap();
    recovered(&store, &laid);
    let account = opened(&store, &laid).streams[0].account.clone().unwrap();
    assert!(account.unverified > 0);
    assert_eq!(account.clock, None);
}
