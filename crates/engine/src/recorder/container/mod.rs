//! Datagrams into a container: the capture threads of any recording, and one thread that owns the files.
//!
//! ```text
//! capture threads ──Command──► writer ──► out.h5, or a file for each stream and one that shows all of them
//!    ▲     └──────Notice──────► this thread: when it ends, the accounts, what is told
//!    └──────────Order───────────┘
//! ```
//!
//! The accounts are those of a scan in a store, made by the same code; the files are those that such a scan is
//! converted to.

mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::manifest::{self, Format};
use fullbore_core::name::ScanName;
use fullbore_core::place::{Placement, Urgency, Wish};
use fullbore_core::units::ByteSize;
use fullbore_core::wall;
use uuid::Uuid;

use super::arm::{judge_buffers, open_ports};
use super::check::check_inputs;
use super::clocks::Clocks;
use super::error::RecordError;
use super::event::{Armed, Event, MemberState, Progress, Sealed, Tell};
use super::place::Places;
use super::plan::{Limit, Plan};
use super::scan::Scan;
use super::scribe::Scribes;
use super::seal::seal;
use super::supervise::Control;
use crate::clock::Clock;
use crate::posting::Posting;
use crate::ring::{Gauge, Wake, pages_of};
use crate::sink::hdf5::{self, Ending, Existing, Options, StreamFile};
use crate::source::{Capture, Lane, Notice, Order, Port, Scratch, Settings};
use crate::{store, witness};
use writer::{Description, News, Word, Writer};

/// Time between two looks at everything.
const TICK: Duration = Duration::from_millis(20);

/// Time between two progress events.
const PROGRESS: Duration = Duration::from_millis(250);

/// Of all block memory so much may wait for a flush.
const UNSEEN: u64 = 8;

/// What is to be recorded, and into what.
#[derive(Clone, Debug)]
pub struct ContainerPlan {
    /// Where frames come from.
    pub sources: Vec<UdpSource>,
    /// What the files say that they are of.
    pub name: ScanName,
    /// The file. Of several streams each has one beside it, and it shows all of them.
    pub path: PathBuf,
    /// How files are written.
    pub options: Options,
    /// When it ends.
    pub limit: Limit,
    /// Block memory for all sources together.
    pub buffer: Option<ByteSize>,
    /// Capture threads; by default as many as the machine carries.
    pub capture_threads: Option<usize>,
    /// Cores for the capture threads, if they are to stay on some.
    pub cpus: Vec<usize>,
    /// Beyond what the time in frames is warned about.
    pub clock: wall::Limits,
}

impl ContainerPlan {
    /// Whether there is one stream, and no other can be discovered.
    fn is_single(&self) -> bool {
        matches!(self.sources.as_slice(), [only] if only.threads != Threads::Split)
    }

    /// The file of a stream.
    fn file_of(&self, stream: &str) -> PathBuf {
        match self.is_single() {
            true => self.path.clone(),
            false => hdf5::beside(&self.path, stream),
        }
    }

    /// As a store's recorder would be told.
    fn as_plan(&self) -> Plan {
        Plan {
            sources: self.sources.clone(),
            pandas: Vec::new(),
            members: Vec::new(),
            scans: vec![self.name.clone()],
            start: None,
            limit: self.limit,
            buffer: self.buffer,
            chunk: None,
            capture_threads: self.capture_threads,
            place: Wish::InTurn(self.cpus.clone()),
            priority: Urgency::Off,
            sync_interval: None,
            redundancy: None,
            stall: None,
            clock: self.clock,
            planned: fullbore_core::completeness::Planned { begin: None, end: self.limit.until },
            goes_on_without: None,
            new_members: Vec::new(),
        }
    }
}

/// Records until a limit is reached or an end is asked for. The scan is told of when its files are ended.
pub fn record(
    plan: ContainerPlan,
    control: &Arc<Control>,
    tell: &mut Tell<'_>,
) -> Result<(), RecordError> {
    let as_plan = plan.as_plan();
    check_inputs(&as_plan)?;
    check_way(&plan)?;
    let mut ports = open_ports(&as_plan, &Places::plan(&as_plan, &[])?)?;
    if plan.is_single() {
        // The file has the name that the user gave: there is no second one.
        ports.iter_mut().for_each(Port::keep_to_one_stream);
    }
    judge_buffers(&as_plan, &ports, tell);
    for text in ports.iter().filter_map(Port::warning) {
        tell(&Event::Warning { text });
    }
    // What was there is gone only now that nothing stands in the way of what takes its place.
    make_way(&plan)?;
    let mut work = Work::arm(plan, &as_plan, ports, tell)?;
    work.run(control, tell);
    work.end(tell)
}

