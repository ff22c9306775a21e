//! Tests of devices with files in their place: every file system has them, and a drive behaves alike.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::device::{AddressError, BytesStream, DeviceEnd, Ending, Flush, Word};
use fullbore_core::hint::Hint;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::pattern::{Diagnosis, Pattern};
use fullbore_core::units::ByteSize;
use fullbore_device::verify::{Verification, verify_pattern};
use fullbore_device::*;
use fullbore_engine::recorder::{Event, EventHandler, RecordError, Recorder, RecordingConfig};
use fullbore_engine::sink::SinkConfig;
use fullbore_engine::sink::device::{DeviceConfig, DeviceResult, DeviceTarget};
use fullbore_engine::source::SourceConfig;
use fullbore_linux::stop_handle::StopHandle;

const CHUNK: u64 = 128 << 10;

/// A device full of bytes that no other test writes.
fn device(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let old = vec![0xA5; 1 << 20];
    for place in (0..bytes).step_by(old.len()) {
        let piece = old.len().min((bytes - place) as usize);
        file.as_file().write_all_at(&old[..piece], place).unwrap();
    }
    file
}

fn end(path: &Path, parameters: &str) -> DeviceEnd {
    DeviceEnd::parse(&format!("device:{}?{parameters}", path.display())).unwrap()
}

/// A recording of a source of bytes onto a device.
fn plan(end: DeviceEnd, source: &str) -> RecordingConfig {
    let stream = BytesStream { flush: Flush::AfterAbort, ..BytesStream::parse(source).unwrap() };
    let scan = end.scan.clone().unwrap_or_else(|| name("bare_chunks"));
    let device = DeviceTarget { scan: end.scan.clone(), end, overwrite: None };
    let to = SinkConfig::Device(DeviceConfig { devices: vec![device] });
    RecordingConfig {
        buffer: Some(ByteSize(8 << 20)),
        ..RecordingConfig::new([stream], to, vec![scan])
    }
}

/// The same, with permission to overwrite this device.
fn overwriting(mut plan: RecordingConfig, named: &Path) -> RecordingConfig {
    let SinkConfig::Device(to) = &mut plan.sinks[0] else { unreachable!("it is onto a device") };
    to.devices[0].overwrite = Some(named.to_owned());
    plan
}

fn pattern(bytes: Option<u64>) -> String {
    "pattern:counter".to_owned() + &bytes.map_or(String::new(), |bytes| format!("?bytes={bytes}"))
}

fn write(plan: RecordingConfig) -> Result<DeviceResult, Error> {
    record(plan, &Arc::new(StopHandle::default()), &mut |_| {})
}

/// Records, and returns the result on the device.
fn record(
    plan: RecordingConfig,
    control: &Arc<StopHandle>,
    tell: &mut EventHandler<'_>,
) -> Result<DeviceResult, Error> {
    let mut result = None;
    let mut tell = |event: &Event| {
        if let Event::Sealed(sealed) = event {
            result = sealed.devices.first().cloned();
        }
        tell(event);
    };
    let recorder = match Recorder::arm(plan, &mut tell) {
        Ok(recorder) => recorder,
        Err(RecordError::Device(error)) => return Err(*error),
        Err(error) => panic!("{error}"),
    };
    // A source that breaks is an error after the scan is sealed.
    let _ = recorder.run(control, &mut tell);
    Ok(result.expect("it is sealed"))
}

fn expected(bytes: usize) -> Vec<u8> {
    let mut expected = vec![0; bytes];
    Pattern::Counter.fill(&mut expected, 0);
    expected
}

fn verified(volume: &mut Volume, scan: &str) -> Result<Verification, Error> {
    verify::verify_scan(volume, &name(scan), &StopHandle::default(), &|_, _| {})
}

fn name(text: &str) -> ScanName {
    text.parse().unwrap()
}

