//! Events from the threads of a recording, and the supervisor's reactions.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Instant;

use fullbore_capture::{CaptureEvent, scan_in_store};
use fullbore_core::completeness::counted;
use fullbore_core::device::NO_CHUNK_LEFT;
use fullbore_core::manifest::Format;
use fullbore_linux::ring::{StreamRef, TapStream, WriterEvent};

use super::{BETWEEN_MANIFESTS, SHORT_TICK, Supervisor, TICK};
use crate::drop_counters;
use crate::event::{Event, EventHandler};
use crate::lifecycle::Event as Step;
use crate::recorder::scan::ActiveScan;
use crate::source::Ending;

impl Supervisor {
    /// Processes the events from the threads.
    pub(super) fn listen(&mut self, tell: &mut EventHandler<'_>) {
        let tick = if self.next.is_some() { SHORT_TICK } else { TICK };
        match self.running.notices.recv_timeout(tick) {
            Ok(notice) => self.notice(notice, tell),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.captures_gone();
                std::thread::sleep(TICK);
            }
        }
        loop {
            match self.running.notices.try_recv() {
                Ok(notice) => self.notice(notice, tell),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.captures_gone();
                    break;
                }
            }
        }
        self.take_reports(tell);
        self.begin_next(tell);
        self.seal_ready(tell);
        self.write_down(tell);
    }

    fn take_reports(&mut self, tell: &mut EventHandler<'_>) {
        (0..self.running.reports.len()).for_each(|sink| self.take_reports_of(sink, tell));
    }

    /// Processes the events of the writers of a sink.
    fn take_reports_of(&mut self, sink: usize, tell: &mut EventHandler<'_>) {
        loop {
            match self.running.reports[sink].try_recv() {
                Ok(report) => self.report(sink, report, tell),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.sinks.writers_of(sink).for_each(|member| self.writer_gone(member));
                    break;
                }
            }
        }
    }

    /// Writes new properties of the streams to the manifests: after a crash they would be lost.
    fn write_down(&mut self, tell: &mut EventHandler<'_>) {
        if self.written.elapsed() < BETWEEN_MANIFESTS
            || !self.scans.iter().any(|scan| scan.manifest_dirty)
        {
            return;
        }
        for scan in &mut self.scans {
            if let Err(error) = scan.update_sink() {
                tell(&Event::Warning { text: error.to_string() });
            }
        }
        self.written = Instant::now();
    }

    fn captures_gone(&mut self) {
        self.captures_left = 0;
        for scan in &mut self.scans {
            scan.lifecycle.step(Step::CaptureGone);
        }
    }

    /// A writer has ended: its member sends no more events.
    fn writer_gone(&mut self, member: usize) {
        for scan in &mut self.scans {
            scan.lifecycle.step(Step::MemberGone(member));
        }
    }

    fn scan_mut(&mut self, uuid: uuid::Uuid) -> Option<&mut ActiveScan> {
        self.scans.iter_mut().find(|scan| scan.context.uuid == uuid)
    }

    fn notice(&mut self, notice: CaptureEvent, tell: &mut EventHandler<'_>) {
        match notice {
            CaptureEvent::Opened { scan, shape, format, metrics } => {
                // A stream discovered in one scan continues in all scans begun since.
                let from = self.scans.iter().position(|s| s.context.uuid == scan).unwrap_or(0);
                for scan in self.scans.iter_mut().skip(from) {
                    scan.stream_opened(&shape, format.clone(), metrics.clone());
                    scan.lifecycle.step(Step::Opened(shape.number));
                }
                let Some(newest) = self.scans.back() else { return };
                let scan = newest.manifest.scan.clone();
                let stream = newest.manifest.streams.get(usize::from(shape.number));
                let tapped = TapStream {
                    scan: scan.clone(),
                    name: shape.name.clone(),
                    format: format.clone(),
                    samples: stream.and_then(|stream| stream.samples.clone()),
                };
                self.plan.taps.describe(shape.number, tapped);
                let frames_per_second = match format {
                    Format::Frames { frames_per_second, .. } => frames_per_second,
                    Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
                };
                tell(&Event::Opened {
                    scan,
                    stream: shape.name,
                    frame_bytes: shape.geometry.frame_bytes,
                    frames_per_second,
                });
            }
            CaptureEvent::Described { scan, number, format } => {
                let taps = self.plan.taps.clone();
                if let Some(scan) = self.scan_mut(scan) {
                    let described = &scan.manifest.streams[usize::from(number)];
                    let stream = TapStream {
                        scan: scan.manifest.scan.clone(),
                        name: described.name.clone(),
                        format: format.clone(),
                        samples: described.samples.clone(),
                    };
                    taps.describe(number, stream);
                    scan.stream_described(number, format);
                }
            }
            CaptureEvent::Context { scan, number, listing } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.manifest.streams[usize::from(number)].context = Some(listing);
                }
            }
            CaptureEvent::Ended { scan, number, format, blocks, bytes, account, shares } => {
                let Some(scan) = self.scan_mut(scan) else { return };
                let stream = &mut scan.manifest.streams[usize::from(number)];
                (stream.format, stream.blocks, stream.bytes) = (format, blocks, bytes);
                scan.shared_after = Some(drop_counters::CounterSnapshot::take(Path::new("/")));
                scan.accounts.insert(number, *account);
                scan.sinks.stream_ended(number, shares);
                scan.lifecycle.step(Step::Ended(number));
                self.end_with_the_acquisitions(tell);
            }
            CaptureEvent::Unrecognised { scan, source, metrics } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.unrecognised.insert(source, metrics);
                }
            }
            CaptureEvent::Silent { scan, number, source, account } => {
                let Some(scan) = self.scan_mut(scan) else { return };
                scan.shared_after = Some(drop_counters::CounterSnapshot::take(Path::new("/")));
                scan.port_silent(number, source, *account);
                if let Some(number) = number {
                    scan.lifecycle.step(Step::Silent(number));
                }
                self.end_with_the_acquisitions(tell);
            }
            CaptureEvent::Exhausted { number } => {
                self.sources_over += 1;
                if let Some(number) = number {
                    self.exhausted.insert(number);
                    self.scans.iter_mut().for_each(|scan| scan.sinks.exhausted(number));
                }
                self.end_with_the_streams();
            }
            CaptureEvent::Closed { scan } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.lifecycle.step(Step::Closed);
                }
            }
            CaptureEvent::Done => {
                // When a writer ends, the capture threads end too.
                self.take_reports(tell);
                self.captures_left = self.captures_left.saturating_sub(1);
                if self.stopping == 0 {
                    let text = "a capture thread failed, and the recording ends".to_owned();
                    self.broken.push(text.clone());
                    tell(&Event::Warning { text });
                    self.stop(1);
                }
                if self.captures_left == 0 {
                    self.captures_gone();
                }
            }
            CaptureEvent::Warning { text } => tell(&Event::Warning { text }),
            CaptureEvent::Source(report) => tell(&Event::Source(report)),
            CaptureEvent::Broken { why } => {
                self.source_broken = true;
                self.broken.push(why.clone());
                tell(&Event::Warning { text: why });
            }
        }
    }

    /// Ends the scan when the acquisition of each PandA in it has ended: an acquisition is a scan. If no PandA began
    /// one, the other streams continue.
    fn end_with_the_acquisitions(&mut self, tell: &mut EventHandler<'_>) {
        if self.stopping > 0 || !self.plan.has_acquisitions() {
            return;
        }
        let sources = self.plan.sources.iter().zip(self.plan.numbers());
        let acquired = sources.filter(|(source, _)| source.ending() == Ending::Acquisition);
        let numbers: Vec<u16> = acquired.filter_map(|(_, number)| number).collect();
        let alone = numbers.len() == self.plan.sources.len();
        // A file gets its last rows before another acquisition is armed, which would be lost if they cannot be written.
        let waits = self.sinks.waits_for_last_rows();
        let scan = self.newest();
        let over = numbers.iter().all(|number| {
            let ended = scan.accounts.contains_key(number);
            ended && !(waits && scan.lifecycle.is_awaited(*number))
        });
        let began = |number: &u16| {
            let format = &scan.manifest.streams[usize::from(*number)].format;
            matches!(format, Format::Panda { ending: Some(_), .. })
        };
        if !over || !(alone || numbers.iter().any(began)) {
            return;
        }
        match self.source_broken {
            true => self.stop(1),
            false => self.end_scan(tell),
        }
    }

    /// Ends the recording when no source has more bytes for a target that takes them.
    fn end_with_the_streams(&mut self) {
        let streams = self.plan.sources.len();
        let over = |number: u16| self.exhausted.contains(&number);
        // Each source tells once that it is over.
        let no_more = self.sources_over == streams;
        let own = self.sinks.give_each_stream_a_target();
        let refused = |number: usize| self.sinks.refuse_stream(number, &self.failures);
        let each = own && (0..streams).all(|number| over(number as u16) || refused(number));
        if no_more || each || self.failures.iter().all(Option::is_some) {
            self.stop(1);
        }
    }

    /// Processes an event of a writer of a sink, which numbers its writers from 0.
    fn report(&mut self, sink: usize, report: WriterEvent, tell: &mut EventHandler<'_>) {
        let (first, store) = (self.sinks.writers_of(sink).start, self.sinks.store_number(sink));
        let scan_of = |stream_ref: &StreamRef| scan_in_store(stream_ref.scan, store);
        match report {
            WriterEvent::Durable { stream_ref, sequences, bytes } => {
                let metrics = self.running.metrics.clone();
                if let Some(scan) = self.scan_mut(scan_of(&stream_ref)) {
                    scan.blocks_durable(sink, stream_ref.number, &sequences, bytes);
                    let stream = &scan.manifest.streams[usize::from(stream_ref.number)];
                    scan.sinks.durable(sink, stream_ref.number, stream, &metrics);
                }
            }
            WriterEvent::Failed { member, why, suspect } => {
                let member = first + member;
                let blocks: usize = suspect.iter().map(|(_, blocks)| blocks.len()).sum();
                let mut others = self.failures.iter().enumerate().filter(|it| it.0 != member);
                let goes_on = self.sinks.outlives_its_writers() || others.any(|it| it.1.is_none());
                let end = if goes_on { "" } else { "; the recording ends" };
                let text = format!(
                    "{} takes no more data{end}: {why}{}",
                    self.path_of(member).display(),
                    if blocks > 0 {
                        let blocks = counted(blocks as u64, "block");
                        format!("; {blocks} written there may not be durable: read back at the end")
                    } else {
                        String::new()
                    }
                );
                for (stream_ref, blocks) in suspect {
                    if let Some(scan) = self.scan_mut(scan_of(&stream_ref)) {
                        scan.sinks.unsynced(member, stream_ref.number, blocks);
                    }
                }
                self.member_failed(member, why);
                tell(&Event::Warning { text });
                if !self.sinks.outlives_its_writers() {
                    self.end_with_the_streams();
                }
            }
            WriterEvent::Full { member } => {
                let member = first + member;
                let text = format!("{} is full", self.path_of(member).display());
                self.member_failed(member, NO_CHUNK_LEFT.to_owned());
                tell(&Event::Note { text });
                self.end_with_the_streams();
            }
            WriterEvent::Alternate { scan, number, meant, file, why } => {
                let Some(scan) = self.scan_mut(scan) else { return };
                let stream = scan.manifest.streams[usize::from(number)].name.clone();
                let scan = scan.manifest.scan.clone();
                tell(&Event::Alternate { scan, stream, meant, file, why });
            }
            WriterEvent::Back { member } => self.returning[first + member] = false,
            WriterEvent::Finished { member, stream_ref } => {
                let member = first + member;
                if let Some(scan) = self.scan_mut(scan_of(&stream_ref)) {
                    scan.lifecycle.step(Step::Finished { member, stream: stream_ref.number });
                    self.end_with_the_acquisitions(tell);
                }
            }
            WriterEvent::Gone { member } => {
                let member = first + member;
                let root = self.path_of(member).display();
                let why = format!("the writer of {root} failed, and the recording ends");
                self.writer_gone(member);
                self.broken.push(why.clone());
                tell(&Event::Warning { text: why });
                self.stop(1);
            }
        }
    }
}