/// The files that will be made and are there already. Those of threads that are yet to be discovered are looked for when
/// they are made.
fn in_the_way(plan: &ContainerPlan) -> impl Iterator<Item = PathBuf> {
    let known = plan.sources.iter().map(|source| plan.file_of(source.name.as_str()));
    let master = [plan.path.clone()].into_iter().filter(|_| !plan.is_single());
    known.chain(master).filter(|path| hdf5::is_there(path))
}

/// Refuses files that are there, or that cannot be continued or replaced where that is asked for.
fn check_way(plan: &ContainerPlan) -> Result<(), RecordError> {
    let folder = plan.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some((folder, Err(source))) = folder.map(|folder| (folder, std::fs::metadata(folder))) {
        return Err(RecordError::File { path: folder.to_owned(), source });
    }
    hdf5::check_place(&plan.path)?;
    for path in in_the_way(plan) {
        match plan.options.existing {
            Existing::Refuse => return Err(hdf5::Error::Exists { path }.into()),
            Existing::Append if path == plan.path && !plan.is_single() => {
                hdf5::check_master(&path)?;
            }
            Existing::Append => hdf5::check_continuable(&path, plan.options.compression)?,
            Existing::Overwrite => hdf5::check_replaceable(&path)?,
        }
    }
    Ok(())
}

/// Removes the files that are to be replaced. Those who read them keep them.
fn make_way(plan: &ContainerPlan) -> Result<(), RecordError> {
    if plan.options.existing == Existing::Overwrite {
        in_the_way(plan).try_for_each(|path| hdf5::remove_old(&path))?;
    }
    Ok(())
}

/// A recording that goes on.
struct Work {
    plan: ContainerPlan,
    scan: Scan,
    captures: Vec<Capture>,
    captures_left: usize,
    notices: Receiver<Notice>,
    words: Sender<Word>,
    news: Receiver<News>,
    writer: Option<JoinHandle<BTreeMap<u16, StreamFile>>>,
    gauge: Arc<Gauge>,
    clock: Clock,
    since: Instant,
    stopping: u8,
    broken: Option<String>,
    failed: Option<hdf5::Error>,
    told: (Instant, Vec<u64>, u64),
    clocks: Clocks,
}

