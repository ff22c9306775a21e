//! Tests of recordings of datagrams onto files in place of drives.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::completeness::{Planned, Status};
use fullbore_core::device::{DeviceEnd, Word};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::State;
use fullbore_core::units::ByteSize;
use fullbore_device::{Error, Volume};
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use tempfile::TempDir;

use super::{DeviceConfig, DeviceTarget};
use crate::error::RecordError;
use crate::event::{Event, Sealed};
use crate::recorder::{Limit, Recorder, RecordingConfig};
use crate::sink::SinkConfig;

/// The size of a device.
const MEDIA: u64 = 64 << 20;

/// The size of a datagram.
const DATAGRAM: usize = 4096;

struct Rig {
    directory: TempDir,
    ports: Vec<u16>,
}

impl Rig {
    fn new(ports: usize) -> Self {
        let free: Vec<_> = (0..ports).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let ports = free.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        Self { directory: tempfile::tempdir().unwrap(), ports }
    }

    fn path(&self, device: usize) -> PathBuf {
        self.directory.path().join(format!("{device}.img"))
    }

    /// A recording of each port onto the device with its number.
    fn plan(&self, parameters: &str) -> RecordingConfig {
        let sources = self.ports.iter().map(|port| {
            let text = format!("udp://127.0.0.1:{port}?format=raw&block=128KiB");
            UdpSource::parse(&text).unwrap().remove(0)
        });
        let device = |number| {
            let text = format!("device:{}?size={MEDIA}{parameters}", self.path(number).display());
            let end = DeviceEnd::parse(&text).unwrap();
            DeviceTarget { scan: end.scan.clone(), end, overwrite: None }
        };
        let devices = (0..self.ports.len()).map(device).collect();
        let to = SinkConfig::Device(DeviceConfig { devices });
        let scans = vec!["r1_a".parse().unwrap()];
        RecordingConfig {
            buffer: Some(ByteSize(self.ports.len() as u64 * (16 << 20))),
            ..RecordingConfig::new(sources, to, scans)
        }
    }

    /// Sends datagrams that are filled with the number of their port.
    fn send(&self, datagrams: usize) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..datagrams {
            for (number, port) in self.ports.iter().enumerate() {
                socket.send_to(&[number as u8 + 1; DATAGRAM], ("127.0.0.1", *port)).unwrap();
            }
        }
    }
}

fn arm(plan: RecordingConfig) -> Result<Recorder, RecordError> {
    Recorder::arm(plan, &mut |_| {})
}

