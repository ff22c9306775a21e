//! Progress of a recording, and warnings while it runs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{SURE, Supervisor};
use crate::event::{Event, EventHandler, MemberState, Phase, Progress, StreamState};
use crate::recorder::arm::target_state;
use crate::sink::store::room::{in_words, until_full};
use crate::sink::{Target, free_in_all};

impl Supervisor {
    /// Returns the state of the recording. While the last scan is being sealed, its streams keep their last state.
    pub(super) fn progress(&mut self) -> Option<Progress> {
        if self.scans.is_empty() {
            let last = self.told.progress.take();
            let members = self.member_states(|_, _| 0);
            let free_bytes = self.free_of_all(&members);
            let still = |stream: StreamState| StreamState { rate: 0, ..stream };
            let phase = self.phase();
            self.told.progress = last.map(|last| Progress {
                phase,
                streams: last.streams.into_iter().map(still).collect(),
                members,
                free_bytes,
                ..last
            });
        } else {
            self.told.progress = Some(self.progress_of_newest());
        }
        self.told.progress.clone()
    }

    fn phase(&self) -> Phase {
        match self.stopping {
            0 => Phase::Recording,
            1 => Phase::Stopping,
            _ => Phase::Aborting,
        }
    }

    fn progress_of_newest(&mut self) -> Progress {
        let seconds = self.told.at.elapsed().as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        let members = self.member_states(rate);
        let scan = self.scans.back().expect("a scan is being recorded");
        let streams = scan.stream_states(&mut self.told.streams, seconds);
        self.told.at = Instant::now();
        let total: u64 = streams.iter().map(|stream| stream.rate).sum();
        let free = self.free_of_all(&members);
        Progress {
            phase: self.phase(),
            scan: scan.manifest.scan.clone(),
            seconds: self.since.elapsed().as_secs_f64(),
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            durable_bytes: streams.iter().map(|stream| stream.durable_bytes).sum(),
            seconds_left: self.seconds_left(),
            free_bytes: free,
            seconds_until_full: self.seconds_until_full(&members, total),
            streams,
            members,
        }
    }

    /// Returns the least bytes free of any sink that takes data.
    fn free_of_all(&self, members: &[MemberState]) -> u64 {
        let free = self.taking(members).map(|sink| self.free_of(sink, members)).min();
        free.unwrap_or(0)
    }

    /// Returns the sinks that take data.
    fn taking(&self, members: &[MemberState]) -> impl Iterator<Item = usize> {
        let takes = |sink: &usize| {
            members[self.sinks.writers_of(*sink)].iter().any(|it| it.failure.is_none())
        };
        (0..self.sinks.count()).filter(takes)
    }

    /// Returns the seconds until the first of the sinks is full at this rate of data. Sinks on one file system share its
    /// space.
    fn seconds_until_full(&self, members: &[MemberState], rate: u64) -> Option<f64> {
        let taking: Vec<usize> = self.taking(members).collect();
        let of_sink = |sink: usize| {
            let together = self.sinks.sharing_space(sink);
            let copies = together.iter().filter(|it| taking.contains(it)).count().max(1) as f64;
            let redundancy = self.sinks.iter().nth(sink)?.redundancy();
            let writers = self.sinks.writers_of(sink).len();
            let seconds = until_full(self.free_of(sink, members), rate, redundancy, writers)?;
            Some(seconds / copies)
        };
        taking.iter().filter_map(|&sink| of_sink(sink)).reduce(f64::min)
    }

    /// Returns the bytes free on all members of a sink that take data.
    fn free_of(&self, sink: usize, members: &[MemberState]) -> u64 {
        let own = self.sinks.writers_of(sink);
        let targets = self.sinks.targets().zip(members).skip(own.start).take(own.len());
        let healthy = targets.filter(|(_, it)| it.failure.is_none());
        // Devices share no space, even files on one file system.
        let shared = |target: &Target| target.device.filter(|_| target.span.is_none());
        free_in_all(healthy.map(|(target, member)| (shared(target), member.free_bytes)))
    }

    /// Warns once, from the measured rate, that the disk set will be full before the recording ends.
    pub(super) fn judge_room(&mut self, progress: &Progress, tell: &mut EventHandler<'_>) {
        let Some(times) = self.short_of_room else { return };
        // A series without an end removes its oldest scans.
        let scans = self.plan.scan_count().unwrap_or(self.begun as u64);
        let scans_left = scans.saturating_sub(self.begun as u64) as f64;
        let later = self.plan.limit.duration.map_or(0.0, |it| it.as_secs_f64() * scans_left);
        let left = progress.seconds_left.map(|left| left + later);
        let Some((full, left)) =
            progress.seconds_until_full.zip(left).filter(|(full, left)| full < left)
        else {
            self.short_of_room = Some(0);
            return;
        };
        self.short_of_room = Some(times + 1).filter(|&times| times < SURE);
        if self.short_of_room.is_none() {
            let spoken = |seconds: f64| {
                in_words(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
            };
            let text = format!(
                "at this rate the disk set is full in {}, and the recording goes on for {}",
                spoken(full),
                spoken(left)
            );
            tell(&Event::Warning { text });
        }
    }

    fn seconds_left(&self) -> Option<f64> {
        let limit = self.plan.limit;
        let by_duration = limit
            .duration
            .map(|duration| duration.saturating_sub(self.since.elapsed()).as_secs_f64());
        let by_clock = limit.until.map(|until| until.since(self.clock.now()) as f64 / 1e9);
        [by_duration, by_clock].into_iter().flatten().reduce(f64::min)
    }

    fn member_states(&mut self, rate: impl Fn(u64, u64) -> u64) -> Vec<MemberState> {
        let mut states = Vec::with_capacity(self.failures.len());
        for (number, target) in self.sinks.targets().enumerate() {
            let metrics = &self.running.metrics[number];
            let written = metrics.written_bytes.load(Ordering::Relaxed);
            let before = std::mem::replace(&mut self.told.members[number], written);
            states.push(MemberState {
                written_bytes: written,
                rate: rate(written, before),
                backlog_bytes: metrics.backlog_bytes.load(Ordering::Relaxed),
                longest_write_ns: metrics.longest_write_ns.load(Ordering::Relaxed),
                ..target_state(
                    target,
                    self.failures[number].as_deref(),
                    self.sinks.free_bytes(number),
                )
            });
        }
        states
    }
}
