//! Any bytes as the metadata of a SigMF recording, as the start of a file of numpy, and as chunks of a WAV file.
#![no_main]

use fullbore_containers::read::{numpy, sigmf, wav};

libfuzzer_sys::fuzz_target!(|input: (u64, &[u8])| check(input));

fn check((length, bytes): (u64, &[u8])) {
    if let Ok(header) = numpy::parse(bytes) {
        assert!(header.bytes as usize <= bytes.len() && header.layout.channels > 0);
    }
    if let Ok(Ok(found)) = wav::parse(&bytes, length) {
        assert!(found.skip <= length || found.bytes == 0, "the samples are in the file");
        assert!(found.bytes <= length.saturating_sub(found.skip));
        assert!(found.layout.samples_in(found.bytes).is_some());
    }
    let Ok(recording) = sigmf::parse(bytes) else { return };
    let Ok(file) = recording.in_file("x".into(), length) else { return };
    assert!(file.skip + file.bytes <= length, "the samples are in the file");
    assert_eq!(file.layout.samples_in(file.bytes), Some(file.bytes / file.sample_bytes()));
    assert!(file.runs[0].in_file == 0, "a file begins with its first run");
    for pair in file.runs.windows(2) {
        let (here, there) = (pair[1].in_file - pair[0].in_file, pair[1].in_stream - pair[0].in_stream);
        assert!(here > 0 && there > here, "a gap is between two runs");
    }
    let length = file.common_length(1000);
    assert!(length == 0 || (file.bytes / file.sample_bytes()).is_multiple_of(length));
}