impl Work {
    /// Starts every thread, and begins to listen.
    fn arm(
        plan: ContainerPlan,
        as_plan: &Plan,
        mut ports: Vec<Port>,
        tell: &mut Tell<'_>,
    ) -> Result<Self, RecordError> {
        let clock = Clock::new();
        let scribes = Scribes::start(&[]).map_err(RecordError::Thread)?;
        let place = manifest::Member {
            uuid: Uuid::nil(),
            path: plan.path.clone(),
            failure: None,
            buffered: true,
        };
        let mut scan = Scan::in_a_file(plan.name.clone(), as_plan, place, &scribes, clock.now());
        let pools = ports.iter().map(|port| port.region().bytes() as u64);
        let (pool_bytes, least) = (pools.clone().sum::<u64>(), pools.min().unwrap_or(0));
        let mut armed = Armed {
            scan: plan.name.clone(),
            at: scan.manifest.armed,
            begins: None,
            sources: ports
                .iter()
                .map(|port| (port.source().endpoint.to_string(), port.receiver().buffer_bytes()))
                .collect(),
            pool_bytes,
            locked: ports.iter().all(|port| port.region().locked()),
            pages: pages_of(ports.iter().map(|port| port.region().as_ref())),
            placement: Placement::default(),
            threads: Vec::new(),
            autogroup: None,
            members: vec![MemberState { path: plan.path.clone(), ..nothing_written() }],
        };
        let count = as_plan.threads();
        let mut groups: Vec<Vec<Port>> = (0..count).map(|_| Vec::new()).collect();
        let mut scratch = Scratch::new();
        for (number, mut port) in ports.drain(..).enumerate() {
            port.drain(&mut scratch).map_err(RecordError::Thread)?;
            groups[number % count].push(port);
        }
        let gauge = Arc::new(Gauge::default());
        let wake = Arc::new(Wake::new().map_err(RecordError::Thread)?);
        let (mut sides, mut lanes) = (Vec::new(), Vec::new());
        for group in &groups {
            let most_blocks = group.iter().map(Port::most_blocks).sum::<usize>();
            let room = most_blocks + Lane::FINISHES;
            let (commands, from_capture) = rtrb::RingBuffer::new(room);
            let (to_capture, returned) = rtrb::RingBuffer::new(room);
            sides.push(store::Lane { commands: from_capture, returned: to_capture });
            lanes.push(Lane::new(commands, returned, gauge.clone(), wake.clone(), most_blocks));
        }
        let (words, from_us) = mpsc::channel();
        let (to_us, news) = mpsc::channel();
        let options = plan.options.clone();
        let writer =
            Writer::new(sides, from_us, to_us, gauge.clone(), wake, options, least / UNSEEN);
        let writer = std::thread::Builder::new().name("hdf5".into()).spawn(move || writer.run());
        let writer = writer.map_err(RecordError::Thread)?;
        let (to_notices, notices) = mpsc::channel();
        let mut captures = Vec::new();
        for (number, (group, lane)) in groups.into_iter().zip(lanes).enumerate() {
            let settings = Settings {
                posting: Posting::on(plan.cpus.get(number).copied()),
                hold: false,
                tails: None,
                redundancy: None,
            };
            let capture = Capture::start(number, group, vec![lane], to_notices.clone(), settings);
            captures.push(capture.map_err(RecordError::Thread)?);
        }
        armed.threads = captures.iter().map(|it| it.standing().clone()).collect();
        scan.shared = witness::Reading::take(Path::new("/"));
        captures.iter().for_each(|capture| capture.order(Order::Begin(scan.opening.clone())));
        tell(&Event::Armed(armed));
        Ok(Work {
            captures_left: captures.len(),
            told: (Instant::now(), Vec::new(), 0),
            clocks: Clocks::new(plan.clock),
            since: Instant::now(),
            stopping: 0,
            broken: None,
            failed: None,
            plan,
            scan,
            captures,
            notices,
            words,
            news,
            writer: Some(writer),
            gauge,
            clock,
        })
    }

    /// Until every capture thread has ended.
    fn run(&mut self, control: &Arc<Control>, tell: &mut Tell<'_>) {
        while self.captures_left > 0 {
            match self.notices.recv_timeout(TICK) {
                Ok(notice) => self.notice(notice, tell),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.captures_left = 0,
            }
            while let Ok(notice) = self.notices.try_recv() {
                self.notice(notice, tell);
            }
            self.hear(tell);
            match control.asked() {
                0 if self.limit_reached() => {
                    self.scan.limited = true;
                    self.stop(1);
                }
                asked => self.stop(asked.min(2)),
            }
            if self.told.0.elapsed() >= PROGRESS {
                let progress = self.progress();
                tell(&Event::Progress(progress));
                self.clocks.judge(&self.scan, tell);
            }
        }
    }

    fn stop(&mut self, urgency: u8) {
        if self.stopping >= urgency {
            return;
        }
        self.scan.manifest.stopped.get_or_insert(self.clock.now());
        self.stopping = urgency;
        let order = || if urgency > 1 { Order::Abort } else { Order::Stop };
        self.captures.iter().for_each(|capture| capture.order(order()));
        self.tell_writer(Word::Hurry);
    }

    fn tell_writer(&self, word: Word) {
        // One that has gone has failed, which is told when it is joined.
        let _ = self.words.send(word);
    }

    fn limit_reached(&self) -> bool {
        let limit = self.plan.limit;
        limit.duration.is_some_and(|duration| self.since.elapsed() >= duration)
            || limit.until.is_some_and(|until| self.clock.now() >= until)
            || limit.bytes.is_some_and(|bytes| self.received_bytes() >= bytes)
    }

