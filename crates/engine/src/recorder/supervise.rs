//! The thread that decides: when scans end, when they are sealed, what is told.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;

use super::arm::{
    Plan, RecordError, Recorder, Running, device, in_all, in_words, known_rate, member_state,
    undone,
};
use super::event::{Event, MemberState, Progress, StreamState, Tell};
use super::read_back::Unsure;
use super::scan::Scan;
use super::scribe::{Answers, Scribes};
use super::sealing::{Basis, Done, Sealing};
use crate::clock::Clock;
use crate::lifecycle::Event as Step;
use crate::ring::Report;
use crate::source::{Notice, Order};
use crate::store::Member;
use crate::witness;

/// Time between two looks at everything.
const TICK: Duration = Duration::from_millis(20);

/// The same while the next scan is about to begin.
const SHORT_TICK: Duration = Duration::from_millis(2);

/// By then the next scan begins without members that have not made its directories.
const CLAIMED_BY: Duration = Duration::from_millis(250);

/// The most scans that are being sealed at once.
const MOST_SEALINGS: usize = 64;

/// By then every stream has gone on to the next scan, even one that is silent.
const CUT: Duration = Duration::from_millis(400);

/// Time between two progress events.
const PROGRESS: Duration = Duration::from_millis(250);

/// So often in a row has room to be too small before it is said: streams begin in bursts.
const SURE: u32 = 4;

/// Time between two writes of manifests while streams are still being discovered: each is synced.
const BETWEEN_MANIFESTS: Duration = Duration::from_millis(500);

/// So much before its time a scan begins: its first frame comes to a socket that is listened to, even if
/// this host's clock is a little late.
const EARLY_NS: i64 = 50_000_000;

/// How a recording is ended from outside: by a signal, say.
#[derive(Debug, Default)]
pub struct Control {
    asked: AtomicU8,
}

impl Control {
    /// Finish what is held, then end. Asked a second time: abort.
    pub fn stop(&self) {
        let _ =
            self.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some((n + 1).min(2)));
    }

    /// End now; what is held is counted and dropped.
    pub fn abort(&self) {
        self.asked.store(2, Ordering::SeqCst);
    }

    /// How often an end was asked for: 0, 1 (stop) or 2 (abort).
    pub fn asked(&self) -> u8 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Everything the supervisor knows.
pub struct Supervisor {
    plan: Plan,
    members: Vec<Member>,
    /// The file system of each.
    devices: Vec<Option<u64>>,
    failures: Vec<Option<String>>,
    running: Running,
    scribes: Scribes,
    /// Scans that are not sealed; the newest is being recorded.
    scans: VecDeque<Scan>,
    /// The next one, while its directories are being made.
    next: Option<Next>,
    /// Scans that are being sealed.
    sealings: Vec<Sealing>,
    /// What was made of a scan that did not begin, while it is taken away.
    discarded: Option<Answers>,
    /// Scans begun so far.
    begun: usize,
    clock: Clock,
    since: Instant,
    /// When the first scan is to begin, until it has.
    start: Option<Tai>,
    /// When manifests were last written.
    written: Instant,
    stopping: u8,
    captures_left: usize,
    broken: Vec<String>,
    /// Whether a source can give nothing more, so that no further scan begins with it.
    source_broken: bool,
    told: Told,
    /// How often in a row there was too little room for what is left; `None` once that is said, or was before.
    short_of_room: Option<u32>,
}

/// A scan that is about to begin.
struct Next {
    scan: Scan,
    claimed: Answers,
    since: Instant,
}

/// What the last progress said, for rates.
struct Told {
    at: Instant,
    progress: Option<Progress>,
    streams: Vec<u64>,
    members: Vec<u64>,
}

