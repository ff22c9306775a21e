//! What a station reads from outside: lines of recorders in parts of any size, and requests to record.

#![no_main]

use fullbore_daemon::recorder::life::{Input, Life, MOST_FINISHED, MOST_WARNINGS};
use fullbore_daemon::recorder::lines::Lines;
use fullbore_daemon::recorder::report::Report;
use fullbore_daemon::recorder::request::StartRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let (mut lines, mut whole) = (Lines::default(), Lines::default());
    let (mut life, mut found, mut expected) = (Life::default(), Vec::new(), Vec::new());
    for part in bytes.chunks(usize::from(size) + 1) {
        lines.feed(part, |line| {
            found.push(line.to_vec());
            if let Some(report) = Report::of_line(line) {
                life.step(Input::Said(report));
            }
        });
    }
    whole.feed(bytes, |line| expected.push(line.to_vec()));
    assert_eq!(found, expected);
    assert!(life.is_active());
    assert!(life.warnings.len() <= MOST_WARNINGS && life.finished.len() <= MOST_FINISHED);
    if let Ok(request) = serde_json::from_slice::<StartRequest>(bytes)
        && request.check().is_ok()
    {
        let words = request.words("/store", &request.source, None);
        let sources = words.iter().position(|word| word == "--").expect("sources stand behind it");
        assert!(words[2..sources].iter().all(|word| word.starts_with("--")));
        assert!(words[sources + 1..].iter().all(|word| !word.starts_with('-')));
    }
});