    fn received_bytes(&self) -> u64 {
        self.scan.gauges.values().map(|gauge| gauge.bytes.load(Relaxed)).sum()
    }

    fn notice(&mut self, notice: Notice, tell: &mut Tell<'_>) {
        match notice {
            Notice::Opened { shape, format, gauge, .. } => {
                self.scan.stream_opened(&shape, format.clone(), gauge.clone());
                let frames_per_second = match format {
                    Format::Vdif { frames_per_second, .. } => frames_per_second,
                    Format::Panda { .. } | Format::Raw => None,
                };
                tell(&Event::Opened {
                    scan: self.plan.name.clone(),
                    stream: shape.name.clone(),
                    frame_bytes: shape.geometry.frame_bytes,
                    frames_per_second,
                });
                self.tell_writer(Word::Described(Box::new(Description {
                    number: shape.number,
                    path: self.plan.file_of(shape.name.as_str()),
                    scan: self.plan.name.to_string(),
                    name: shape.name,
                    format,
                    geometry: shape.geometry,
                    fill: shape.fill,
                    gauge,
                })));
            }
            Notice::Ended { number, format, blocks, bytes, account, .. } => {
                let stream = &mut self.scan.manifest.streams[usize::from(number)];
                (stream.format, stream.blocks, stream.bytes) = (format, blocks, bytes);
                self.scan.shared_after = Some(witness::Reading::take(Path::new("/")));
                self.scan.accounts.insert(number, *account);
            }
            Notice::Unrecognised { source, gauge, .. } => {
                self.scan.unrecognised.insert(source, gauge);
            }
            Notice::Silent { number, source, account, .. } => {
                self.scan.shared_after = Some(witness::Reading::take(Path::new("/")));
                self.scan.port_silent(number, source, *account);
            }
            Notice::Done => {
                self.captures_left = self.captures_left.saturating_sub(1);
                if self.stopping == 0 {
                    self.break_off("a capture thread failed, and the recording ends", tell);
                }
            }
            Notice::Warning { text } => tell(&Event::Warning { text }),
            Notice::Broken { why } => self.break_off(&why, tell),
            Notice::Described { .. } | Notice::Closed { .. } => {}
        }
    }

    fn break_off(&mut self, why: &str, tell: &mut Tell<'_>) {
        self.broken.get_or_insert_with(|| why.to_owned());
        tell(&Event::Warning { text: why.to_owned() });
        self.stop(1);
    }

