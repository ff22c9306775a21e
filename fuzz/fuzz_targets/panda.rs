//! Any bytes as what a PandA's data port sends. The first byte chooses in which pieces they come.
#![no_main]

use fullbore_formats::panda::codec::{Decoder, Error, Event, Want};
use fullbore_formats::panda::control::Answers;
use fullbore_formats::panda::{ConnectionTotals, Ending, Header, SampleValidator};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// A header that fits, so that frames are reached without the fuzzer having to find one.
const START: &[u8] = b"OK\n<header>\n<data missed=\"3\" process=\"Raw\" format=\"Framed\" sample_bytes=\"4\" />\n<fields>\n<field name=\"A.B\" type=\"int32\" capture=\"Value\" />\n</fields>\n</header>\n\n";

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let size = usize::from(first % 61) + 1;
    let begun = [START, rest].concat();
    for stream in [rest, &begun] {
        let once = read([stream]);
        assert_eq!(read(stream.chunks(size)), once, "pieces of {size}");
        let cut = read([&stream[..stream.len() / 2]]);
        for (cut, all) in cut.1.iter().zip(&once.1) {
            assert!(cut.certified <= all.certified);
        }
    }
    if let Ok(header) = Header::from_xml(rest) {
        let sizes: u32 = header.fields.iter().map(|field| field.kind.bytes()).sum();
        assert_eq!(sizes, header.sample_bytes);
        let again = Header::from_xml(header.to_xml().as_bytes()).expect("what was written");
        assert_eq!(again.fields.len(), header.fields.len());
    }
    let _ = Header::from_text(rest);
    let _ = Answers::default().feed(rest);
}

/// Events, tallies, and the error if there was one.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Vec<ConnectionTotals>, Option<Error>) {
    let (mut events, mut tallies) = (Vec::new(), Vec::new());
    let mut decoder = Decoder::new();
    let mut certifier: Option<SampleValidator> = None;
    for mut piece in pieces {
        loop {
            let event = match decoder.want() {
                Want::Payload { bytes } => {
                    let taken = bytes.min(piece.len() as u64);
                    piece = &piece[taken as usize..];
                    decoder.payload_taken(taken)
                }
                Want::Text { at_most } => match decoder.feed(piece) {
                    Ok((taken, event)) => {
                        assert!(at_most > 0);
                        piece = &piece[taken..];
                        event
                    }
                    Err(error) => {
                        tallies.extend(certifier.map(|c| c.lost(Ending::from(&error))));
                        return (events, tallies, Some(error));
                    }
                },
            };
            let Some(event) = event else { break };
            match (&event, &mut certifier) {
                (Event::Start { header, .. }, certifier) => {
                    *certifier = Some(SampleValidator::new(header));
                }
                (Event::Frame { bytes }, Some(certifier)) => drop(certifier.frame(*bytes)),
                (Event::FrameEnd, Some(certifier)) => drop(certifier.frame_end()),
                (Event::End { samples, reason }, certifier) => {
                    let certifier = certifier.take().expect("an end without a beginning");
                    tallies.push(certifier.end(*samples, reason.clone()));
                }
                (Event::Ready, _) => {}
                (event, None) => panic!("{event:?} before a header"),
            }
            events.push(event);
        }
    }
    tallies.extend(certifier.map(|c| c.lost(Ending::ConnectionLost)));
    for tally in &tallies {
        assert_eq!(tally.received, tally.certified + tally.withheld);
    }
    (events, tallies, None)
}