#[test]
fn a_session_touches_its_chunks_and_nothing_else() {
    let file = device(8 << 20);
    let end = end(file.path(), "first=0x20000&last=0x4a0000&block=256KiB");
    let recorded = write(plan(end, &pattern(None))).unwrap();
    assert_eq!(recorded.status.words, [Word::Finished]);
    assert_eq!(recorded.status.captured_last, Some(0x4a_0000));
    assert_eq!(recorded.durable_bytes, recorded.bytes);
    let content = std::fs::read(file.path()).unwrap();
    let (first, behind) = (0x2_0000, 0x4c_0000);
    assert!(content[..first].iter().all(|&byte| byte == 0xA5), "before the first chunk");
    assert!(content[behind..].iter().all(|&byte| byte == 0xA5), "behind the last chunk");
    assert!(content[first..behind] == expected(behind - first));
}

#[test]
fn wrong_addresses_are_refused_before_anything_is_written() {
    let file = device(2 << 20);
    for (parameters, name) in [
        ("first=512", "address-unaligned"),
        ("last=0x20001", "address-unaligned"),
        ("first=0x40000&last=0x20000", "address-first-greater-than-last"),
        ("last=0x200000", "address-range-greater-than-media"),
        ("first=0x200000", "address-range-greater-than-media"),
        ("chunk=4MiB", "media-smaller-than-chunk"),
    ] {
        let error = write(plan(end(file.path(), parameters), &pattern(None))).unwrap_err();
        let Error::Address { source, .. } = &error else { panic!("{parameters}: {error}") };
        assert_eq!(AddressError::name(source), name, "{parameters}");
        assert!(error.hint().is_some());
    }
    assert!(std::fs::read(file.path()).unwrap().iter().all(|&byte| byte == 0xA5));
}

#[test]
fn an_early_end_is_told_with_the_chunk_it_came_in() {
    let file = device(4 << 20);
    let bytes = 3 * CHUNK + 1000;
    let recorded =
        write(plan(end(file.path(), "first=0&last=0x1e0000"), &pattern(Some(bytes)))).unwrap();
    assert_eq!(recorded.status.words, [Word::Finished, Word::EarlyEnd]);
    assert!(recorded.early);
    assert_eq!((recorded.bytes, recorded.status.captured_last), (bytes, Some(3 * CHUNK)));
    let content = std::fs::read(file.path()).unwrap();
    let bytes = bytes as usize;
    assert!(content[..bytes] == expected(bytes));
    let page = bytes.next_multiple_of(4096);
    assert!(content[bytes..page].iter().all(|&byte| byte == 0), "the rest of the page is zeros");
    assert!(content[page..].iter().all(|&byte| byte == 0xA5), "and nothing behind it is touched");
}

#[test]
fn leftover_input_is_flushed_when_asked_to() {
    let file = device(2 << 20);
    let wanted = end(file.path(), "first=0&last=0");
    let mut flushing = plan(wanted.clone(), &pattern(Some(2 * CHUNK)));
    let SourceConfig::Bytes(stream) = &mut flushing.sources[0] else { unreachable!("bytes") };
    stream.flush = Flush::Always;
    let recorded = write(flushing).unwrap();
    assert_eq!(recorded.status.words, [Word::Finished, Word::FlushFinished]);
    assert_eq!((recorded.bytes, recorded.status.flushed_bytes), (CHUNK, CHUNK));
    let kept = write(plan(wanted, &pattern(Some(2 * CHUNK)))).unwrap();
    assert_eq!((kept.status.words, kept.status.flushed_bytes), (vec![Word::Finished], 0));
}

/// Stops a session from outside once some of it is written.
fn ended_by(end: DeviceEnd, urgency: u8) -> DeviceResult {
    let control = Arc::new(StopHandle::default());
    let slow = "pattern:counter?bytes=48MiB&rate=40MB/s";
    let mut told = 0;
    let mut tell = |event: &Event| {
        if let Event::Progress(progress) = event {
            told = progress.members[0].written_bytes;
            if told > 4 * CHUNK {
                if urgency > 1 { control.abort() } else { control.stop() }
            }
        }
    };
    record(plan(end, slow), &control, &mut tell).unwrap()
}

