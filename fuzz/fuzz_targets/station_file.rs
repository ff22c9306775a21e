//! Any text as the file of a station: it is read, or every mistake has a line of it.

#![no_main]

use std::path::Path;

use fullbore_daemon::station_file::StationFile;
use fullbore_fuzz::edited;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(&String::from_utf8_lossy(bytes));
    check(&String::from_utf8_lossy(&edited(include_str!("../../packaging/station.toml"), bytes)));
});

fn check(text: &str) {
    // No path below it exists, so that nothing of this host is read.
    if let Err(faults) = StationFile::parse(Path::new("/nowhere/station.toml"), text) {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.is_empty());
        assert!(faults.windows(2).all(|two| two[0].line <= two[1].line));
        assert!(faults.iter().all(|it| (1..=lines + 1).contains(&it.line) && !it.what.is_empty()));
    }
}
