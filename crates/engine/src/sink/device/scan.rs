//! A scan on devices, off the data path: its entry in the index of each device, and the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fullbore_capture::{SourceEnd, StreamMetrics};
use fullbore_core::account::{Account, CountedBy};
use fullbore_core::device::{
    Direction, End, Ending, Extract, Kind, NO_CHUNK_LEFT, Status, StoredScan, Word,
};
use fullbore_core::manifest::{Fill, Format, Manifest, State, Stream};
use fullbore_core::units::ByteRate;
use fullbore_device::Error;
use fullbore_formats::framed::FrameKind;
use fullbore_linux::clock::Clock;

use super::{DeviceResult, Index, OpenDevice};
use crate::error::RecordError;
use crate::sink::{PendingReplies, ScanSink};

/// A scan that goes onto devices.
pub(super) struct DeviceScan {
    devices: Vec<Arc<OpenDevice>>,
    /// The metrics of each stream that has begun.
    metrics: BTreeMap<u16, Arc<StreamMetrics>>,
    /// Streams whose source has given all that was requested of it.
    exhausted: BTreeSet<u16>,
    /// True if a limit ended it.
    limited: bool,
    results: Vec<DeviceResult>,
}

impl DeviceScan {
    pub(super) fn new(devices: Vec<Arc<OpenDevice>>) -> Self {
        Self {
            devices,
            metrics: BTreeMap::new(),
            exhausted: BTreeSet::new(),
            limited: false,
            results: Vec::new(),
        }
    }
}

impl ScanSink for DeviceScan {
    fn begin(
        &mut self,
        manifest: &mut Manifest,
        _claimed: PendingReplies,
    ) -> Result<Vec<String>, RecordError> {
        let mut warnings = Vec::new();
        for (device, stream) in self.devices.iter().zip(&manifest.streams) {
            if let Some(index) = &device.index {
                warnings.extend(locked(index).begin(manifest, stream)?);
            }
        }
        self.devices.iter().for_each(|device| device.keep(true));
        Ok(warnings)
    }

    fn stream_opened(&mut self, number: u16, _stream: &Stream, metrics: &Arc<StreamMetrics>) {
        self.metrics.insert(number, metrics.clone());
    }

    /// Stores the properties of frames, which would be lost in a crash.
    fn update(&mut self, manifest: &Manifest) -> Result<(), RecordError> {
        for (device, stream) in self.devices.iter().zip(&manifest.streams) {
            if let Some(index) = &device.index {
                locked(index).describe(stream)?;
            }
        }
        Ok(())
    }

    fn exhausted(&mut self, number: u16) {
        self.exhausted.insert(number);
    }

    fn limit_reached(&mut self) {
        self.limited = true;
    }