impl Supervisor {
    pub(super) fn new(
        plan: Plan,
        members: Vec<Member>,
        running: Running,
        scribes: Scribes,
        first: Scan,
        clock: Clock,
    ) -> Self {
        let now = Instant::now();
        Self {
            failures: vec![None; members.len()],
            devices: members.iter().map(device).collect(),
            short_of_room: plan.sources.iter().any(|it| known_rate(it).is_none()).then_some(0),
            captures_left: running.captures.len(),
            told: Told {
                at: now,
                progress: None,
                streams: Vec::new(),
                members: vec![0; members.len()],
            },
            start: plan.start,
            plan,
            members,
            running,
            scribes,
            scans: VecDeque::from([first]),
            next: None,
            sealings: Vec::new(),
            discarded: None,
            begun: 1,
            clock,
            since: now,
            written: now,
            stopping: 0,
            broken: Vec::new(),
            source_broken: false,
        }
    }

    /// Begins the first scan, unless that is to wait for its time.
    pub(super) fn begin_unless_it_waits(&self) {
        if self.start.is_none() {
            self.begin_first();
        }
    }

    fn begin_first(&self) {
        let opening = self.scans[0].opening.clone();
        self.order(|| Order::Begin(opening.clone()));
    }

    /// Begins the first scan if its time has come.
    fn begin_when_due(&mut self) {
        let now = self.clock.now();
        if self.start.is_some_and(|start| now >= start.plus_ns(-EARLY_NS)) {
            self.start = None;
            self.since = Instant::now();
            let scan = self.newest();
            scan.manifest.armed = now;
            scan.untold = true;
            scan.shared = witness::Reading::take(Path::new("/"));
            self.begin_first();
        }
    }

    /// Nothing was recorded, and nothing is left of the scan that did not begin.
    fn give_up_waiting(&mut self) {
        self.order(|| Order::Abort);
        self.scans.drain(..).for_each(|scan| undone(scan.discard()));
    }

    fn order(&self, order: impl Fn() -> Order) {
        self.running.captures.iter().for_each(|capture| capture.order(order()));
    }

    fn newest(&mut self) -> &mut Scan {
        self.scans.back_mut().expect("a scan is being recorded")
    }

    /// Whether the scan being recorded has reached its limit.
    fn limit_reached(&mut self) -> bool {
        let limit = self.plan.limit;
        let now = self.clock.now();
        limit.duration.is_some_and(|duration| self.since.elapsed() >= duration)
            || limit.until.is_some_and(|until| now >= until)
            || limit.bytes.is_some_and(|bytes| self.counts_anew() && self.received_bytes() >= bytes)
    }

    /// Whether the streams' counters speak of the scan being recorded, and no longer of the one before.
    fn counts_anew(&self) -> bool {
        self.begun == 1 || self.since.elapsed() > CUT
    }

