//! Writes blocks into directories through the writers of the store, fed as a capture thread feeds them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::layout::{ALIGNMENT, Geometry, chunk_file};
use fullbore_linux::ring::{
    Block, FullBlock, Notifier, Pool, ReplyReceiver, StreamRef, WriterCommand, WriterEvent,
    WriterMetrics, WriterReply, reply_queue,
};
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::{self as store, CaptureQueue, Member, Settings, Timing};
use fullbore_time::Tai;

use super::{BlockSink, ContinuousRequest, Done, Laid};
use crate::bench::disk::error::Error;
use crate::bench::disk::target::{Place, PlaceKind};

/// Time between two checks for returned blocks, in which a capture thread would receive packets.
const NAP: Duration = Duration::from_micros(200);

/// The longest wait until the oldest chunk is written and can be removed.
const PLACED_BY: Duration = Duration::from_secs(60);

/// The writers of all members, and their stream.
pub struct Members {
    links: Vec<Link>,
    stream_ref: Arc<StreamRef>,
    reports: mpsc::Receiver<WriterEvent>,
    timings: mpsc::Receiver<Timing>,
    sequence: u64,
    dealt_to: usize,
    /// The most chunks on a member at once.
    keep_chunks: usize,
}

/// The capture side's view of one member.
struct Link {
    member: Member,
    commands: Option<rtrb::Producer<WriterCommand>>,
    returned: ReplyReceiver,
    wake: Arc<Notifier>,
    metrics: Arc<WriterMetrics>,
    writer: Option<WriterThread>,
    /// Its existing chunks, the oldest first.
    chunks: VecDeque<u32>,
}

impl Members {
    /// Starts a writer for each place. All places are directories.
    pub fn open(
        places: &[Place],
        request: &ContinuousRequest,
        blocks: usize,
    ) -> Result<Self, Error> {
        let geometry = geometry(request)?;
        let (report, reports) = mpsc::channel();
        let (timing, timings) = mpsc::channel();
        let mut links = vec![];
        for (number, place) in places.iter().enumerate() {
            let PlaceKind::Directory(member) = &place.kind else { return Err(Error::Mixed) };
            let settings = Settings {
                depth_bytes: request.depth_bytes,
                timings: Some(timing.clone()),
                ..Settings::of_member(number)
            };
            links.push(link(member, settings, blocks, report.clone())?);
        }
        let scan = uuid::Uuid::now_v7();
        let directory = format!("bench_{}", scan.simple());
        let stream_ref = Arc::new(StreamRef { scan, number: 0, directory, geometry });
        let keep = request.wrap.map_or(u64::MAX, |bytes| bytes / geometry.chunk_bytes());
        let keep_chunks = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        Ok(Self { links, stream_ref, reports, timings, sequence: 0, dealt_to: 0, keep_chunks })
    }

    /// Begins a chunk on a member. If there are too many, the oldest is removed, as a recorder removes old scans. Its file
    /// has its name once all of it is written: before that its space cannot be freed, and this waits for it.
    fn begin_chunk(&mut self, chunk: u32) -> Result<(), Error> {
        let link = &mut self.links[self.dealt_to];
        link.chunks.push_back(chunk);
        if link.chunks.len() <= self.keep_chunks {
            return Ok(());
        }
        let Some(oldest) = link.chunks.pop_front() else { return Ok(()) };
        let Some(files) = link.member.nameless_files() else { return Ok(()) };
        let name = name(&self.stream_ref.directory, oldest);
        let begun = Instant::now();
        while files.file(&name).is_none()
            && !link.metrics.refusing.load(Relaxed)
            && begun.elapsed() < PLACED_BY
        {
            // The writer tells of blocks that are written, and of no names.
            std::thread::sleep(NAP);
        }
        files.remove(&name).map_err(|source| {
            let what = format!("removing chunk {oldest}");
            Error::Transfer { path: link.member.root().to_owned(), what, source }
        })
    }

    /// Handles a report of a writer: its end, or a failure.
    fn heed(report: WriterEvent) -> Result<bool, Error> {
        match report {
            WriterEvent::Failed { why, .. } => Err(Error::Failed { why }),
            WriterEvent::Gone { member } => {
                Err(Error::Failed { why: format!("the writer of member {member} failed") })
            }
            WriterEvent::Finished { .. } => Ok(true),
            WriterEvent::Durable { .. }
            | WriterEvent::Full { .. }
            | WriterEvent::Back { .. }
            | WriterEvent::Alternate { .. } => Ok(false),
        }
    }