    fn seal(
        &mut self,
        manifest: &mut Manifest,
        accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError> {
        let seconds = Clock::new().now().since(manifest.armed) as f64 / 1e9;
        let mut refused = None;
        for (number, device) in self.devices.iter().enumerate() {
            let stream = &manifest.streams[number];
            let metrics = self.metrics.get(&(number as u16));
            let is_over = self.exhausted.contains(&(number as u16));
            let no_chunk_left = manifest.members[number].failure.as_deref() == Some(NO_CHUNK_LEFT);
            let outcome = Outcome {
                device,
                stream,
                source: metrics.map(|it| &it.end),
                is_over,
                account: accounts.get(&(number as u16)),
                failure: manifest.members[number]
                    .failure
                    .clone()
                    .filter(|why| why != NO_CHUNK_LEFT),
                full: no_chunk_left
                    || (is_over && device.is_short && stream.bytes == device.span.bytes()),
                aborted: state == State::Aborted,
                limited: self.limited,
                seconds,
            };
            let mut result = outcome.result();
            if let Some(index) = &device.index {
                // A device that fails does not keep the scans on the others from being sealed.
                if let Err(error) = locked(index).seal(&outcome, manifest) {
                    result.failure.get_or_insert_with(|| error.to_string());
                    refused.get_or_insert(error);
                }
                result.scan = Some(locked(index).scan.clone());
            }
            self.results.push(result);
        }
        // A device that is full has taken all that it has room for.
        for member in &mut manifest.members {
            member.failure.take_if(|why| why == NO_CHUNK_LEFT);
        }
        manifest.state = state;
        let sealed = |result: &DeviceResult| {
            result.scan.as_ref().is_none_or(|scan| scan.state != State::Recording)
        };
        match refused {
            Some(error) if !self.results.iter().any(sealed) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn results(&mut self) -> Vec<DeviceResult> {
        std::mem::take(&mut self.results)
    }

    fn discard(&self) -> PendingReplies {
        for device in &self.devices {
            if let Some(index) = &device.index {
                locked(index).remove();
            }
            device.keep(false);
        }
        PendingReplies::none()
    }
}

/// The end of a stream on its device.
struct Outcome<'a> {
    device: &'a OpenDevice,
    stream: &'a Stream,
    /// The end of its source, if it is a source of bytes.
    source: Option<&'a SourceEnd>,
    /// True if the source has given all that was requested of it.
    is_over: bool,
    account: Option<&'a Account>,
    failure: Option<String>,
    /// True if the device had no more space.
    full: bool,
    aborted: bool,
    limited: bool,
    seconds: f64,
}

impl Outcome<'_> {
    fn end(&self) -> End {
        match (&self.failure, self.aborted, self.full) {
            (Some(_), ..) => End::Failed,
            (None, true, _) => End::Aborted,
            (None, false, true) => End::Complete,
            (None, false, false) if self.is_early() => End::Early,
            (None, false, false) if self.is_complete() => End::Complete,
            (None, false, false) => End::Stopped,
        }
    }

    /// True if everything that was requested is written, or the source has no more.
    fn is_complete(&self) -> bool {
        self.is_over || self.device.wanted.is_some_and(|wanted| self.stream.bytes >= wanted)
    }

    /// True if the source ended before the requested number of bytes.
    fn is_early(&self) -> bool {
        self.is_over && self.device.wanted.is_some_and(|wanted| self.stream.bytes < wanted)
    }

    /// The status, with the bytes of a source that were not written.
    fn status(&self) -> Status {
        let bytes = self.stream.bytes;
        let mut status = Status::ended(Direction::Write, self.device.span, self.end(), bytes);
        if let Some(account) = self.account.filter(|it| it.counted_by == CountedBy::Bytes) {
            status.dropped_bytes = account.terms.overrun;
        }
        if let Some(source) =
            self.source.filter(|it| it.is_flushed.load(Relaxed) && self.end() != End::Early)
        {
            status.words.push(Word::FlushFinished);
            status.flushed_bytes = source.flushed_bytes.load(Relaxed);
        }
        status
    }

    /// The end as the index has it. A limit that the user set is the requested end.
    fn ending(&self) -> Ending {
        match self.end() {
            End::Failed => Ending::Failed,
            End::Aborted => Ending::Aborted,
            _ if self.full => Ending::Full,
            _ if self.limited => Ending::Complete,
            End::Stopped => Ending::Stopped,
            End::Complete | End::Early => Ending::Complete,
        }
    }

    fn result(&self) -> DeviceResult {
        let device = self.device;
        let source_failure = || self.source.and_then(|it| it.failure.get().cloned());
        let held_up = self.source.map_or(0, |it| it.held_up.load(Relaxed));
        let metrics = device.metrics.get().expect("its writer was started");
        let bytes = self.stream.bytes;
        DeviceResult {
            device: device.path().to_owned(),
            status: self.status(),
            scan: None,
            bytes,
            durable_bytes: device.durable.bytes.load(Relaxed),
            seconds: self.seconds,
            rate: (bytes as f64 / self.seconds.max(1e-6)) as u64,
            longest_write_ns: metrics.longest_write_ns.load(Relaxed),
            longest_sync_ns: metrics.longest_sync_ns.load(Relaxed),
            failure: self.failure.clone().or_else(source_failure),
            full: self.full,
            held_up: (held_up > 0).then_some(ByteRate(held_up)),
            early: self.end() == End::Early,
        }
    }
}

impl Index {
    /// Enters the scan. Returns a warning if one copy of the index is damaged.
    fn begin(&mut self, manifest: &Manifest, stream: &Stream) -> Result<Option<String>, Error> {
        let damage = self.volume.damage();
        let warning =
            damage.map(|error| format!("one copy of the scan index is not good: {error}"));
        self.scan.uuid = manifest.uuid;
        self.scan.begun = manifest.armed;
        self.scan.source.clone_from(&stream.source);
        // A recorder that dies cannot store these any more.
        self.scan.planned = manifest.planned;
        self.scan.extract = Some(before_the_seal(stream));
        self.begun = true;
        self.volume.begin(&self.scan)?;
        Ok(warning)
    }

