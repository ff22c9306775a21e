//! Any bytes of a client of VSI-S: the answers are the same whatever pieces they come in, each line gets one, each answer is
//! short, and the station is told to start no more than one recording of a runtime. The first byte chooses the pieces.
#![no_main]

use fullbore_vsi::flexbuff::{Dialect, FlexBuff, MOST_RUNTIMES, Outcome, Session};
use fullbore_vsi::line::{Lines, MOST_STATEMENTS};
use fullbore_vsi::reply::LONGEST_REPLY;
use fullbore_vsi::testing::MemoryStation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let size = usize::from(first) + 1;
    assert_eq!(answers(rest.chunks(size)), answers([rest]), "pieces of {size}");
}

/// All answers to a client that may write.
fn answers<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut lines, mut answers) = (Lines::default(), Vec::new());
    let (mut dialect, mut session) = (FlexBuff::default(), Session::new(true));
    let mut station = MemoryStation::default();
    for piece in pieces {
        lines.feed(piece);
        while let Ok(Some(line)) = lines.next_line() {
            let outcome = dialect.line(&mut session, &mut station, &line.text, false);
            let Outcome::Answer(answer) = outcome else { panic!("it may not wait") };
            assert!(!answer.is_empty() && !answer.contains('\n'));
            assert!(answer.len() <= MOST_STATEMENTS * (LONGEST_REPLY + 1));
            assert!(station.running() <= MOST_RUNTIMES);
            answers.push(answer);
        }
    }
    answers
}
