//! Verifies the contents of a device against the checksums of a scan, or against a pattern.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use fullbore_core::completeness::Completeness;
use fullbore_core::device::{DeviceEnd, Span, Status, StoredScan, Word};
use fullbore_core::name::ScanName;
use fullbore_core::pattern::{Checker, Mismatch, MismatchRun as Wrong, Pattern, Report};
use fullbore_linux::stop_handle::StopHandle;
use serde::Serialize;

use super::diagnostics::DeviceDiagnostic;
use super::error::Error;
use super::reader::DeviceReader;
use super::volume::Volume;

/// The most findings that are listed; further ones are counted.
const MOST_FINDINGS: usize = 1000;

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// The device.
    pub device: PathBuf,
    /// The scan, if one was verified.
    pub scan: Option<ScanName>,
    /// The completeness of the scan, if its frames were counted.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// The read status.
    pub status: Status,
    /// Bytes read.
    pub bytes: u64,
    /// Blocks, or pieces of a pattern.
    pub blocks: u64,
    /// Good blocks or pieces.
    pub good_blocks: u64,
    /// The problems found.
    pub findings: Vec<DeviceDiagnostic>,
    /// Findings beyond the listed ones; for a pattern, wrong chunks that no finding contains.
    pub unlisted: u64,
    /// True if there are no findings.
    pub good: bool,
    /// Duration in seconds.
    pub seconds: f64,
}

impl Verification {
    fn new(contents: &DeviceReader) -> Self {
        Self {
            device: contents.path().to_owned(),
            scan: contents.scan().map(|scan| scan.name.clone()),
            completeness: contents.scan().and_then(StoredScan::completeness),
            status: contents.status(),
            bytes: 0,
            blocks: contents.parts(),
            good_blocks: 0,
            findings: Vec::new(),
            unlisted: 0,
            good: false,
            seconds: 0.0,
        }
    }

    fn found(&mut self, finding: DeviceDiagnostic) {
        match self.findings.len() < MOST_FINDINGS {
            true => self.findings.push(finding),
            false => self.unlisted += 1,
        }
    }

    fn ended(mut self, status: Status, begun: Instant) -> Self {
        self.bytes = status.bytes;
        self.good = self.findings.is_empty();
        self.status = status;
        self.seconds = begun.elapsed().as_secs_f64();
        self
    }
}

/// Reads a scan, and compares every block with its record. `progress` gets the bytes read and the total.
pub fn verify_scan(
    volume: &mut Volume,
    name: &ScanName,
    control: &StopHandle,
    progress: &dyn Fn(u64, u64),
) -> Result<Verification, Error> {
    let begun = Instant::now();
    let contents = DeviceReader::of_scan(volume, name)?;
    let mut it = Verification::new(&contents);
    contents.findings().iter().for_each(|finding| it.found(finding.clone()));
    let status = contents.read::<Error>(control, progress, |part| {
        match part.finding {
            // A block with a damaged record cannot be judged.
            None => it.good_blocks += u64::from(part.checked),
            Some(finding) => it.found(finding),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(it.ended(status, begun))
}

/// Reads chunks, and compares them with a pattern that begins at the first of them.
pub fn verify_pattern(
    end: &DeviceEnd,
    pattern: Pattern,
    control: &StopHandle,
    progress: &dyn Fn(u64, u64),
) -> Result<Verification, Error> {
    let begun = Instant::now();
    let contents = DeviceReader::of_chunks(end)?;
    let span = contents.span();
    let checker = Checker::new(pattern).blocks(span.chunk_bytes().into());
    let (mut it, mut report) = (Verification::new(&contents), Report::default());
    let mut status = contents.read::<Error>(control, progress, |part| {
        let before = report.wrong_blocks;
        if let Some(bytes) = part.bytes {
            report.take(&checker, bytes, part.offset);
        }
        match part.finding {
            None => it.good_blocks += u64::from(report.wrong_blocks == before),
            Some(finding) => it.found(finding),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !report.good() && !status.has(Word::DataError) {
        status.words.push(Word::DataError);
    }
    report.findings.iter().for_each(|wrong| it.found(told(wrong, span)));
    it.unlisted += report.not_told;
    Ok(it.ended(status, begun))
}

/// Converts the pattern checker's result, with addresses.
fn told(wrong: &Wrong, span: Span) -> DeviceDiagnostic {
    let &Wrong { blocks, mismatch } = wrong;
    let Mismatch { first, wrong_bytes, wrong_bits, diagnosis, .. } = mismatch;
    let chunk = u64::from(span.chunk_bytes());
    DeviceDiagnostic::Pattern {
        address: span.first() + first,
        offset: first,
        chunk: span.first() + first / chunk * chunk,
        chunks: blocks,
        wrong_bytes,
        wrong_bits,
        diagnosis,
    }
}