    /// Bytes received in the scan being recorded.
    fn received_bytes(&self) -> u64 {
        let scan = self.scans.back().expect("a scan is being recorded");
        scan.gauges.values().map(|gauge| gauge.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Ends the scan being recorded: with the next one, once its directories are made, or for good.
    fn end_scan(&mut self, tell: &mut Tell<'_>) {
        if self.next.is_some() {
            return;
        }
        if self.begun >= self.plan.scans.len() {
            self.stop(1);
            return;
        }
        let (name, now) = (self.plan.scans[self.begun].clone(), self.clock.now());
        let (plan, members, failures) = (&self.plan, &self.members, &self.failures);
        match Scan::plan(name, plan, members, failures, &self.scribes, now) {
            Ok(scan) => {
                let claimed = scan.claim();
                self.next = Some(Next { scan, claimed, since: Instant::now() });
            }
            Err(error) => self.cannot_begin(&error, tell),
        }
    }

    fn cannot_begin(&mut self, error: &RecordError, tell: &mut Tell<'_>) {
        let text = format!("the next scan cannot begin: {error}");
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
        self.stop(1);
    }

    /// Begins the next scan when every member has made its directories. One that stands still is not waited for
    /// longer than [`CLAIMED_BY`].
    fn begin_next(&mut self, tell: &mut Tell<'_>) {
        let Some(mut next) = self.next.take() else { return };
        next.claimed.poll();
        let late = next.since.elapsed() >= CLAIMED_BY;
        let enough = next.claimed.any_taken() || (late && next.claimed.any_good());
        if !next.claimed.are_complete() && !enough {
            self.next = Some(next);
            return;
        }
        let Next { mut scan, claimed, .. } = next;
        match scan.begin(claimed) {
            Ok(warnings) => {
                warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
                self.cut(scan);
            }
            Err(error) => {
                self.discarded = Some(scan.discard());
                self.cannot_begin(&error, tell);
            }
        }
    }

    /// Cuts the next scan from the one being recorded.
    fn cut(&mut self, mut next: Scan) {
        next.manifest.armed = self.clock.now();
        next.shared = witness::Reading::take(Path::new("/"));
        // Of members that failed while its directories were made.
        for (member, failure) in next.manifest.members.iter_mut().zip(&self.failures) {
            member.failure = member.failure.take().or_else(|| failure.clone());
        }
        let before = self.newest();
        next.go_on_from(before);
        (0..next.manifest.streams.len() as u16).for_each(|number| {
            next.life.step(Step::Opened(number));
        });
        before.manifest.stopped = Some(next.manifest.armed);
        let opening = next.opening.clone();
        self.close_newest();
        self.scans.push_back(next);
        self.begun += 1;
        self.since = Instant::now();
        self.order(|| Order::Begin(opening.clone()));
    }

    fn close_newest(&mut self) {
        self.newest().life.step(Step::Close);
    }

    fn stop(&mut self, urgency: u8) {
        if self.stopping >= urgency {
            return;
        }
        if self.stopping == 0 && !self.scans.is_empty() {
            let now = self.clock.now();
            self.newest().manifest.stopped = Some(now);
            self.close_newest();
        }
        if let Some(next) = self.next.take() {
            self.discarded = Some(next.scan.discard());
        }
        self.stopping = urgency;
        self.order(|| if urgency > 1 { Order::Abort } else { Order::Stop });
    }

    /// Takes what the threads have to say.
    fn listen(&mut self, tell: &mut Tell<'_>) {
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
        loop {
            match self.running.reports.try_recv() {
                Ok(report) => self.report(report, tell),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.writers_gone();
                    break;
                }
            }
        }
        self.begin_next(tell);
        self.seal_ready(tell);
        self.write_down(tell);
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

    /// Every writer has ended: nothing more will be heard of any member.
    fn writers_gone(&mut self) {
        for scan in &mut self.scans {
            (0..self.members.len()).for_each(|member| {
                scan.life.step(Step::MemberGone(member));
            });
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
                    fullbore_core::manifest::Format::Vdif { frames_per_second, .. } => {
                        frames_per_second
                    }
                    fullbore_core::manifest::Format::Panda { .. }
                    | fullbore_core::manifest::Format::Raw => None,
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
            Notice::Silent { scan, number, foreign, witnesses } => {
                let sources = self.plan.sources.clone();
                let Some(scan) = self.scan_mut(scan) else { return };
                let source = &scan.manifest.streams[usize::from(number)].source;
                let found = sources.iter().find(|s| s.endpoint.to_string() == *source);
                let mut account = Account::new(found.map_or(
                    fullbore_core::account::CountedBy::Nothing,
                    fullbore_core::endpoint::UdpSource::counted_by,
                ));
                account.foreign = foreign;
                account.witnesses = witnesses;
                scan.shared_after = Some(witness::Reading::take(Path::new("/")));
                scan.accounts.insert(number, account);
                scan.life.step(Step::Silent(number));
                self.end_with_the_pandas(tell);
            }
            Notice::Closed { scan } => {
                if let Some(scan) = self.scan_mut(scan) {
                    scan.life.step(Step::Closed);
                }
            }
            Notice::Done => {
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
            matches!(format, fullbore_core::manifest::Format::Panda { ending: Some(_), .. })
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
                if let Some(scan) = self.scan_mut(track.scan) {
                    scan.blocks_durable(track.number, &sequences, bytes);
                }
            }
            Report::Failed { member, why, suspect } => {
                let blocks: usize = suspect.iter().map(|(_, blocks)| blocks.len()).sum();
                let text = format!(
                    "{} takes no more data: {why}{}",
                    self.members[member].root().display(),
                    if blocks > 0 {
                        format!(
                            "; {blocks} blocks written there may not be durable, and are read back at the end"
                        )
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
                for scan in &mut self.scans {
                    scan.manifest.members[member].failure.get_or_insert_with(|| why.clone());
                }
                self.failures[member].get_or_insert(why);
                tell(&Event::Warning { text });
            }
            Report::Finished { member, track } => {
                if let Some(scan) = self.scan_mut(track.scan) {
                    scan.life.step(Step::Finished { member, stream: track.number });
                }
            }
        }
    }

    /// Begins to seal every scan that is ready, and tells of those that are sealed. One that cannot be is left for
    /// `recover`.
    fn seal_ready(&mut self, tell: &mut Tell<'_>) {
        while self.sealings.len() < MOST_SEALINGS
            && let Some(at) = self.scans.iter().position(|scan| scan.life.is_sealed())
        {
            let scan = self.scans.remove(at).expect("just seen");
            if self.source_broken && scan.came_to_nothing() {
                self.discarded = Some(scan.discard());
            } else if scan.life.is_whole() {
                let basis = Basis {
                    sources: self.plan.sources.clone(),
                    writers: self.running.gauges.clone(),
                    aborted: self.stopping > 1,
                };
                self.sealings.push(Sealing::begin(scan, basis));
            } else {
                scan.leave();
                self.not_sealed(&scan.manifest.scan, "a thread that recorded it failed", tell);
            }
        }
        let all = std::mem::take(&mut self.sealings);
        let (over, under_way): (Vec<_>, Vec<_>) = all.into_iter().partition(Sealing::is_over);
        self.sealings = under_way;
        for sealing in over {
            let Done { name, warnings, sealed } = sealing.end();
            warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
            match sealed {
                Ok(sealed) => tell(&Event::Sealed(Box::new(sealed))),
                Err(why) => self.not_sealed(&name, &why, tell),
            }
        }
    }

    fn not_sealed(&mut self, name: &ScanName, why: &str, tell: &mut Tell<'_>) {
        let text = format!("{name} is not sealed: {why}; `fullbore recover {name}` seals it");
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
    }

    /// Whether every scan is sealed, or left.
    fn is_over(&self) -> bool {
        self.scans.is_empty() && self.sealings.is_empty()
    }

    /// How all stands; while the last scan is being sealed, its streams stand as they did.
    fn progress(&mut self) -> Option<Progress> {
        if self.scans.is_empty() {
            let last = self.told.progress.take();
            let members = self.member_states(|_, _| 0);
            let still = |stream: StreamState| StreamState { rate: 0, ..stream };
            self.told.progress = last.map(|last| Progress {
                streams: last.streams.into_iter().map(still).collect(),
                members,
                ..last
            });
        } else {
            self.told.progress = Some(self.progress_of_newest());
        }
        self.told.progress.clone()
    }

    fn progress_of_newest(&mut self) -> Progress {
        let seconds = self.told.at.elapsed().as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        let members = self.member_states(rate);
        let scan = self.scans.back().expect("a scan is being recorded");
        let mut streams = Vec::with_capacity(scan.manifest.streams.len());
        self.told.streams.resize(scan.manifest.streams.len(), 0);
        let nothing = Arc::default();
        for (place, stream) in scan.manifest.streams.iter().enumerate() {
            let number = place as u16;
            // A stream of which nothing has come has no counters.
            let gauge = scan.gauges.get(&number);
            let (silent, gauge) = (gauge.is_none(), gauge.unwrap_or(&nothing));
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let bytes = read(&gauge.bytes);
            let before = std::mem::replace(&mut self.told.streams[place], bytes);
            streams.push(StreamState {
                name: stream.name.clone(),
                silent,
                frames: read(&gauge.frames),
                bytes,
                rate: rate(bytes, before),
                missing: read(&gauge.missing),
                overrun: read(&gauge.overrun),
                damaged: read(&gauge.damaged),
                late: read(&gauge.late),
                foreign: read(&gauge.foreign),
                high_water: (read(&gauge.high_water), read(&gauge.pool_blocks)),
                used_blocks: read(&gauge.used_blocks),
                durable_bytes: scan.durable_bytes(number),
            });
        }
        self.told.at = Instant::now();
        let total: u64 = streams.iter().map(|stream| stream.rate).sum();
        let healthy = self.devices.iter().zip(&members).filter(|(_, it)| it.failure.is_none());
        let free = in_all(healthy.map(|(device, member)| (*device, member.free_bytes)));
        Progress {
            scan: scan.manifest.scan.clone(),
            seconds: self.since.elapsed().as_secs_f64(),
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            durable_bytes: streams.iter().map(|stream| stream.durable_bytes).sum(),
            seconds_left: self.seconds_left(),
            seconds_until_full: (total > 0).then(|| free as f64 / total as f64),
            streams,
            members,
        }
    }

    /// Says once that the disk set will be full before the recording ends, at a rate that nobody told beforehand.
    fn judge_room(&mut self, progress: &Progress, tell: &mut Tell<'_>) {
        let Some(times) = self.short_of_room else { return };
        let scans_left = self.plan.scans.len().saturating_sub(self.begun) as f64;
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
        let mut states = Vec::with_capacity(self.members.len());
        for (number, member) in self.members.iter().enumerate() {
            let gauge = &self.running.gauges[number];
            let written = gauge.written_bytes.load(Ordering::Relaxed);
            let before = std::mem::replace(&mut self.told.members[number], written);
            states.push(MemberState {
                written_bytes: written,
                rate: rate(written, before),
                backlog_bytes: gauge.backlog_bytes.load(Ordering::Relaxed),
                longest_write_ns: gauge.longest_write_ns.load(Ordering::Relaxed),
                ..member_state(
                    member,
                    self.failures[number].as_deref(),
                    self.scribes.free_bytes(number),
                )
            });
        }
        states
    }
}

impl Recorder {
    /// Records until a limit is reached or an end is asked for. Every scan is told of when it is sealed.
    pub fn run(self, control: &Arc<Control>, tell: &mut Tell<'_>) -> Result<(), RecordError> {
        let mut supervisor = self.supervisor;
        let mut told = Instant::now();
        while !supervisor.is_over() {
            supervisor.listen(tell);
            if supervisor.is_over() {
                break;
            }
            if supervisor.start.is_some() {
                match control.asked() > 0 || supervisor.captures_left == 0 {
                    true => supervisor.give_up_waiting(),
                    false => supervisor.begin_when_due(),
                }
                continue;
            }
            match control.asked() {
                0 => {}
                urgency => supervisor.stop(urgency),
            }
            let limited = supervisor.stopping == 0 && supervisor.next.is_none();
            if limited && supervisor.limit_reached() {
                // A PandA's scan is an acquisition, which a limit cannot cut in two.
                match supervisor.plan.pandas.is_empty() {
                    false => supervisor.stop(1),
                    true => {
                        supervisor.newest().limited = true;
                        supervisor.end_scan(tell);
                    }
                }
            }
            if supervisor.captures_left == 0 && supervisor.stopping == 0 {
                supervisor.stop(1);
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                if let Some(progress) = supervisor.progress() {
                    supervisor.judge_room(&progress, tell);
                    tell(&Event::Progress(progress));
                }
            }
        }
        let Supervisor { running, broken, discarded, .. } = supervisor;
        if let Some(mut discarded) = discarded {
            discarded.wait_for_enough(&mut BTreeSet::new());
        }
        running.captures.into_iter().for_each(|capture| capture.join());
        for writer in running.writers {
            if writer.join().is_err() {
                let text = "a writer failed; what was written can be recovered".to_owned();
                tell(&Event::Warning { text });
            }
        }
        match broken.into_iter().next() {
            Some(why) => Err(RecordError::Broken { why }),
            None => Ok(()),
        }
    }
}