#[test]
fn after_a_stop_and_after_an_abort_everything_up_to_the_last_address_is_new_and_nothing_behind_it()
{
    for urgency in [1, 2] {
        let file = device(64 << 20);
        let recorded = ended_by(end(file.path(), "first=0&block=128KiB"), urgency);
        let word = if urgency > 1 { Word::Aborted } else { Word::Stopped };
        assert!(recorded.status.has(word) && recorded.status.has(Word::Finished));
        let last = recorded.status.captured_last.unwrap();
        assert_eq!(last, (recorded.bytes - 1) / CHUNK * CHUNK);
        let content = std::fs::read(file.path()).unwrap();
        let bytes = recorded.bytes as usize;
        assert!(bytes < 60 << 20, "it ran to its end");
        assert!(content[..bytes] == expected(bytes));
        let behind = (last + CHUNK) as usize;
        assert!(content[behind..].iter().all(|&byte| byte == 0xA5), "urgency {urgency}");
        let flushed = recorded.status.has(Word::FlushFinished);
        assert_eq!(flushed, urgency > 1, "an abort flushes by itself, a stop does not");
    }
}

#[test]
fn an_aborted_scan_is_in_the_index_as_far_as_it_was_written_and_frees_the_rest() {
    let file = device(64 << 20);
    let path = file.path();
    write(plan(end(path, "scan=r1_before"), &pattern(Some(1 << 20)))).unwrap();
    let recorded = ended_by(end(path, "scan=r1_aborted&block=128KiB"), 2);
    let mut volume = Volume::open_to_read(path).unwrap();
    let stored = volume.scan(&name("r1_aborted")).unwrap().clone();
    assert_eq!(recorded.scan.as_ref(), Some(&stored), "what is told is what the index says");
    assert_eq!((stored.state, stored.ending), (State::Aborted, Ending::Aborted));
    assert_eq!((stored.bytes, stored.blocks), (recorded.bytes, recorded.bytes / CHUNK));
    assert_eq!(recorded.durable_bytes, recorded.bytes, "what was written is safe");
    let last = stored.first + recorded.bytes - CHUNK;
    assert_eq!(recorded.status.captured_last, Some(last));
    assert_eq!((stored.last(CHUNK as u32), stored.limit), (Some(last), last));
    assert!(verified(&mut volume, "r1_aborted").unwrap().good);
    drop(volume);
    let next = write(plan(end(path, "scan=r1_next"), &pattern(Some(1 << 20)))).unwrap();
    assert!(next.scan.unwrap().first > last, "the rest is free");
    let mut volume = Volume::open_to_read(path).unwrap();
    for scan in ["r1_before", "r1_aborted", "r1_next"] {
        assert!(verified(&mut volume, scan).unwrap().good, "{scan}");
    }
}

#[test]
fn a_partition_table_is_not_written_over_unless_the_device_is_named_again() {
    let tables: [(u64, &[u8]); 3] =
        [(510, b"\x55\xaa"), (512, b"EFI PART"), ((8 << 20) - 512, b"EFI PART")];
    for (place, table) in tables {
        let file = device(8 << 20);
        let path = file.path();
        file.as_file().write_all_at(table, place).unwrap();
        let before = std::fs::read(path).unwrap();
        for parameters in ["first=0&last=0", "first=0x100000&last=0x100000", "scan=r1_a"] {
            let to = || plan(end(path, parameters), &pattern(Some(CHUNK)));
            let other = overwriting(to(), Path::new("/dev/other"));
            for typed in [to(), other] {
                let error = write(typed).unwrap_err();
                assert!(matches!(error, Error::Guard(_)), "{place}, {parameters}: {error}");
            }
        }
        assert!(std::fs::read(path).unwrap() == before, "nothing was written: {place}");
        let named = overwriting(plan(end(path, "scan=r1_a"), &pattern(Some(CHUNK))), path);
        write(named).unwrap();
        assert!(verified(&mut Volume::open_to_read(path).unwrap(), "r1_a").unwrap().good);
    }
}