    /// What the writer has to say.
    fn hear(&mut self, tell: &mut Tell<'_>) {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Visible { number, bytes } => {
                    self.scan.durable.entry(number).or_default().1 = bytes;
                }
                News::Failed(error) => {
                    let why = hdf5::in_full(&error);
                    let advice =
                        error.hint().map_or_else(String::new, |hint| format!("\n  {hint}"));
                    let text = format!(
                        "nothing more can be written, and the recording ends: {why}{advice}"
                    );
                    tell(&Event::Warning { text });
                    for member in &mut self.scan.manifest.members {
                        member.failure.get_or_insert_with(|| why.clone());
                    }
                    self.failed.get_or_insert(error);
                    self.stop(1);
                }
            }
        }
    }

    fn progress(&mut self) -> Progress {
        let seconds = self.told.0.elapsed().as_secs_f64().max(1e-3);
        let streams = self.scan.stream_states(&mut self.told.1, seconds);
        let written = self.gauge.written_bytes.load(Relaxed);
        let before = std::mem::replace(&mut self.told.2, written);
        let free = free_bytes(&self.plan.path);
        let total: u64 = streams.iter().map(|stream| stream.rate).sum();
        let member = MemberState {
            path: self.plan.path.clone(),
            written_bytes: written,
            rate: (written.saturating_sub(before) as f64 / seconds) as u64,
            backlog_bytes: self.gauge.backlog_bytes.load(Relaxed),
            free_bytes: free,
            longest_write_ns: self.gauge.longest_write_ns.load(Relaxed),
            failure: self.scan.manifest.members[0].failure.clone(),
            ..nothing_written()
        };
        self.told.0 = Instant::now();
        let limit = self.plan.limit;
        let by_duration =
            limit.duration.map(|it| it.saturating_sub(self.since.elapsed()).as_secs_f64());
        let by_clock = limit.until.map(|until| until.since(self.clock.now()) as f64 / 1e9);
        Progress {
            scan: self.plan.name.clone(),
            seconds: self.since.elapsed().as_secs_f64(),
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            durable_bytes: streams.iter().map(|stream| stream.durable_bytes).sum(),
            seconds_left: [by_duration, by_clock].into_iter().flatten().reduce(f64::min),
            free_bytes: free,
            seconds_until_full: (total > 0).then(|| free as f64 / total as f64),
            streams,
            members: vec![member],
        }
    }

    /// Makes the accounts, ends the files, and tells of the scan.
    fn end(mut self, tell: &mut Tell<'_>) -> Result<(), RecordError> {
        // The ways to the writer close with these, so that it ends too.
        std::mem::take(&mut self.captures).into_iter().for_each(Capture::join);
        let Some(Ok(files)) = self.writer.take().map(JoinHandle::join) else {
            let why = "the thread that writes the file failed; `fullbore recover` mends it".into();
            return Err(RecordError::Broken { why });
        };
        self.hear(tell);
        let gauges = [self.gauge.clone()];
        let sealed = seal(&mut self.scan, &self.plan.sources, &gauges, self.stopping > 1)?;
        let ended = self.end_files(files, &sealed);
        let (nothing, failed) =
            (sealed.manifest.streams.iter().all(|it| it.bytes == 0), self.failed);
        tell(&Event::Sealed(Box::new(sealed)));
        ended?;
        match (self.broken, failed) {
            (Some(why), _) => Err(RecordError::Broken { why }),
            // Where something was recorded, the account says what was not.
            (None, Some(error)) if nothing => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn end_files(
        &self,
        mut files: BTreeMap<u16, StreamFile>,
        sealed: &Sealed,
    ) -> Result<(), hdf5::Error> {
        if let Some(failed) = &self.failed {
            for (number, file) in files {
                let ending =
                    Ending::of_stream(sealed.manifest.state, self.scan.accounts.get(&number));
                // Where there is no room for an ending either, `recover` makes one.
                let _ = file.abandon(&ending.cut_short(failed));
            }
            return Ok(());
        }
        let mut joined: Vec<(String, PathBuf)> = Vec::new();
        for (number, stream) in (0..).zip(&sealed.manifest.streams) {
            let path = self.plan.file_of(stream.name.as_str());
            let file = match files.remove(&number) {
                Some(file) => file,
                // There is nothing to add to it.
                None if self.plan.options.existing == Existing::Append && hdf5::is_there(&path) => {
                    continue;
                }
                None => self.empty_file(&path, stream)?,
            };
            let account = self.scan.accounts.get(&number);
            let ending = Ending::of_stream(sealed.manifest.state, account);
            file.finish(&ending, &stream.format)?;
            joined.push((stream.name.to_string(), path));
        }
        if self.plan.is_single() {
            return Ok(());
        }
        let joined: Vec<(&str, &Path)> =
            joined.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
        match self.plan.options.existing {
            Existing::Append => hdf5::join_anew(&self.plan.path, &joined),
            Existing::Refuse | Existing::Overwrite => hdf5::join(&self.plan.path, &joined),
        }
    }

    /// Of a stream that never came.
    fn empty_file(
        &self,
        path: &Path,
        stream: &manifest::Stream,
    ) -> Result<StreamFile, hdf5::Error> {
        let about = hdf5::About {
            scan: &self.plan.name.to_string(),
            stream: stream.name.as_str(),
            format: &stream.format,
            frame_bytes: stream.geometry.map_or(0, |geometry| geometry.frame_bytes),
        };
        StreamFile::create(path, &about, &self.plan.options)
    }
}

fn nothing_written() -> MemberState {
    MemberState {
        path: PathBuf::new(),
        buffered: true,
        written_bytes: 0,
        rate: 0,
        backlog_bytes: 0,
        free_bytes: 0,
        longest_write_ns: 0,
        failure: None,
    }
}

/// What is free where a file lies.
fn free_bytes(file: &Path) -> u64 {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found = rustix::fs::statvfs(folder.unwrap_or(Path::new(".")));
    found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}
