//! What the threads of a recording have to say, and what follows from it.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Instant;

use fullbore_core::completeness::counted;
use fullbore_core::manifest::Format;

use super::{BETWEEN_MANIFESTS, SHORT_TICK, Supervisor, TICK};
use crate::lifecycle::Event as Step;
use crate::recorder::event::{Event, Tell};
use crate::recorder::read_back::Unsure;
use crate::recorder::scan::Scan;
use crate::ring::Report;
use crate::source::Notice;
use crate::witness;

impl Supervisor {
    /// Takes what the threads have to say.
    pub(super) fn listen(&mut self, tell: &mut Tell<'_>) {
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

    fn take_reports(&mut self, tell: &mut Tell<'_>) {
        loop {
            match self.running.reports.try_recv() {
                Ok(report) => self.report(report, tell),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    (0..self.members.len()).for_each(|member| self.writer_gone(member));
                    break;
                }
            }
        }
    }

    /// Writes down what has become known of the streams: after a crash it cannot be asked for.
    fn write_down(&mut self, tell: &mut Tell<'_>) {
        if self.written.elapsed() < BETWEEN_MANIFESTS || !self.scans.iter().any(|scan| scan.untold)
        {
            return;
        }
        for scan in &mut self.scans {
            if let Err(error) = scan.tell_manifests() {
                tell(&Event::Warning { text: error.to_string() });
            }
        }
        self.written = Instant::now();
    }

    fn captures_gone(&mut self) {
        self.captures_left = 0;
        for scan in &mut self.scans {
            scan.life.step(Step::CaptureGone);
        }
    }

    /// A writer has ended: nothing more will be heard of its member.
    fn writer_gone(&mut self, member: usize) {
        for scan in &mut self.scans {
            scan.life.step(Step::MemberGone(member));
        }
    }

    fn scan_mut(&mut self, uuid: uuid::Uuid) -> Option<&mut Scan> {
        self.scans.iter_mut().find(|scan| scan.opening.uuid == uuid)
    }

    fn notice(&mut self, notice: Notice, tell: &mut Tell<'_>) {
        match notice {
            Notice::Opened { scan, shape, format, gauge } => {
                // A stream discovered in one scan goes on in all that were begun since.
                let from = self.scans.iter().position(|s| s.opening.uuid == scan).unwrap_or(0);
                for scan in self.scans.iter_mut().skip(from) {
                    scan.stream_opened(&shape, format.clone(), gauge.clone());
                    scan.life.step(Step::Opened(shape.number));
                }
                let Some(newest) = self.scans.back() else { return };
                let scan = newest.manifest.scan.clone();
                let frames_per_second = match format {
                    Format::Vdif { frames_per_second, .. } => frames_per_second,
                    Format::Panda { .. } | Format::Raw => None,
                };
                tell(&Event::Opened {
                    scan,
                    stream: shape.name,
                    frame_bytes: shape.geometry.frame_bytes,
                    frames_per_second,
                });
            }
            Notice::Described { scan, number, format } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.manifest.streams[usize::from(number)].format = format;
                    scan.untold = true;
                }
            }
            Notice::Ended { scan, number, format, blocks, bytes, account } => {
                let Some(scan) = self.scan_mut(scan) else { return };
                let stream = &mut scan.manifest.streams[usize::from(number)];
                (stream.format, stream.blocks, stream.bytes) = (format, blocks, bytes);
                scan.shared_after = Some(witness::Reading::take(Path::new("/")));
                scan.accounts.insert(number, *account);
                scan.life.step(Step::Ended(number));
                self.end_with_the_pandas(tell);
            }
            Notice::Unrecognised { scan, source, gauge } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.unrecognised.insert(source, gauge);
                }
            }
            Notice::Silent { scan, number, source, account } => {
                let Some(scan) = self.scan_mut(scan) else { return };
                scan.shared_after = Some(witness::Reading::take(Path::new("/")));
                scan.port_silent(number, source, *account);
                if let Some(number) = number {
                    scan.life.step(Step::Silent(number));
                }
                self.end_with_the_pandas(tell);
            }
            Notice::Closed { scan } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.life.step(Step::Closed);
                }
            }
            Notice::Done => {
                // A writer that has gone takes the capture threads with it.
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
            Notice::Warning { text } => tell(&Event::Warning { text }),
            Notice::Broken { why } => {
                self.source_broken = true;
                self.broken.push(why.clone());
                tell(&Event::Warning { text: why });
            }
        }
    }

    /// An acquisition is a scan: with PandAs among the sources it is over when each of them has ended its own.
    /// Where none of them began one, streams beside them go on.
    fn end_with_the_pandas(&mut self, tell: &mut Tell<'_>) {
        let (numbers, alone) = (self.plan.panda_numbers(), self.plan.sources.is_empty());
        if self.stopping > 0 || numbers.is_empty() {
            return;
        }
        let scan = self.newest();
        let over = numbers.clone().all(|number| scan.accounts.contains_key(&number));
        let began = |number: u16| {
            let format = &scan.manifest.streams[usize::from(number)].format;
            matches!(format, Format::Panda { ending: Some(_), .. })
        };
        if !over || !(alone || numbers.clone().any(began)) {
            return;
        }
        match self.source_broken {
            true => self.stop(1),
            false => self.end_scan(tell),
        }
    }

    fn report(&mut self, report: Report, tell: &mut Tell<'_>) {
        match report {
            Report::Durable { track, sequences, bytes } => {
                let gauges = self.running.gauges.clone();
                if let Some(scan) = self.scan_mut(track.scan) {
                    scan.blocks_durable(track.number, &sequences, bytes);
                    scan.follow(track.number, &gauges);
                }
            }
            Report::Failed { member, why, suspect } => {
                let blocks: usize = suspect.iter().map(|(_, blocks)| blocks.len()).sum();
                let text = format!(
                    "{} takes no more data: {why}{}",
                    self.members[member].root().display(),
                    if blocks > 0 {
                        let blocks = counted(blocks as u64, "block");
                        format!("; {blocks} written there may not be durable: read back at the end")
                    } else {
                        String::new()
                    }
                );
                for (track, blocks) in suspect {
                    let root = self.members[member].root().to_owned();
                    if let Some(scan) = self.scan_mut(track.scan) {
                        let unsure = Unsure { root, stream: track.number, blocks };
                        scan.unsure.push(unsure);
                    }
                }
                self.member_failed(member, why);
                tell(&Event::Warning { text });
            }
            Report::Back { member } => self.returning[member] = false,
            Report::Finished { member, track } => {
                if let Some(scan) = self.scan_mut(track.scan) {
                    scan.life.step(Step::Finished { member, stream: track.number });
                }
            }
            Report::Gone { member } => {
                let root = self.members[member].root().display();
                let why = format!("the writer of {root} failed, and the recording ends");
                self.writer_gone(member);
                self.broken.push(why.clone());
                tell(&Event::Warning { text: why });
                self.stop(1);
            }
        }
    }
}