#[test]
fn scans_lie_one_after_the_other_and_are_found_verified_and_removed() {
    let file = device(64 << 20);
    let path = file.path();
    for (scan, bytes) in [("r1_a", 5 << 20), ("r1_b", 100_000), ("r1_c", 9 << 20)] {
        let recorded =
            write(plan(end(path, &format!("scan={scan}&block=1MiB")), &pattern(Some(bytes))))
                .unwrap();
        let stored = recorded.scan.unwrap();
        assert_eq!((stored.state, stored.ending), (State::Sealed, Ending::Complete), "{scan}");
        assert_eq!((stored.bytes, recorded.durable_bytes), (bytes, bytes), "{scan}");
    }
    let mut volume = Volume::open_to_read(path).unwrap();
    let names: Vec<String> =
        volume.superblock().scans.iter().map(|scan| scan.name.to_string()).collect();
    assert_eq!(names, ["r1_a", "r1_b", "r1_c"]);
    for scan in ["r1_a", "r1_b", "r1_c"] {
        let verification = verified(&mut volume, scan).unwrap();
        assert!(verification.good, "{verification:?}");
        // The data is stored unchanged.
        let stored = volume.scan(&name(scan)).unwrap();
        let mut content = vec![0; stored.bytes as usize];
        file.as_file().read_exact_at(&mut content, stored.first).unwrap();
        assert!(content == expected(content.len()), "{scan}");
    }
    let again = write(plan(end(path, "scan=r1_a"), &pattern(Some(1)))).unwrap_err();
    assert!(matches!(again, Error::ScanExists { .. }), "{again}");
    let removed = Volume::open_to_change(path).unwrap().remove(&name("r1_b")).unwrap();
    let refilled = write(plan(end(path, "scan=r1_d"), &pattern(Some(1000)))).unwrap().scan.unwrap();
    assert_ne!(refilled.first, removed.first, "the largest gap is taken");
    assert!(matches!(
        Volume::open_to_read(path).unwrap().scan(&name("r1_b")),
        Err(Error::NoScan { .. })
    ));
}

#[test]
fn a_flipped_bit_is_found_in_its_block_and_a_damaged_record_is_named() {
    let file = device(64 << 20);
    let path = file.path();
    let recorded = write(plan(end(path, "scan=r1_a&block=1MiB"), &pattern(Some(4 << 20)))).unwrap();
    let first = recorded.scan.unwrap().first;
    let mut byte = [0];
    let place = first + (2 << 20) + 77;
    file.as_file().read_exact_at(&mut byte, place).unwrap();
    file.as_file().write_all_at(&[byte[0] ^ 4], place).unwrap();
    let mut volume = Volume::open_to_read(path).unwrap();
    let verification = verified(&mut volume, "r1_a").unwrap();
    let address = first + (2 << 20);
    assert_eq!(
        verification.findings,
        [DeviceDiagnostic::Block { number: 2, address, bytes: 1 << 20 }]
    );
    assert!(!verification.good && verification.status.has(Word::DataError));
    let record = volume.layout().record_place(first, 1).unwrap();
    file.as_file().write_all_at(&[0xFF], record + 20).unwrap();
    let verification = verified(&mut volume, "r1_a").unwrap();
    assert!(
        verification.findings.contains(&DeviceDiagnostic::Record { number: 1 }),
        "{verification:?}"
    );
}

