//! Any bytes as a TDMS file.
#![no_main]

use fullbore_formats::tdms::{ChannelCursor, Contents, Scanner, Step, TdmsError};

libfuzzer_sys::fuzz_target!(|file: &[u8]| check(file));

fn check(file: &[u8]) {
    let Ok(contents) = scan(file) else { return };
    for group in contents.groups() {
        for channel in contents.channels(group) {
            let object = contents.object(channel);
            let Some(size) = object.data_type.and_then(|it| it.bytes()) else { continue };
            let (mut cursor, mut values) = (ChannelCursor::new(channel), 0);
            while let Some(run) = cursor.next(&contents, 1000, 100) {
                assert!((1..=1000).contains(&run.values), "a run has its bounds");
                let size = if run.bit.is_some() { 1 } else { u64::from(size) };
                let end = run.at + (run.values - 1) * run.row_bytes + run.in_row + size;
                assert!(end <= file.len() as u64, "all values are in the file");
                values += run.values;
            }
            assert_eq!(values, object.values);
        }
    }
}

/// Gives exactly the bytes that are asked for.
fn scan(file: &[u8]) -> Result<Contents, TdmsError> {
    let mut scanner = Scanner::new(file.len() as u64);
    let mut given = 0;
    loop {
        let at = scanner.position() as usize;
        match scanner.step(&file[at..at + given])? {
            Step::More(needed) => {
                assert!(needed > given && at + needed <= file.len(), "they are there");
                given = needed;
            }
            Step::Segment { .. } => given = 0,
            Step::End => return Ok(scanner.finish()),
        }
    }
}