fn refusal(plan: RecordingConfig) -> Error {
    match arm(plan).err() {
        Some(RecordError::Device(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// Sends datagrams, and records them until the limit.
fn record(rig: &Rig, plan: RecordingConfig, datagrams: usize) -> Sealed {
    let recorder = arm(plan).unwrap();
    rig.send(datagrams);
    run(recorder, &Arc::new(StopHandle::default()))
}

/// Records until the limit, or a stop.
fn run(recorder: Recorder, control: &Arc<StopHandle>) -> Sealed {
    let mut sealed = None;
    let mut tell = |event: &Event| {
        if let Event::Sealed(it) = event {
            sealed = Some(it.as_ref().clone());
        }
    };
    recorder.run(control, &mut tell).unwrap();
    sealed.expect("it is sealed")
}

fn content(path: &Path, bytes: usize) -> Vec<u8> {
    std::fs::read(path).unwrap()[..bytes].to_vec()
}

#[test]
fn each_stream_goes_to_its_own_device() {
    let rig = Rig::new(3);
    let bytes = 20 * DATAGRAM;
    let limit = Limit { bytes: Some(3 * bytes as u64), ..Limit::default() };
    let sealed = record(&rig, RecordingConfig { limit, ..rig.plan("") }, 20);
    for (number, result) in sealed.devices.iter().enumerate() {
        assert!(result.is_whole() && !result.full, "{result:?}");
        assert_eq!((result.bytes, result.durable_bytes), (bytes as u64, bytes as u64));
        assert_eq!(result.device, rig.path(number));
        assert!(content(&rig.path(number), bytes).iter().all(|&byte| byte == number as u8 + 1));
    }
}

#[test]
fn the_index_of_each_device_keeps_the_plan_and_what_its_stream_does_not_cover() {
    let rig = Rig::new(2);
    let begin = Clock::new().now();
    let planned = Planned { begin: Some(begin), end: Some(begin.plus_ns(5_000_000_000)) };
    let recorder = arm(RecordingConfig { planned, ..rig.plan("&scan=r1_a") }).unwrap();
    // Only the first stream gets data.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..10 {
        socket.send_to(&[1; DATAGRAM], ("127.0.0.1", rig.ports[0])).unwrap();
    }
    let control = Arc::new(StopHandle::default());
    let stop = std::thread::spawn({
        let control = control.clone();
        move || {
            std::thread::sleep(Duration::from_millis(600));
            control.stop();
        }
    });
    let sealed = run(recorder, &control);
    stop.join().unwrap();
    assert_eq!(sealed.completeness.status, Status::Incomplete);
    for (number, account) in sealed.accounts.iter().enumerate() {
        let volume = Volume::open_to_read(&rig.path(number)).unwrap();
        let scan = &volume.superblock().scans[0];
        assert_eq!(sealed.devices[number].scan.as_ref(), Some(scan), "what is told is stored");
        assert_eq!(scan.planned, Some(planned));
        let extract = scan.extract.as_ref().unwrap();
        assert_eq!(extract.presence, account.presence);
        let told = scan.completeness().unwrap();
        assert_eq!((told.status, told.planned), (Status::Incomplete, Some(planned)));
        assert!(told.uncovered.unwrap().ns > 4_000_000_000, "{}", told.headline);
    }
    assert!(sealed.accounts[1].never_came() && !sealed.accounts[0].never_came());
}

#[test]
fn an_unsealed_scan_has_its_plan_in_the_index() {
    let rig = Rig::new(1);
    let start = Clock::new().now().plus_ns(3_600_000_000_000);
    let planned = Planned { begin: Some(start), end: Some(start.plus_ns(1_000_000_000)) };
    let waiting = RecordingConfig { planned, start: Some(start), ..rig.plan("&scan=r1_a") };
    let _recorder = arm(waiting).unwrap();
    let volume = Volume::open_to_read(&rig.path(0)).unwrap();
    let scan = &volume.superblock().scans[0];
    assert_eq!((scan.state, scan.planned), (State::Recording, Some(planned)));
}

#[test]
fn a_device_that_is_full_ends_the_recording() {
    let rig = Rig::new(1);
    let sealed = record(&rig, rig.plan("&last=0x20000"), 100);
    let [result] = &sealed.devices[..] else { panic!("{sealed:?}") };
    assert!(result.full && result.is_whole(), "bare chunks have room for no more: {result:?}");
    assert_eq!((result.bytes, result.status.words.as_slice()), (256 << 10, &[Word::Finished][..]));
    assert!(sealed.manifest.members[0].failure.is_none(), "a full device has not failed");
}

#[test]
fn nothing_is_written_unless_every_device_and_every_port_is_ready() {
    let rig = Rig::new(2);
    std::fs::write(rig.path(0), vec![0; MEDIA as usize]).unwrap();
    let before = std::fs::read(rig.path(0)).unwrap();
    let _busy = UdpSocket::bind(("127.0.0.1", rig.ports[1])).unwrap();
    for parameters in ["", "&scan=r1_a"] {
        assert!(matches!(arm(rig.plan(parameters)), Err(RecordError::Port(_))));
        assert_eq!(std::fs::read(rig.path(0)).unwrap(), before, "{parameters}");
        assert!(!rig.path(1).exists(), "a file that was created for nothing is removed");
    }
}

#[test]
fn a_recording_that_ends_before_its_start_leaves_neither_file_nor_scan() {
    let rig = Rig::new(2);
    let first = RecordingConfig {
        limit: Limit { duration: Some(Duration::from_millis(300)), ..Limit::default() },
        ..rig.plan("&scan=r1_a")
    };
    std::fs::write(rig.path(0), vec![0; MEDIA as usize]).unwrap();
    record(&rig, first, 1);
    std::fs::remove_file(rig.path(1)).unwrap();
    let start = Some(Clock::new().now().plus_ns(3_600_000_000_000));
    let waiting = RecordingConfig { start, ..rig.plan("&scan=r1_b") };
    let (recorder, control) = (arm(waiting).unwrap(), Arc::new(StopHandle::default()));
    let names = || {
        let volume = Volume::open_to_read(&rig.path(0)).unwrap();
        volume.superblock().scans.iter().map(|scan| scan.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["r1_a", "r1_b"]);
    control.stop();
    recorder.run(&control, &mut |_| {}).unwrap();
    assert_eq!(names(), ["r1_a"]);
    assert!(!rig.path(1).exists());
}

#[test]
fn streams_that_devices_cannot_record_are_refused() {
    let rig = Rig::new(2);
    let scans = vec!["r1_a".parse().unwrap(), "r1_b".parse().unwrap()];
    let series = RecordingConfig { scans, ..rig.plan("") };
    assert!(matches!(refusal(series), Error::Series));
    let mut odd = rig.plan("");
    odd.sources.truncate(1);
    assert!(matches!(refusal(odd), Error::NotPaired { streams: 1, devices: 2 }));
    let limit = Limit { bytes: Some(1 << 30), ..Limit::default() };
    let large = RecordingConfig { limit, ..rig.plan("&scan=r1_a") };
    assert!(matches!(refusal(large), Error::NoSpace { .. }));
    let small = refusal(rig.plan("&scan=r1_a&chunk=256KiB"));
    assert!(matches!(small, Error::SmallBlocks { .. }), "{small}");
    assert!(!rig.path(0).exists() && !rig.path(1).exists());
}
