//! Blocks into directories: the writers of the store, fed as a capture thread feeds them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::layout::{ALIGNMENT, Geometry, chunk_file};
use fullbore_core::time::Tai;
use fullbore_engine::ring::{Block, Command, Filled, Gauge, Pool, Report, Returned, Track, Wake};
use fullbore_engine::store::{self, Lane, Member, Settings, Timing, Writer};

use super::{Done, Laid, Outlet, Wish};
use crate::bench::disk::error::Error;
use crate::bench::disk::target::{Place, PlaceKind};

/// Between two looks for blocks that came back; a capture thread would take packets meanwhile.
const NAP: Duration = Duration::from_micros(200);

/// The writers of all members, and the stream that they are given.
pub struct Members {
    links: Vec<Link>,
    track: Arc<Track>,
    reports: mpsc::Receiver<Report>,
    timings: mpsc::Receiver<Timing>,
    sequence: u64,
    dealt_to: usize,
    /// No more chunks lie on a member at once.
    keep_chunks: usize,
}

/// The capture side's view of one member.
struct Link {
    member: Member,
    commands: Option<rtrb::Producer<Command>>,
    returned: rtrb::Consumer<Returned>,
    wake: Arc<Wake>,
    gauge: Arc<Gauge>,
    writer: Option<Writer>,
    /// Its chunks that are still there, the oldest first.
    chunks: VecDeque<u32>,
}

impl Members {
    /// Starts a writer for each place, which are directories.
    pub fn open(places: &[Place], wish: &Wish, blocks: usize) -> Result<Self, Error> {
        let geometry = geometry(wish)?;
        let (report, reports) = mpsc::channel();
        let (timing, timings) = mpsc::channel();
        let mut links = vec![];
        for (number, place) in places.iter().enumerate() {
            let PlaceKind::Directory(member) = &place.kind else { return Err(Error::Mixed) };
            let settings = Settings {
                depth_bytes: wish.depth_bytes,
                timings: Some(timing.clone()),
                ..Settings::of_member(number)
            };
            links.push(link(member, settings, blocks, report.clone())?);
        }
        let scan = uuid::Uuid::now_v7();
        let directory = format!("bench_{}", scan.simple());
        let track = Arc::new(Track { scan, number: 0, directory, geometry });
        let keep = wish.wrap.map_or(u64::MAX, |bytes| bytes / geometry.chunk_bytes());
        let keep_chunks = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        Ok(Self { links, track, reports, timings, sequence: 0, dealt_to: 0, keep_chunks })
    }

    /// Begins a chunk on a member. Where there are too many, the oldest is removed, as a recorder lets old scans go.
    fn begin_chunk(&mut self, chunk: u32) -> Result<(), Error> {
        let link = &mut self.links[self.dealt_to];
        link.chunks.push_back(chunk);
        if link.chunks.len() <= self.keep_chunks {
            return Ok(());
        }
        let Some(oldest) = link.chunks.pop_front() else { return Ok(()) };
        let Some(files) = link.member.nameless_files() else { return Ok(()) };
        let name = name(&self.track.directory, oldest);
        files.remove(&name).map_err(|source| {
            let what = format!("removing chunk {oldest}");
            Error::Transfer { path: link.member.root().to_owned(), what, source }
        })
    }

    /// What the writers reported: an end, or that they gave up.
    fn heed(report: Report) -> Result<bool, Error> {
        match report {
            Report::Failed { why, .. } => Err(Error::Failed { why }),
            Report::Gone { member } => {
                Err(Error::Failed { why: format!("the writer of member {member} failed") })
            }
            Report::Finished { .. } => Ok(true),
            Report::Durable { .. } | Report::Back { .. } => Ok(false),
        }
    }

    fn take_back(&mut self, pool: &mut Pool) -> Result<bool, Error> {
        let mut any = false;
        for link in &mut self.links {
            while let Ok(returned) = link.returned.pop() {
                any = true;
                match returned {
                    Returned::Written { block, .. } => pool.put(block),
                    Returned::Refused(filled) => {
                        pool.put(filled.block);
                        // The writer's own words say why, and come first.
                        for report in self.reports.try_iter() {
                            Self::heed(report)?;
                        }
                        let why = format!("{} takes no more data", link.member.root().display());
                        return Err(Error::Failed { why });
                    }
                }
            }
        }
        Ok(any)
    }
}

/// The name that a chunk file would have.
fn name(directory: &str, chunk: u32) -> String {
    format!("{directory}/{}", chunk_file(directory, chunk))
}

/// Blocks of whole pages: the smallest frame that divides every block.
fn geometry(wish: &Wish) -> Result<Geometry, Error> {
    if u64::from(wish.block_bytes) % ALIGNMENT != 0 {
        let what = format!("blocks of a recording are multiples of {ALIGNMENT} bytes");
        return Err(Error::Settings { what });
    }
    let chunk_bytes = wish.chunk_bytes.max(wish.block_bytes.into());
    Geometry::of_frames(ALIGNMENT as u32, wish.block_bytes.into(), chunk_bytes)
        .map_err(|error| Error::Settings { what: error.to_string() })
}