#[test]
fn a_pattern_that_is_not_there_is_found_at_its_first_byte() {
    let file = device(4 << 20);
    write(plan(end(file.path(), "first=0x20000&last=0x120000"), &pattern(None))).unwrap();
    let place = end(file.path(), "first=0x20000&last=0x120000");
    let verified = |control: &StopHandle| {
        verify_pattern(&place, Pattern::Counter, control, &|_, _| {}).unwrap()
    };
    let good = verified(&StopHandle::default());
    assert!(good.good && good.status.words == [Word::Finished], "{good:?}");
    assert_eq!(good.status.captured_last, Some(0x12_0000));
    file.as_file().write_all_at(&[0xFF], 0x60000 + 8).unwrap();
    let found = verified(&StopHandle::default());
    let wrong = DeviceDiagnostic::Pattern {
        address: 0x60008,
        offset: 0x40008,
        chunk: 0x60000,
        chunks: 1,
        wrong_bytes: 1,
        wrong_bits: 7,
        diagnosis: Diagnosis::Damage,
    };
    assert_eq!(found.findings, [wrong]);
    assert_eq!(found.status.words, [Word::Finished, Word::DataError]);
}

#[test]
fn a_device_that_is_full_ends_the_scan_and_says_so() {
    let file = device(16 << 20);
    let recorded = write(plan(end(file.path(), "scan=r1_a&block=1MiB"), &pattern(None))).unwrap();
    let scan = recorded.scan.unwrap();
    assert_eq!((scan.ending, recorded.full), (Ending::Full, true));
    let mut volume = Volume::open_to_read(file.path()).unwrap();
    assert_eq!(scan.bytes, volume.span_of(&scan).bytes());
    assert!(verified(&mut volume, "r1_a").unwrap().good);
    let more = write(plan(end(file.path(), "scan=r1_b"), &pattern(Some(1)))).unwrap_err();
    assert!(matches!(more, Error::NoSpace { .. }), "{more}");
}

#[test]
fn what_needs_more_than_there_is_is_refused_beforehand() {
    let file = device(16 << 20);
    let error = write(plan(end(file.path(), "scan=r1_a"), &pattern(Some(1 << 30)))).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(std::fs::read(file.path()).unwrap().iter().all(|&byte| byte == 0xA5));
    write(plan(end(file.path(), "scan=r1_a"), &pattern(Some(1)))).unwrap();
    let error =
        write(plan(end(file.path(), "scan=r1_b&chunk=8MiB"), &pattern(Some(1)))).unwrap_err();
    assert!(matches!(error, Error::OtherChunk { .. }), "{error}");
}

#[test]
fn a_copy_of_the_index_that_is_torn_is_told_and_mended_by_the_next_change() {
    let file = device(64 << 20);
    let path = file.path();
    write(plan(end(path, "scan=r1_a"), &pattern(Some(1000)))).unwrap();
    for place in [0, Volume::open_to_read(path).unwrap().layout().second_copy()] {
        file.as_file().write_all_at(&[0xFF; 64], place + 8192).unwrap();
        let volume = Volume::open_to_read(path).unwrap();
        assert!(volume.damage().is_some());
        let scan = format!("r1_mended{place}");
        write(plan(end(path, &format!("scan={scan}")), &pattern(Some(1000)))).unwrap();
        let mended = Volume::open_to_read(path).unwrap();
        assert!(mended.damage().is_none(), "{place:#x}");
        assert!(mended.scan(&name(&scan)).is_ok());
    }
}

#[test]
fn two_recorders_do_not_share_a_device() {
    let file = device(64 << 20);
    write(plan(end(file.path(), "scan=r1_a"), &pattern(Some(1000)))).unwrap();
    let held = Volume::open_to_change(file.path()).unwrap();
    let error = write(plan(end(file.path(), "scan=r1_b"), &pattern(Some(1000)))).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(held);
    write(plan(end(file.path(), "scan=r1_b"), &pattern(Some(1000)))).unwrap();
}