    fn describe(&mut self, stream: &Stream) -> Result<(), Error> {
        let described = described(&self.scan, stream);
        if described != self.scan {
            self.scan = described;
            self.volume.update(&mut self.scan)?;
        }
        Ok(())
    }

    /// Stores the final state of the scan.
    fn seal(&mut self, outcome: &Outcome<'_>, manifest: &Manifest) -> Result<(), Error> {
        let device = outcome.device;
        let mut scan = described(&self.scan, outcome.stream);
        scan.begun = manifest.armed;
        scan.ended = Some(Clock::new().now());
        scan.state = if outcome.aborted { State::Aborted } else { State::Sealed };
        scan.ending = outcome.ending();
        (scan.bytes, scan.blocks) = match outcome.end() {
            // Only durable blocks are certain to have records.
            End::Failed => {
                (device.durable.bytes.load(Relaxed), device.durable.blocks.load(Relaxed))
            }
            _ => (outcome.stream.bytes, outcome.stream.blocks),
        };
        scan.limit = device.span.shortened(scan.bytes).last();
        // A limit in bytes may have ended it before its planned end.
        scan.planned = manifest.planned;
        if let Some(account) = outcome.account {
            (scan.terms, scan.verdict) = (account.terms, account.verdict);
            scan.extract = Some(Extract::from(account));
        }
        self.volume.update(&mut scan)?;
        self.scan = scan;
        Ok(())
    }

    /// Removes a scan that does not begin.
    fn remove(&mut self) {
        if std::mem::take(&mut self.begun) {
            // A scan that cannot be removed is unsealed and empty, and `recover` handles it.
            let _ = self.volume.remove(&self.scan.name);
        }
    }
}

/// The scan with the properties of its stream, once the first frames are known.
fn described(scan: &StoredScan, stream: &Stream) -> StoredScan {
    let Some(geometry) = stream.geometry else { return scan.clone() };
    let (kind, frames_per_second) = match &stream.format {
        Format::Frames { kind: FrameKind::Vdif, frames_per_second, .. } => {
            (Kind::Vdif, *frames_per_second)
        }
        // The index of a device knows no other format: its frames are stored as they are.
        Format::Frames { .. } => (Kind::Raw, None),
        Format::Panda { .. } | Format::Packets { .. } | Format::Raw => (Kind::Raw, None),
    };
    StoredScan {
        kind,
        // The frames of a stream of bytes are its bytes.
        frame_bytes: if geometry.frame_bytes > 1 { geometry.frame_bytes } else { 0 },
        block_bytes: geometry.block_bytes,
        frames_per_second,
        extract: Some(before_the_seal(stream)),
        ..scan.clone()
    }
}

/// What is known of the account of a stream while it is recorded: the number by which the records of its blocks count.
fn before_the_seal(stream: &Stream) -> Extract {
    // Frames in order of arrival are numbered as they came, which cannot show a loss.
    let by_arrival = stream.format.is_frames() && stream.fill == Fill::Omit;
    let counted_by = (!by_arrival).then(|| stream.counted_by());
    Extract { counted_by, ..Extract::default() }
}

/// The index, which no thread leaves in a half-changed state.
pub(super) fn locked(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