fn link(
    member: &Member,
    settings: Settings,
    blocks: usize,
    reports: mpsc::Sender<Report>,
) -> Result<Link, Error> {
    // Room for every block there is, and for the end.
    let (commands, receiver) = rtrb::RingBuffer::new(blocks + 2);
    let (sender, returned) = rtrb::RingBuffer::new(blocks + 2);
    let broken = |source| Error::Open { path: member.root().to_owned(), source };
    let wake = Arc::new(Wake::new().map_err(broken)?);
    let gauge = Arc::new(Gauge::default());
    let lane = Lane { commands: receiver, returned: sender };
    let writer = store::spawn(member, vec![lane], gauge.clone(), reports, wake.clone(), settings)?;
    let commands = Some(commands);
    Ok(Link {
        member: member.clone(),
        commands,
        returned,
        wake,
        gauge,
        writer: Some(writer),
        chunks: VecDeque::new(),
    })
}

impl Link {
    fn send(&mut self, command: Command) {
        let commands = self.commands.as_mut().expect("open until the end");
        assert!(commands.push(command).is_ok(), "a queue has room for every block there is");
        self.wake.wake();
    }
}

impl Outlet for Members {
    fn give(&mut self, block: Block, bytes: u32, crc: u32) -> Result<Laid, Error> {
        let geometry = self.track.geometry;
        let sequence = self.sequence;
        self.sequence += 1;
        let place = sequence % u64::from(geometry.chunk_blocks);
        if place == 0 {
            let backlog = |link: &Link| link.gauge.backlog_bytes.load(Relaxed);
            let least = self.links.iter().enumerate().min_by_key(|(_, link)| backlog(link));
            self.dealt_to = least.map_or(0, |(number, _)| number);
        }
        let chunk = (sequence / u64::from(geometry.chunk_blocks)) as u32;
        if place == 0 {
            self.begin_chunk(chunk)?;
        }
        let offset = place * u64::from(geometry.block_bytes);
        let frames = bytes / geometry.frame_bytes;
        let filled = Filled {
            block,
            track: self.track.clone(),
            sequence,
            chunk,
            offset,
            bytes,
            frames,
            present: frames,
            invalid: 0,
            first: (sequence * u64::from(geometry.frames_per_block())) as i64,
            time: None,
            seen: Tai(0),
            gaps: vec![],
            lengths: vec![],
            crc: Some(crc),
        };
        let link = &mut self.links[self.dealt_to];
        link.gauge.backlog_bytes.fetch_add(bytes.into(), Relaxed);
        link.send(Command::Write(filled));
        let position = sequence * u64::from(geometry.block_bytes);
        Ok(Laid { member: self.dealt_to, chunk, offset, position, bytes, crc })
    }

    fn collect(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error> {
        for report in self.reports.try_iter() {
            Self::heed(report)?;
        }
        let any = self.take_back(pool)?;
        if !any && !wait.is_zero() {
            std::thread::sleep(wait.min(NAP));
        }
        Ok(())
    }

    fn finish(&mut self, pool: &mut Pool) -> Result<(), Error> {
        for link in &mut self.links {
            let finish = Command::Finish { track: self.track.clone(), gaps: vec![] };
            link.send(finish);
        }
        let mut finished = 0;
        let mut first_error = None;
        // After an error nobody waits for the others: they close what they have and end.
        while finished < self.links.len() && first_error.is_none() {
            match self.reports.recv_timeout(NAP) {
                Ok(report) => match Self::heed(report) {
                    Ok(end) => finished += usize::from(end),
                    Err(error) => first_error = first_error.or(Some(error)),
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if let Err(error) = self.take_back(pool) {
                first_error = first_error.or(Some(error));
            }
        }
        for link in &mut self.links {
            link.commands = None;
            if let Some(writer) = link.writer.take()
                && writer.join().is_err()
            {
                let why = format!("the writer of {} panicked", link.member.root().display());
                first_error = first_error.or(Some(Error::Failed { why }));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn trace(&mut self, begun: Instant) -> Vec<Done> {
        let done = |timing: Timing| Done {
            member: timing.member,
            chunk: timing.chunk,
            offset: timing.offset,
            bytes: timing.bytes,
            at_ns: timing.at.saturating_duration_since(begun).as_nanos() as u64,
            took_ns: timing.took.as_nanos() as u64,
        };
        self.timings.try_iter().map(done).collect()
    }

    fn path(&self, laid: &Laid) -> Option<Arc<PathBuf>> {
        let name = name(&self.track.directory, laid.chunk);
        let file = self.links.get(laid.member)?.member.nameless_files()?.file(&name)?;
        Some(Arc::new(format!("/proc/self/fd/{}", file.as_raw_fd()).into()))
    }

    fn is_gone(&self, laid: &Laid) -> bool {
        self.links[laid.member].chunks.front().is_none_or(|oldest| laid.chunk < *oldest)
    }
}

impl Drop for Members {
    /// The space is given back with the files, which the members' clones would keep.
    fn drop(&mut self) {
        for link in &self.links {
            if let Some(files) = link.member.nameless_files() {
                files.clear();
            }
        }
    }
}