#[test]
fn a_read_that_is_stopped_or_aborted_captures_the_last_chunk_it_read() {
    let file = device(16 << 20);
    write(plan(end(file.path(), "first=0&last=0xfe0000"), &pattern(None))).unwrap();
    for (urgency, word) in [(1, Word::Stopped), (2, Word::Aborted)] {
        let control = StopHandle::default();
        let ask = |done: u64, _| {
            if done == 8 << 20 {
                if urgency > 1 { control.abort() } else { control.stop() }
            }
        };
        let it = verify_pattern(&end(file.path(), "first=0"), Pattern::Counter, &control, &ask);
        let it = it.unwrap();
        assert!(it.good && it.status.has(word), "{it:?}");
        assert_eq!(it.status.captured_last, Some((8 << 20) - CHUNK));
    }
}

#[test]
fn what_an_earlier_session_left_is_called_stale() {
    let file = device(4 << 20);
    write(plan(end(file.path(), "first=0"), "pattern:random:1")).unwrap();
    let again = plan(end(file.path(), "first=0&last=0x1e0000"), "pattern:random:2");
    write(overwriting(again, file.path())).unwrap();
    let now = Pattern::Random { seed: 2 };
    let it =
        verify_pattern(&end(file.path(), ""), now, &StopHandle::default(), &|_, _| {}).unwrap();
    let [DeviceDiagnostic::Pattern { address, chunks, diagnosis, .. }] = it.findings[..] else {
        panic!("{it:?}")
    };
    assert_eq!((address / CHUNK, chunks), (16, 16));
    assert_eq!(diagnosis, Diagnosis::Stale { seed: Some(1) });
}

#[test]
fn a_device_is_copied_onto_another_and_a_damaged_block_is_not() {
    let (from, to) = (device(32 << 20), device(32 << 20));
    write(plan(end(from.path(), "scan=r1_a&block=1MiB"), &pattern(Some(3_500_000)))).unwrap();
    let copy = |scan: &str| {
        let source = format!("device:{}?scan=r1_a", from.path().display());
        write(plan(end(to.path(), &format!("scan={scan}&block=256KiB")), &source)).unwrap()
    };
    let whole = copy("r1_whole");
    assert_eq!((whole.bytes, whole.failure), (3_500_000, None));
    let first = whole.scan.unwrap().first as usize;
    assert!(std::fs::read(to.path()).unwrap()[first..][..3_500_000] == expected(3_500_000));
    let place =
        DeviceReader::open(&end(from.path(), "scan=r1_a")).unwrap().span().first() + (2 << 20);
    from.as_file().write_all_at(&[0xFF; 64], place).unwrap();
    let cut = copy("r1_cut");
    assert_eq!(cut.bytes, 2 << 20, "what lies before the damaged block");
    assert!(cut.failure.unwrap().contains("block 2 is damaged"));
}

#[test]
fn a_device_that_has_become_smaller_is_read_and_not_written_and_a_larger_one_is_both() {
    let file = device(32 << 20);
    let path = file.path();
    write(plan(end(path, "scan=r1_a"), &pattern(Some(1 << 20)))).unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    write(plan(end(path, "scan=r1_larger"), &pattern(Some(1 << 20)))).unwrap();
    assert!(Volume::open_to_read(path).unwrap().damage().is_none(), "both copies are found");
    file.as_file().set_len(16 << 20).unwrap();
    assert!(verified(&mut Volume::open_to_read(path).unwrap(), "r1_a").unwrap().good);
    let error = write(plan(end(path, "scan=r1_smaller"), &pattern(Some(1000)))).unwrap_err();
    assert!(matches!(error, Error::Shrunk { .. }), "{error}");
}

#[test]
fn no_file_is_made_for_addresses_that_it_would_not_have() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let error = write(plan(end(&path, "size=1MiB&last=0x100000"), &pattern(None))).unwrap_err();
    assert!(matches!(error, Error::Address { .. }) && !path.exists(), "{error}");
}