    fn take_back(&mut self, pool: &mut Pool) -> Result<bool, Error> {
        let mut any = false;
        for link in &mut self.links {
            while let Ok(returned) = link.returned.pop() {
                any = true;
                match returned {
                    WriterReply::Written { block, .. } => pool.put(block),
                    WriterReply::Refused(filled) => {
                        pool.put(filled.block);
                        // The writer's own report gives the reason, so it comes first.
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

/// The name of a chunk file.
fn name(directory: &str, chunk: u32) -> String {
    format!("{directory}/{}", chunk_file(directory, chunk))
}

/// A geometry with blocks of whole pages: the smallest frame that divides every block.
fn geometry(request: &ContinuousRequest) -> Result<Geometry, Error> {
    if u64::from(request.block_bytes) % ALIGNMENT != 0 {
        let what = format!("blocks of a recording are multiples of {ALIGNMENT} bytes");
        return Err(Error::Settings { what });
    }
    let chunk_bytes = request.chunk_bytes.max(request.block_bytes.into());
    Geometry::of_frames(ALIGNMENT as u32, request.block_bytes.into(), chunk_bytes)
        .map_err(|error| Error::Settings { what: error.to_string() })
}

fn link(
    member: &Member,
    settings: Settings,
    blocks: usize,
    reports: mpsc::Sender<WriterEvent>,
) -> Result<Link, Error> {
    // Room for every block, and for the end.
    let (commands, receiver) = rtrb::RingBuffer::new(blocks + 2);
    let (sender, returned) = reply_queue(blocks + 2);
    let broken = |source| Error::Open { path: member.root().to_owned(), source };
    let wake = Arc::new(Notifier::new().map_err(broken)?);
    let metrics = Arc::new(WriterMetrics::default());
    let lane = CaptureQueue { commands: receiver, returned: sender };
    let writer =
        store::spawn(member, vec![lane], metrics.clone(), reports, wake.clone(), settings)?;
    let commands = Some(commands);
    Ok(Link {
        member: member.clone(),
        commands,
        returned,
        wake,
        metrics,
        writer: Some(writer),
        chunks: VecDeque::new(),
    })
}

impl Link {
    fn send(&mut self, command: WriterCommand) {
        let commands = self.commands.as_mut().expect("open until the end");
        assert!(commands.push(command).is_ok(), "a queue has room for every block there is");
        self.wake.wake();
    }
}

impl BlockSink for Members {
    fn give(&mut self, block: Block, bytes: u32, crc: u32) -> Result<Laid, Error> {
        let geometry = self.stream_ref.geometry;
        let sequence = self.sequence;
        self.sequence += 1;
        let place = sequence % u64::from(geometry.chunk_blocks);
        if place == 0 {
            let backlog = |link: &Link| link.metrics.backlog_bytes.load(Relaxed);
            let least = self.links.iter().enumerate().min_by_key(|(_, link)| backlog(link));
            self.dealt_to = least.map_or(0, |(number, _)| number);
        }
        let chunk = (sequence / u64::from(geometry.chunk_blocks)) as u32;
        if place == 0 {
            self.begin_chunk(chunk)?;
        }
        let offset = place * u64::from(geometry.block_bytes);
        let frames = bytes / geometry.frame_bytes;
        let filled = FullBlock {
            block,
            stream_ref: self.stream_ref.clone(),
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
        link.metrics.backlog_bytes.fetch_add(bytes.into(), Relaxed);
        link.send(WriterCommand::Write(filled));
        let position = sequence * u64::from(geometry.block_bytes);
        Ok(Laid { member: self.dealt_to, chunk, offset, position, bytes, crc })
    }

    fn collect(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error> {
        for report in self.reports.try_iter() {
            Self::heed(report)?;
        }
        let any = self.take_back(pool)?;
        if !any && !wait.is_zero() {
            // A block that comes back ends the wait.
            std::thread::park_timeout(wait);
        }
        Ok(())
    }

    fn finish(&mut self, pool: &mut Pool) -> Result<(), Error> {
        for link in &mut self.links {
            let finish =
                WriterCommand::Finish { stream_ref: self.stream_ref.clone(), gaps: vec![] };
            link.send(finish);
        }
        let mut finished = 0;
        let mut first_error = None;
        // After an error the other writers are not waited for: they close their files and end.
        while finished < self.links.len() && first_error.is_none() {
            // The queues have room for the blocks that come back meanwhile.
            let Ok(report) = self.reports.recv() else { break };
            match Self::heed(report) {
                Ok(end) => finished += usize::from(end),
                Err(error) => first_error = Some(error),
            }
        }
        if let Err(error) = self.take_back(pool) {
            first_error = first_error.or(Some(error));
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
        let name = name(&self.stream_ref.directory, laid.chunk);
        let file = self.links.get(laid.member)?.member.nameless_files()?.file(&name)?;
        Some(Arc::new(format!("/proc/self/fd/{}", file.as_raw_fd()).into()))
    }

    fn is_gone(&self, laid: &Laid) -> bool {
        self.links[laid.member].chunks.front().is_none_or(|oldest| laid.chunk < *oldest)
    }
}

impl Drop for Members {
    /// The space is freed with the files; the members' clones would keep them.
    fn drop(&mut self) {
        for link in &self.links {
            if let Some(files) = link.member.nameless_files() {
                files.clear();
            }
        }
    }
}
