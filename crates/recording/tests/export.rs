//! Exports owned by a program: afterwards, of one stream, while the scan is recorded, refused.

#![cfg(feature = "hdf5")]

use std::path::Path;
use std::sync::Arc;

use fullbore_core::container::Hdf5Target;
use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_hdf5 as hdf5;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::export::{ExportError, ExportEvent, ScanExport, export_dump};
use fullbore_recording::{Outcome, Recording, RecordingOptions};

const BYTES: u64 = 1 << 20;

fn start(place: &Path, sources: &[&str]) -> Recording {
    let options = RecordingOptions {
        source: sources.iter().map(|&text| text.to_owned()).collect(),
        store: vec![place.to_owned()],
        session: Some("s".into()),
        scan: Some("a".into()),
        ..RecordingOptions::default()
    };
    Recording::start(options.resolve().unwrap()).unwrap()
}

fn export(place: &Path, file: &str) -> ScanExport {
    ScanExport {
        roots: vec![place.to_owned()],
        scan: "s_a".parse::<ScanName>().unwrap(),
        stream: None,
        target: Hdf5Target::of_path(place.join(file)),
        follow: false,
        allow_damaged: false,
    }
}

fn run(
    export: &ScanExport,
) -> Result<(u64, fullbore_recording::export::ExportedScan), ExportError> {
    let mut written = 0;
    let mut tell = |event| match event {
        ExportEvent::Written { bytes } => written += bytes,
        ExportEvent::Begun { .. } => {}
        ExportEvent::Damaged { what, .. } | ExportEvent::Rest { what } => panic!("{what}"),
    };
    let exported = export.run(&StopHandle::default(), &mut tell)?;
    Ok((written, exported))
}

#[test]
fn a_scan_becomes_a_file_with_everything_that_was_recorded() {
    let place = tempfile::tempdir().unwrap();
    start(place.path(), &["pattern:counter?bytes=1MiB"]).join().unwrap();
    let whole = export(place.path(), "x.h5");
    let (written, exported) = run(&whole).unwrap();
    assert_eq!((written, exported.bytes()), (BYTES, BYTES));
    assert_eq!((exported.outcome(), exported.joined.clone()), (Outcome::Good, None));
    assert!(exported.completeness.as_ref().unwrap().is_good() && !exported.is_recording);
    let json = serde_json::to_value(&exported).unwrap();
    assert_eq!(json["scan"], "s_a");
    assert_eq!(json["streams"][0]["rows"], exported.streams[0].rows);
    let again = run(&whole).unwrap_err();
    assert!(matches!(again, ExportError::File(hdf5::Error::Exists { .. })), "{again}");
}

#[test]
fn a_block_that_cannot_be_read_leaves_no_file_behind_unless_it_may_be_left_out() {
    let place = tempfile::tempdir().unwrap();
    let sources = ["pattern:counter?bytes=1MiB&name=one", "pattern:prbs31?bytes=1MiB&name=two"];
    start(place.path(), &sources).join().unwrap();
    let inside = |path: &Path| -> Vec<_> {
        std::fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect()
    };
    let of_two = |path: &&std::path::PathBuf| path.to_str().unwrap().ends_with("two");
    let directory = inside(place.path()).iter().find(of_two).unwrap().clone();
    let chunk = inside(&directory).into_iter().find(|path| path.is_file()).unwrap();
    let bytes = std::fs::read(&chunk).unwrap();
    std::fs::remove_file(&chunk).unwrap();
    let whole = export(place.path(), "x.h5");
    let error = run(&whole).unwrap_err();
    assert!(matches!(error, ExportError::Unreadable { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("stream two: the conversion stopped after 0 of 1 048 576 bytes"),
        "{text}"
    );
    assert!(text.contains(chunk.file_name().unwrap().to_str().unwrap()), "{text}");
    assert!(error.hint().unwrap().contains("--allow-damaged"));
    for file in ["x.h5", "x_one.h5", "x_two.h5"] {
        assert!(!place.path().join(file).exists(), "{file} is left");
    }
    let without = ScanExport { allow_damaged: true, ..whole.clone() };
    let exported = without.run(&StopHandle::default(), &mut |_| ()).unwrap();
    assert_eq!((exported.outcome(), exported.bytes()), (Outcome::Problem, BYTES));
    std::fs::write(&chunk, bytes).unwrap();
    assert_eq!(run(&export(place.path(), "y.h5")).unwrap().0, 2 * BYTES);
}

#[test]
fn several_streams_become_files_and_one_that_shows_them() {
    let place = tempfile::tempdir().unwrap();
    let sources = ["pattern:counter?bytes=1MiB&name=one", "pattern:prbs31?bytes=1MiB&name=two"];
    start(place.path(), &sources).join().unwrap();
    let (_, exported) = run(&export(place.path(), "x.h5")).unwrap();
    assert_eq!((exported.streams.len(), exported.bytes()), (2, 2 * BYTES));
    assert!(exported.joined.unwrap().is_file());
    let one = ScanExport { stream: Some("two".parse().unwrap()), ..export(place.path(), "y.h5") };
    let (written, exported) = run(&one).unwrap();
    assert_eq!((written, exported.streams[0].stream.as_str()), (BYTES, "two"));
    let none = ScanExport { stream: Some("six".parse().unwrap()), ..one };
    let error = run(&none).unwrap_err().to_string();
    assert_eq!(error, "s_a has no stream six; it has one, two");
}

#[test]
fn a_scan_is_followed_until_it_is_sealed() {
    let place = tempfile::tempdir().unwrap();
    let recording = start(place.path(), &["pattern:counter?rate=20MB/s"]);
    let (root, stop) = (place.path().to_owned(), Arc::new(StopHandle::default()));
    let (ends, begun) = (stop.clone(), std::sync::mpsc::channel());
    let (tell, told) = begun;
    let following = std::thread::spawn(move || {
        let follow = ScanExport { follow: true, ..export(&root, "x.h5") };
        follow.run(&ends, &mut |event| {
            let _ = tell.send(event);
        })
    });
    let patience = std::time::Duration::from_secs(20);
    let first = told.recv_timeout(patience).expect("it writes while the scan is recorded");
    assert!(matches!(first, ExportEvent::Written { .. }), "{first:?}");
    assert!(!recording.has_ended());
    recording.stop();
    let sealed = recording.join().unwrap();
    let exported = following.join().unwrap().unwrap();
    stop.stop();
    assert_eq!(exported.bytes(), sealed[0].accounts[0].bytes);
    assert!(exported.streams[0].whole);
}

#[test]
fn what_is_no_scan_and_no_dump_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let error = run(&export(place.path(), "x.h5")).unwrap_err();
    assert!(matches!(error, ExportError::Scan(_)), "{error}");
    let target = Hdf5Target::of_path(place.path().join("x.h5"));
    let dump =
        |name: &str| export_dump(&place.path().join(name), &target, &mut |_| ()).unwrap_err();
    assert!(matches!(dump("none"), ExportError::NoDump { .. }));
    std::fs::write(place.path().join("text"), "hello\n").unwrap();
    assert!(matches!(dump("text"), ExportError::NotADump { .. }));
    std::fs::write(place.path().join("short"), "OK\n").unwrap();
    assert!(matches!(dump("short"), ExportError::NoHeader { .. }));
    assert!(!place.path().join("x.h5").exists());
}
