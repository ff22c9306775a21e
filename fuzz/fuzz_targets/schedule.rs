//! Any text as a schedule, of all three forms: it is read or refused, and what is read can be recorded.
#![no_main]

use std::collections::BTreeSet;

use fullbore_core::hint::Hint;
use fullbore_core::schedule::{LONGEST, MOST_SCANS, Schedule};
use fullbore_fuzz::edited;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

const SAMPLES: [&str; 3] = [
    "session = \"exp1\"\n[[scan]]\nname = \"no\"\nstart = \"2026-11-22T18:00:00Z\"\nduration = \"40s\"\n\
     pause = 20\nrepeat = 6\n[[scan]]\nname = \"last\"\nstart = 2026-11-23T00:00:00Z\nduration = 1.5\ntarget = \"3C84\"\n",
    "# the night\nscan,start,duration,target\nno0002,2026-11-22T18:01:00Z,40s,\"3C84, or so\"\n\
     no0001,2026-11-22T18:00:00.5Z,1m 30s,\n",
    "VEX_rev = 1.5;\n$EXPER;\n def N24K1; exper_name = N24K1; enddef;\n$SCHED;\nscan No0001;\n \
     start=2026y326d18h00m00s; mode=m; source=3C84; * \"quoted\"\n station=Ef: 0 sec: 40 sec: 0.000 GB: : : 1;\n\
     endscan;\nscan No0002; start=2026y326d18h01m00.5s; station=Ef: 10 sec: 2 min: 0 GB; endscan;\n",
];

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let station = (first & 1 == 1).then_some("Ef");
    check_text(&String::from_utf8_lossy(rest), station);
    for sample in SAMPLES {
        check_text(&String::from_utf8_lossy(&edited(sample, rest)), station);
    }
}

fn check_text(text: &str, station: Option<&str>) {
    let schedule = match Schedule::read(text, station) {
        Ok(schedule) => schedule,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let _ = error.hint();
            return;
        }
    };
    let scans = &schedule.scans;
    assert!((1..=MOST_SCANS).contains(&scans.len()));
    let names: BTreeSet<&str> = scans.iter().map(|scan| scan.name.as_str()).collect();
    assert_eq!(names.len(), scans.len(), "two scans of one name");
    for scan in scans {
        assert!(scan.start < scan.end && scan.duration() <= LONGEST, "{scan:?}");
    }
    for pair in scans.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
    }
    // As a table, it says the same.
    let mut csv = "scan,start,stop\n".to_owned();
    for scan in scans {
        csv += &format!("{},{:.9},{:.9}\n", scan.name, scan.start, scan.end);
    }
    let again = Schedule::read(&csv, None).unwrap_or_else(|error| panic!("{error}: {csv}"));
    let told = |schedule: &Schedule| {
        let scans = schedule.scans.iter();
        scans.map(|scan| (scan.name.clone(), scan.start, scan.end)).collect::<Vec<_>>()
    };
    assert_eq!(told(&again), told(&schedule), "{csv}");
    assert!(again.notes.is_empty());
}
