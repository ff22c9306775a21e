//! A port: one socket, and the streams that come through it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::account::{Account, CountedBy, Unread, Witness};
use fullbore_core::count::Count;
use fullbore_core::endpoint::{Gro, SourceFormat, Threads, UdpSource};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use uuid::Uuid;

use super::arrived::{Arrived, Flows};
use super::drops::{Drops, Said};
use super::learn::{
    Decision, Facts, Holds, LEAST_BLOCK_BYTES, Learning, Sifted, Then, geometry, stripped_bytes,
};
use super::part::{FOREIGN_TOLD, Notice, Opening, Part, Shape, StreamGauge};
use super::placed::{Lent, Method, Placed};
use super::stream::Stream;
use super::unclaimed::{Claim, Key, Unclaimed, tells_threads};
use crate::ring::{Pool, Returned};
use crate::sys::memory::Region;
use crate::sys::receive::{Listen, Receiver};

/// The most streams that one port is split into.
const MOST_STREAMS: usize = 64;

/// Datagrams between two looks at how many come merged.
const MERGE_TRIAL: u64 = 4096;

/// So many messages in which little was merged are enough: of a slow stream the others would take long to come.
const ALONE_TRIAL: u64 = 512;

/// A cut waits this long for the stream to reach its next block.
pub const CUT_PATIENCE: Duration = Duration::from_millis(300);

/// A port that could not be armed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The socket.
    #[error(transparent)]
    Listen(crate::sys::receive::Error),
    /// The block memory.
    #[error("mapping {bytes} bytes of block memory for {source_name}")]
    Memory {
        /// The source.
        source_name: String,
        /// How much was asked for.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// Blocks so large that too few fit the memory.
    #[error("{source_name}: {sum}")]
    FewBlocks {
        /// The source.
        source_name: String,
        /// The sum.
        sum: FewBlocks,
    },
    /// A frame length or block size that cannot be laid out.
    #[error("{source_name}")]
    Layout {
        /// The source.
        source_name: String,
        /// Why.
        #[source]
        error: fullbore_core::layout::Error,
    },
}

/// What a pool cannot be: so many blocks of so many bytes, where more are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewBlocks {
    /// Blocks there would be.
    pub blocks: usize,
    /// Blocks there must be.
    pub needed: usize,
    /// Bytes of each.
    pub block_bytes: u32,
}

impl std::fmt::Display for FewBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { blocks, needed, block_bytes } = *self;
        let block = ByteSize(block_bytes.into());
        let buffer = ByteSize(needed as u64 * u64::from(block_bytes));
        write!(
            f,
            "its frames need blocks of {block}, of which the block memory holds {blocks}, and {needed} \
             are needed: give {buffer} for it with --buffer, or record with frame=varying"
        )
    }
}

/// The fewest blocks that a stream can be recorded with: three in the window, the rest on their way.
pub const LEAST_BLOCKS: usize = 8;

/// Fewer blocks than this ride out no stall of a disk.
pub const AMPLE_BLOCKS: usize = 16;

/// Whether memory holds fewer blocks than needed.
fn few_blocks(block_bytes: u32, pool_bytes: usize, needed: usize) -> Option<FewBlocks> {
    let blocks = pool_bytes / (block_bytes as usize).next_multiple_of(4096).max(4096);
    (blocks < needed).then_some(FewBlocks { blocks, needed, block_bytes })
}

/// Counters of a port that anybody may read.
#[derive(Debug, Default)]
pub struct PortGauge {
    /// Datagrams received.
    pub datagrams: AtomicU64,
    /// Messages they came in.
    pub messages: AtomicU64,
}

/// How much a port is given.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Block memory.
    pub pool_bytes: usize,
    /// About how large a chunk file is.
    pub chunk_bytes: u64,
    /// Receive buffer asked of the kernel.
    pub buffer_bytes: usize,
}

/// A socket and its streams.
pub struct Port {
    source: UdpSource,
    /// Its place in the manifest, and that of the next stream that is discovered.
    number: u16,
    next_number: Arc<AtomicU16>,
    receiver: Receiver,
    region: Arc<Region>,
    pool: Option<Pool>,
    learning: Learning,
    streams: Vec<Stream>,
    /// What the supervisor was told last of the frames of each.
    told: Vec<Format>,
    openings: VecDeque<Arc<Opening>>,
    /// Messages the socket had dropped when each scan began and ended.
    drops: Drops,
    cut_at: Option<Instant>,
    method: Method,
    trial: (u64, u64),
    facts: Option<Facts>,
    /// How all streams of the port are cut into blocks.
    geometry: Option<Geometry>,
    /// Datagrams of the scan that no stream counts, while there is none.
    early: Early,
    /// Whole frames that no stream owns.
    unclaimed: Unclaimed,
    /// Streams that were opened for these.
    late: BTreeSet<Key>,
    /// Whether there can be one stream only: where it goes has no place for a second one.
    alone: bool,
    /// What was warned of: datagrams that are no frames, frames that cannot be recorded, and those left out.
    warned: (bool, bool, bool),
    chunk_bytes: u64,
    /// Why frames that came could not be laid out: said at once, and what breaks the port if no others come.
    refused: Option<String>,
    ended: bool,
    gauge: Arc<PortGauge>,
}

/// What a port counts while it has no stream.
#[derive(Default)]
struct Early {
    foreign: u64,
    foreign_bytes: usize,
    /// What they hold instead.
    holds: Option<Holds>,
    unrecorded: u64,
    excluded: u64,
    /// The same for screens, and the scan in which it was told of.
    gauge: Arc<StreamGauge>,
    told: Option<Uuid>,
}

impl Early {
    fn take_foreign(&mut self, bytes: usize) {
        (self.foreign, self.foreign_bytes) = (self.foreign + 1, bytes);
    }

    fn take(&mut self, sifted: Sifted) {
        self.unrecorded += sifted.unrecorded;
        self.excluded += sifted.excluded;
        if sifted.foreign > 0 {
            self.foreign += sifted.foreign;
            self.foreign_bytes = sifted.foreign_bytes;
            self.holds = sifted.holds.or(self.holds);
        }
    }

    /// Tells a stream's account of it.
    fn tell(self, part: &mut Part) {
        part.foreign += self.foreign;
        part.foreign_bytes = self.foreign_bytes;
        part.unrecorded += self.unrecorded;
        part.excluded += self.excluded;
    }
}

/// Opens the socket of a source.
pub fn listen(source: &UdpSource, buffer_bytes: usize) -> Result<Receiver, PortError> {
    let listen =
        Listen { address: source.address, interface: source.interface.clone(), buffer_bytes };
    Receiver::listen(&listen, source.sender.is_some()).map_err(PortError::Listen)
}

impl Port {
    /// Opens the socket and maps the memory: when this returns, every page is there.
    pub fn open(
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        pool_bytes: usize,
        chunk_bytes: u64,
        buffer_bytes: usize,
    ) -> Result<Self, PortError> {
        let sizes = Sizes { pool_bytes, chunk_bytes, buffer_bytes };
        Self::open_near(None, source, number, next_number, sizes)
    }

    /// The same, with its memory on a memory node.
    pub fn open_near(
        node: Option<u32>,
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        sizes: Sizes,
    ) -> Result<Self, PortError> {
        let Sizes { pool_bytes, chunk_bytes, buffer_bytes } = sizes;
        let source_name = source.endpoint.to_string();
        if let Some(frame_bytes) = source.frame_bytes {
            let layout = geometry(&source, frame_bytes, pool_bytes, chunk_bytes, None);
            let name = || source_name.clone();
            let layout =
                layout.map_err(|error| PortError::Layout { source_name: name(), error })?;
            let few = few_blocks(layout.block_bytes, pool_bytes, LEAST_BLOCKS);
            if let Some(sum) = few {
                return Err(PortError::FewBlocks { source_name: name(), sum });
            }
        }
        let receiver = listen(&source, buffer_bytes)?;
        let merges = source.gro != Gro::Off && receiver.merge(true);
        let region = Region::for_blocks(pool_bytes, node).map_err(|error| PortError::Memory {
            source_name,
            bytes: pool_bytes,
            source: error,
        })?;
        Ok(Self {
            source,
            number,
            next_number,
            receiver,
            region: Arc::new(region),
            pool: None,
            learning: Learning::default(),
            streams: Vec::new(),
            told: Vec::new(),
            openings: VecDeque::new(),
            drops: Drops::default(),
            cut_at: None,
            method: if merges { Method::Merged } else { Method::Batch },
            trial: (0, 0),
            facts: None,
            geometry: None,
            early: Early::default(),
            unclaimed: Unclaimed::default(),
            late: BTreeSet::new(),
            alone: false,
            warned: (false, false, false),
            chunk_bytes,
            refused: None,
            ended: false,
            gauge: Arc::default(),
        })
    }

    /// Opens one stream at most: frames of threads that begin later are counted as unrecorded.
    pub fn keep_to_one_stream(&mut self) {
        self.alone = true;
    }

    /// The source it serves.
    pub fn source(&self) -> &UdpSource {
        &self.source
    }

    /// Its place in the manifest.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The socket.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The memory its blocks are cut from.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The most blocks that its memory can be cut into.
    pub fn most_blocks(&self) -> usize {
        // Blocks come near to their wanted size, and at least to half of it.
        let wanted = self.source.block.map_or(LEAST_BLOCK_BYTES, |size| size.0);
        let wanted = wanted.min(self.region.bytes() as u64 / 16).max(4096);
        2 * self.region.bytes() / wanted as usize + 1
    }

    /// What should be known of its memory before it is relied on.
    pub fn warning(&self) -> Option<String> {
        let (region, chunk) = (self.region.bytes(), self.chunk_bytes);
        let layout = geometry(&self.source, self.source.frame_bytes?, region, chunk, None).ok()?;
        let few = few_blocks(layout.block_bytes, region, AMPLE_BLOCKS)?;
        Some(format!("{}: {few}", self.source.endpoint))
    }

    /// Its counters.
    pub fn gauge(&self) -> &Arc<PortGauge> {
        &self.gauge
    }

    /// Throws away what came before the scan was armed.
    pub fn drain(&mut self, scratch: &mut super::scratch::Scratch) -> io::Result<()> {
        let end = Instant::now() + Duration::from_millis(50);
        while scratch.receive(&mut self.receiver, None)?.1 > 0 && Instant::now() < end {
            let kept = scratch.take();
            scratch.give_back(kept);
        }
        let kept = scratch.take();
        scratch.give_back(kept);
        Ok(())
    }

    /// Begins a scan: the first, or with a cut the next one.
    pub fn begin(&mut self, opening: Arc<Opening>, lender: &mut Lender<'_>) {
        if !self.openings.is_empty() && self.streams.is_empty() {
            // What has come belongs to the scan that ends here, if it is clear what it is.
            self.decide(Then::NextScan, lender);
        }
        let said = self.read_drops(lender);
        self.drops.end(&said);
        self.drops.begin(opening.uuid, said);
        self.openings.push_back(opening.clone());
        if self.openings.len() == 1 {
            return;
        }
        if self.streams.is_empty() {
            let silent = self.openings.pop_front().expect("there are two");
            self.tell_silent(&silent, lender);
            return;
        }
        self.cut_at = Some(Instant::now() + CUT_PATIENCE);
        let Some(pool) = &mut self.pool else { return };
        let mut lent = lender.lend(pool);
        self.streams.iter_mut().for_each(|stream| stream.cut(opening.clone(), &mut lent));
    }

    /// What the socket has dropped, or why it does not say: then nothing can be proven, and that is told now.
    fn read_drops(&self, lender: &mut Lender<'_>) -> Said {
        self.receiver.drops().map_err(|error| {
            let source = &self.source.endpoint;
            let text = format!("{source}: its socket does not say what it dropped: {error}");
            lender.notices.push(Notice::Warning { text });
            error.to_string()
        })
    }

    /// Forgets the counters of scans that are over and told.
    fn forget_drops(&mut self) {
        let mut drops = std::mem::take(&mut self.drops);
        drops.forget(|scan| self.streams.iter_mut().any(|stream| stream.part_mut(scan).is_some()));
        self.drops = drops;
    }

    /// What the socket's own counter says of a scan, or that it could not be read.
    fn witness(&self, scan: Uuid) -> (Vec<Witness>, Vec<Unread>) {
        let datagrams = self.gauge.datagrams.load(Ordering::Relaxed);
        let coarse = datagrams > self.gauge.messages.load(Ordering::Relaxed);
        // Threads that are split off share their socket.
        let own = self.streams.len() <= 1;
        self.drops.witness(scan, &self.source.address.to_string(), own, coarse)
    }

    /// Receives once. Gives the datagrams taken; 0 only if the socket was empty, and not if all were strangers.
    pub fn receive(&mut self, lender: &mut Lender<'_>) -> io::Result<usize> {
        let direct = self.source.sender.is_none() && !self.splits();
        let (datagrams, messages) = match (&mut self.streams[..], &mut self.pool) {
            ([Stream::Placed(placed)], Some(pool)) if direct => {
                placed.receive(&mut self.receiver, self.method, &mut lender.lend(pool))?
            }
            _ => {
                let received = lender.scratch.receive(&mut self.receiver, self.source.sender)?;
                self.sort_out(lender);
                received
            }
        };
        self.take_back(lender);
        self.count_excluded(lender);
        if messages > 0 {
            self.gauge.datagrams.fetch_add(datagrams as u64, Ordering::Relaxed);
            self.gauge.messages.fetch_add(messages as u64, Ordering::Relaxed);
            self.judge_merging(datagrams as u64, messages as u64);
        }
        Ok(datagrams.max(messages))
    }

    fn splits(&self) -> bool {
        self.source.threads == Threads::Split
    }

    /// One message at a time is worth it only while messages carry several datagrams.
    fn judge_merging(&mut self, datagrams: u64, messages: u64) {
        self.trial = (self.trial.0 + datagrams, self.trial.1 + messages);
        let alone = self.trial.1 >= ALONE_TRIAL && self.trial.0 < 2 * self.trial.1;
        if self.trial.0 < MERGE_TRIAL && !alone {
            return;
        }
        let merged = self.trial.0 >= 2 * self.trial.1;
        self.trial = (0, 0);
        self.method = match self.source.gro {
            Gro::Off => Method::Batch,
            Gro::On => Method::Merged,
            Gro::Auto if merged => Method::Merged,
            Gro::Auto => Method::Batch,
        };
    }

    /// Takes every datagram in the scratch memory to its stream.
    fn sort_out(&mut self, lender: &mut Lender<'_>) {
        let [early, kept] = lender.scratch.take();
        for datagram in early.iter().chain(kept.iter()) {
            self.sort(datagram, lender);
        }
        lender.scratch.give_back([early, kept]);
    }

    fn sort(&mut self, datagram: &[u8], lender: &mut Lender<'_>) {
        if self.streams.is_empty() {
            self.learning.hold(datagram);
            if self.learning.is_time() {
                self.decide(Then::More, lender);
            }
            return;
        }
        let strip = stripped_bytes(&self.source) as usize;
        let (head, frame) = datagram.split_at(strip.min(datagram.len()));
        let several = self.streams.len() > 1 || self.splits();
        let owner = self
            .streams
            .iter()
            .position(|stream| !several || stream.owns(head, frame, datagram.len()));
        match owner {
            Some(owner) => self.give(owner, datagram, lender),
            None => self.take_unowned(datagram, lender),
        }
    }

    /// Gives a datagram to a stream.
    fn give(&mut self, stream: usize, datagram: &[u8], lender: &mut Lender<'_>) {
        let Some(pool) = &mut self.pool else { return };
        self.streams[stream].ingest(datagram, &mut lender.lend(pool));
    }

    /// Takes what streams were given and do not own.
    fn take_back(&mut self, lender: &mut Lender<'_>) {
        for from in 0..self.streams.len() {
            for datagram in self.streams[from].take_handed_back() {
                let strip = stripped_bytes(&self.source) as usize;
                let (head, frame) = datagram.split_at(strip.min(datagram.len()));
                let others = self.streams.iter().enumerate().filter(|(number, _)| *number != from);
                let owner = others
                    .filter(|(_, stream)| stream.owns(head, frame, datagram.len()))
                    .map(|(number, _)| number)
                    .next();
                match owner {
                    Some(owner) => self.give(owner, &datagram, lender),
                    None => self.take_unowned(&datagram, lender),
                }
            }
        }
    }

    /// Takes a datagram that no stream owns: a frame of a thread that begins late, or no frame at all.
    fn take_unowned(&mut self, datagram: &[u8], lender: &mut Lender<'_>) {
        let strip = stripped_bytes(&self.source) as usize;
        let key = Key::of(datagram, strip).filter(|_| tells_threads(&self.source));
        let Some((key, header)) = key else {
            // Whose it was is uncertain, so the first stream's account tells of it.
            match self.streams.is_empty() {
                true => self.early.take_foreign(datagram.len()),
                false => self.give(0, datagram, lender),
            }
            return;
        };
        match self.unclaimed.take(&self.source, key, !header.invalid(), datagram) {
            Claim::Held { given_up } => self.leave_unrecorded(given_up),
            Claim::Excluded => self.exclude(1),
            Claim::Open(key, frames) => self.open_late(key, &frames, lender),
        }
    }

    /// Opens a stream for a thread that begins late, and gives it its first frames.
    fn open_late(&mut self, key: Key, frames: &[Vec<u8>], lender: &mut Lender<'_>) {
        let first = Learning::of_all(frames);
        let owner = match self.late.insert(key) && !self.alone {
            true => frames.iter().find_map(|frame| self.split_off(frame, &first, lender)),
            false => None,
        };
        if let Some(owner) = owner {
            frames.iter().for_each(|frame| self.give(owner, frame, lender));
            return;
        }
        self.leave_unrecorded(frames.len() as u64);
        if !std::mem::replace(&mut self.warned.1, true) {
            let Key { station, thread, frame_bytes } = key;
            let text = format!(
                "{}: frames of {frame_bytes} bytes of station {station}, thread {thread} arrive and are not \
                 recorded: no further stream can be opened for them here. They are counted as unrecorded",
                self.source.endpoint
            );
            lender.notices.push(Notice::Warning { text });
        }
    }

    /// Counts datagrams of other senders than the one that the user named.
    fn count_excluded(&mut self, lender: &mut Lender<'_>) {
        let excluded = std::mem::take(&mut lender.scratch.excluded);
        self.exclude(excluded);
    }

    fn exclude(&mut self, datagrams: u64) {
        match self.streams.first_mut() {
            Some(first) => first.newest().excluded += datagrams,
            None => self.early.excluded += datagrams,
        }
    }

    fn leave_unrecorded(&mut self, frames: u64) {
        match self.streams.first_mut() {
            Some(first) => first.newest().unrecorded += frames,
            None => self.early.unrecorded += frames,
        }
    }

    /// Tells of datagrams that are no frames while there is no stream whose counters could.
    fn tell_of_foreign(&mut self, lender: &mut Lender<'_>) {
        let Early { foreign, foreign_bytes, excluded, .. } = self.early;
        if excluded >= FOREIGN_TOLD && self.streams.is_empty() && foreign == 0 {
            self.tell_of_excluded(lender);
        }
        if foreign == 0 || !self.streams.is_empty() {
            return;
        }
        self.early.gauge.foreign.store(foreign, Ordering::Relaxed);
        if let Some(opening) = self.openings.back()
            && self.early.told != Some(opening.uuid)
        {
            self.early.told = Some(opening.uuid);
            let (scan, gauge) = (opening.uuid, self.early.gauge.clone());
            let source = self.source.endpoint.to_string();
            lender.notices.push(Notice::Unrecognised { scan, source, gauge });
        }
        if foreign >= FOREIGN_TOLD && !std::mem::replace(&mut self.warned.0, true) {
            let (what, hint) = match self.source.format {
                SourceFormat::Vdif => ("a VDIF frame", self.vdif_hint()),
                SourceFormat::Raw => {
                    ("a frame as described", "Check frame= and strip= of this source".into())
                }
            };
            let text = format!(
                "{}: datagrams of {foreign_bytes} bytes arrive, and none is {what}. Nothing is being recorded from \
                 this source. {hint}",
                self.source.endpoint
            );
            lender.notices.push(Notice::Warning { text });
        }
    }

    fn vdif_hint(&self) -> String {
        match self.early.holds {
            None => "If this is not VDIF, use ?format=raw".into(),
            Some(Holds::BehindNumber) => {
                "A VDIF frame lies behind their first 8 bytes: use ?format=vtp, or ?strip=8".into()
            }
            Some(Holds::Several { frames, frame_bytes }) => format!(
                "They hold {frames} VDIF frames of {frame_bytes} bytes each: let the sender put one frame in each \
                 datagram, or use ?format=raw to record the datagrams as they are"
            ),
        }
    }

    /// Tells, once, that the user's own filter leaves out all that comes.
    fn tell_of_excluded(&mut self, lender: &mut Lender<'_>) {
        if !std::mem::replace(&mut self.warned.2, true) {
            let text = format!(
                "{}: what arrives is left out, as threads=, source= or frame= of this endpoint says. Nothing is being \
                 recorded from it",
                self.source.endpoint
            );
            lender.notices.push(Notice::Warning { text });
        }
    }

    /// Looks at what has come, if it is time: for ports on which little comes.
    pub fn look(&mut self, lender: &mut Lender<'_>) {
        if self.streams.is_empty() && self.learning.is_time() {
            self.decide(Then::More, lender);
        }
        self.cross_borders(false, lender);
        self.take_back(lender);
        self.tell_of_foreign(lender);
        if self.cut_at.is_some_and(|at| Instant::now() >= at) {
            self.cut_at = None;
            if let Some(pool) = &mut self.pool {
                let mut lent = lender.lend(pool);
                self.streams.iter_mut().for_each(|stream| stream.cut_now(&mut lent));
            }
        }
        if let Some(pool) = &mut self.pool {
            let mut lent = lender.lend(pool);
            self.streams.iter_mut().for_each(|stream| stream.keep_tail(&mut lent));
            self.streams.iter().for_each(|stream| stream.tell(pool));
        }
        let complaints = self.streams.iter_mut().filter_map(Stream::complaint);
        lender.notices.extend(complaints.map(|text| Notice::Warning { text }));
        self.describe(lender);
        self.take_complete(lender);
    }

    /// Takes frames held at borders between seconds that have waited long enough, or all of them.
    fn cross_borders(&mut self, at_once: bool, lender: &mut Lender<'_>) {
        if let Some(pool) = &mut self.pool {
            let mut lent = lender.lend(pool);
            self.streams.iter_mut().for_each(|stream| stream.cross_border(at_once, &mut lent));
        }
    }

    /// Tells what has been learnt of the frames of its streams since: the manifest has it at once, for a
    /// recorder may die before it seals.
    fn describe(&mut self, lender: &mut Lender<'_>) {
        for (stream, told) in self.streams.iter_mut().zip(&mut self.told) {
            let format = stream.format();
            if format == *told {
                continue;
            }
            told.clone_from(&format);
            let number = stream.shape().number;
            let scans = self.openings.iter().map(|opening| opening.uuid);
            for scan in scans.filter(|scan| stream.part_mut(*scan).is_some()) {
                let format = format.clone();
                lender.notices.push(Notice::Described { scan, number, format });
            }
        }
    }

    /// Makes the streams that the first datagrams speak of, if they agree.
    fn decide(&mut self, then: Then, lender: &mut Lender<'_>) {
        let Some(mut facts) = self.learning.facts(&self.source, then) else {
            let sifted = self.learning.sift(&self.source);
            self.early.take(sifted);
            return;
        };
        let strip = stripped_bytes(&self.source);
        let rate = self.learning.rate(&self.source, &facts);
        let pool_bytes = self.region.bytes();
        let lay = |frame_bytes| {
            let layout = geometry(&self.source, frame_bytes, pool_bytes, self.chunk_bytes, rate)
                .map_err(|error| error.to_string())?;
            match few_blocks(layout.block_bytes, pool_bytes, LEAST_BLOCKS) {
                Some(few) => Err(few.to_string()),
                None => Ok(layout),
            }
        };
        let mut layout = lay(facts.frame_bytes);
        let uncounted = self.source.format == SourceFormat::Raw && self.source.sequence.is_none();
        if layout.is_err() && uncounted {
            // Frames of so odd a length are recorded like those of varying length.
            facts.frame_bytes = 0;
            layout = lay(0);
        }
        let cut = match layout {
            Ok(cut) => cut,
            Err(error) => {
                if self.refused.is_none() {
                    let text = format!("{}: {error}", self.source.endpoint);
                    self.refused = Some(text.clone());
                    lender.notices.push(Notice::Warning { text });
                }
                self.early.foreign += self.learning.give_up();
                return;
            }
        };
        let slack = if facts.frame_bytes == 0 { 1 << 16 } else { 0 };
        self.pool = Some(Pool::new(self.region.clone(), cut.block_bytes as usize, slack));
        self.geometry = Some(cut);
        let shape = Shape {
            number: self.number,
            name: self.source.name.clone(),
            source: self.source.endpoint.to_string(),
            stripped_bytes: strip,
            geometry: cut,
            fill: self.source.fill,
        };
        let opening = self.openings.back().expect("a scan was begun").clone();
        let decision = self.learning.decide(&self.source, &facts);
        if self.source.packet_number && facts.packet_number.is_none() {
            let text = format!(
                "{}: the 8 bytes before its frames hold no packet number that counts them. The frames are recorded, \
                 and are counted by their time alone",
                self.source.endpoint
            );
            lender.notices.push(Notice::Warning { text });
        }
        match decision {
            Decision::Placed(count, first) => {
                let placed = Placed::new(shape, count, first, opening);
                self.open_stream(Stream::Placed(Box::new(placed)), lender);
            }
            Decision::Arrived(flows, pattern) => {
                let shape = Shape { fill: Fill::Omit, ..shape };
                let mut arrived = Arrived::new(shape, flows, pattern, opening);
                if let Threads::Listed(list) = &self.source.threads {
                    arrived.keep_to(facts.flows[0].0, list.clone());
                }
                arrived.expect(&self.learning);
                self.open_stream(Stream::Arrived(Box::new(arrived)), lender);
            }
            Decision::Split => {}
        }
        self.facts = Some(facts);
        let first = std::mem::take(&mut self.learning);
        if self.splits() {
            self.split_first(&first, lender);
        }
        for datagram in first.datagrams() {
            self.sort(datagram, lender);
        }
    }

    /// Opens the streams of all threads among the first datagrams.
    fn split_first(&mut self, first: &Learning, lender: &mut Lender<'_>) {
        let strip = stripped_bytes(&self.source) as usize;
        for datagram in first.datagrams() {
            let (head, frame) = datagram.split_at(strip.min(datagram.len()));
            let bytes = datagram.len();
            let owned = self.streams.iter().any(|stream| stream.owns(head, frame, bytes));
            if !owned {
                self.split_off(datagram, first, lender);
            }
        }
    }

    /// Opens a stream for a thread that was not heard of before, from the earliest of the first datagrams on.
    fn split_off(
        &mut self,
        datagram: &[u8],
        first: &Learning,
        lender: &mut Lender<'_>,
    ) -> Option<usize> {
        if self.streams.len() >= MOST_STREAMS {
            return None;
        }
        let strip = stripped_bytes(&self.source);
        let (key, header) = Key::of(datagram, strip as usize)?;
        if header.invalid() {
            return None;
        }
        let bytes = key.frame_bytes as usize;
        let rate = self.source.frames_per_second;
        let packet_number = self.facts.as_ref()?.packet_number;
        let mut shape = Shape {
            number: 0,
            name: self.name_of(key)?,
            source: self.source.endpoint.to_string(),
            stripped_bytes: strip,
            geometry: self.geometry_of(key.frame_bytes)?,
            fill: self.source.fill,
        };
        let opening = self.openings.back()?.clone();
        let stream = if self.source.fill == Fill::Omit {
            let flows = Flows::Vdif { frames_per_second: rate, packet_number };
            let pattern = Count::by_arrival(strip as usize, bytes);
            shape.number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let mut arrived = Arrived::new(shape, flows, pattern, opening);
            arrived.keep_to(header.station(), vec![header.thread()]);
            arrived.expect(first);
            Stream::Arrived(Box::new(arrived))
        } else {
            let count = Count::by_time(header.station(), vec![header.thread()], bytes, rate);
            let mut count = count.behind(strip as usize).beside(packet_number);
            let first = first.earliest(&mut count, strip as usize)?;
            shape.number = self.next_number.fetch_add(1, Ordering::Relaxed);
            Stream::Placed(Box::new(Placed::new(shape, count, first, opening)))
        };
        self.open_stream(stream, lender);
        Some(self.streams.len() - 1)
    }

    /// A name for the stream of a thread. Two stations may have threads of the same number, and one thread frames of
    /// two lengths.
    fn name_of(&self, key: Key) -> Option<Name> {
        let Key { station, thread, frame_bytes } = key;
        let source = &self.source.name;
        let stranger = !self.splits()
            && self
                .facts
                .as_ref()
                .is_some_and(|facts| facts.flows.iter().all(|it| it.0 != station));
        let names = [
            (!stranger).then(|| format!("{source}t{thread}")),
            Some(format!("{source}s{station}t{thread}")),
            Some(format!("{source}s{station}t{thread}b{frame_bytes}")),
        ];
        let taken =
            |name: &String| self.streams.iter().any(|it| it.shape().name.as_str() == name.as_str());
        names.into_iter().flatten().find(|name| !taken(name))?.parse().ok()
    }

    /// How frames of so many bytes are cut into blocks of the pool that there is.
    fn geometry_of(&self, frame_bytes: u32) -> Option<Geometry> {
        let geometry = self.geometry.filter(|it| it.frame_bytes == frame_bytes);
        let block = u64::from(self.geometry?.block_bytes);
        let smaller = || {
            let sizes = (0..8).map(|halved| block >> halved);
            let mut cut = sizes
                .filter_map(|size| Geometry::of_frames(frame_bytes, size, self.chunk_bytes).ok());
            cut.find(|it| u64::from(it.block_bytes) <= block)
        };
        geometry.or_else(smaller)
    }

    fn open_stream(&mut self, mut stream: Stream, lender: &mut Lender<'_>) {
        let opening = self.openings.back().expect("a scan was begun").clone();
        // The scans before this one passed without the stream.
        while self.openings.len() > 1 {
            self.openings.pop_front();
        }
        let part = stream.part_mut(opening.uuid).expect("just begun");
        std::mem::take(&mut self.early).tell(part);
        let (shape, format, gauge) =
            (stream.shape().clone(), stream.format(), stream.gauge().clone());
        self.told.push(format.clone());
        lender.notices.push(Notice::Opened { scan: opening.uuid, shape, format, gauge });
        self.streams.push(stream);
    }

    /// Whatever waits for time to pass has waited long enough.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.learning.hurry();
        self.cut_at = self.cut_at.map(|_| Instant::now());
    }

    /// The socket does not say what it dropped, as far as the newest scan goes.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.drops.blind();
    }

    /// How many scans' counters are remembered.
    #[cfg(test)]
    pub(super) fn drops_held(&self) -> usize {
        self.drops.held()
    }

    /// The blocks, for tests that take some away.
    #[cfg(test)]
    pub(super) fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// Takes an answer of a writer, if it is for a stream of this port.
    pub fn answer(&mut self, returned: Returned, lender: &mut Lender<'_>) -> Option<Returned> {
        let (track, bytes) = match &returned {
            Returned::Written { track, bytes, .. } => (track.clone(), *bytes),
            Returned::Refused(filled) => (filled.track.clone(), filled.bytes),
        };
        let Some(part) = self.part_mut(track.number, track.scan) else { return Some(returned) };
        let mut freed = Vec::new();
        let lost = match returned {
            Returned::Written { block, .. } => {
                freed.push(block);
                lender.dealer.written(&mut part.course, bytes)
            }
            Returned::Refused(filled) => lender.dealer.refused(&mut part.course, filled),
        };
        freed.extend(lost.into_iter().map(|filled| part.lose(filled)));
        let pool = self.pool.as_mut().expect("a stream has a pool");
        freed.into_iter().for_each(|block| pool.put(block));
        None
    }

    fn part_mut(&mut self, number: u16, scan: Uuid) -> Option<&mut Part> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.shape().number == number)?.part_mut(scan)
    }

    /// Closes the parts of which every block has come to rest.
    fn take_complete(&mut self, lender: &mut Lender<'_>) {
        for place in 0..self.streams.len() {
            while let Some((part, counted_by)) = self.streams[place].take_complete(lender.now) {
                let stream = &self.streams[place];
                let (format, number) = (stream.format(), stream.shape().number);
                let witnesses = self.witness(part.opening.uuid);
                close(part, counted_by, witnesses, format, number, lender);
            }
        }
        self.forget_drops();
    }

    /// Ends the last scan.
    pub fn end(&mut self, lender: &mut Lender<'_>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let said = self.read_drops(lender);
        self.drops.end(&said);
        if self.streams.is_empty() {
            self.decide(Then::Nothing, lender);
        }
        // What waits at a border between seconds comes first: it may hold frames of others.
        self.cross_borders(true, lender);
        self.take_back(lender);
        let left = self.unclaimed.give_up();
        self.leave_unrecorded(left);
        if let Some(pool) = &mut self.pool {
            let mut lent = lender.lend(pool);
            self.streams.iter_mut().for_each(|stream| stream.end(&mut lent));
        }
        if self.streams.is_empty()
            && let Some(opening) = self.openings.pop_back()
        {
            self.early.foreign += self.learning.give_up();
            self.tell_silent(&opening, lender);
            let why = self.refused.take();
            lender.notices.extend(why.map(|why| Notice::Broken { why }));
        }
    }

    fn tell_silent(&mut self, opening: &Opening, lender: &mut Lender<'_>) {
        let Early { foreign, excluded, unrecorded, .. } = std::mem::take(&mut self.early);
        let mut account = Box::new(Account::new(self.source.counted_by()));
        (account.foreign, account.excluded, account.unrecorded) = (foreign, excluded, unrecorded);
        (account.witnesses, account.unread) = self.witness(opening.uuid);
        let number = (!self.splits()).then_some(self.number);
        let (scan, source) = (opening.uuid, self.source.endpoint.to_string());
        lender.notices.push(Notice::Silent { scan, number, source, account });
    }

    /// Whether every part of every stream has been closed.
    pub fn is_done(&self) -> bool {
        self.ended && self.streams.iter().all(Stream::is_done)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Closes a part: the members are told, and the supervisor gets the account.
fn close(
    mut part: Part,
    counted_by: CountedBy,
    (witnesses, unread): (Vec<Witness>, Vec<Unread>),
    format: Format,
    number: u16,
    lender: &mut Lender<'_>,
) {
    let gaps = std::mem::take(&mut part.pending);
    lender.dealer.finish(&part.course, gaps);
    let (blocks, bytes) = part.course.written();
    let scan = part.opening.uuid;
    let mut account = Box::new(part.account(counted_by));
    (account.witnesses, account.unread) = (witnesses, unread);
    lender.notices.push(Notice::Ended { scan, number, format, blocks, bytes, account });
}

/// What a capture thread has for all of its ports.
pub struct Lender<'a> {
    /// The ways to the members.
    pub dealer: &'a mut super::dealer::Dealer,
    /// Copies of datagrams.
    pub scratch: &'a mut super::scratch::Scratch,
    /// What the supervisor will be told.
    pub notices: &'a mut Vec<Notice>,
    /// The time of this round.
    pub now: fullbore_core::time::Tai,
}

impl Lender<'_> {
    fn lend<'b>(&'b mut self, pool: &'b mut Pool) -> Lent<'b> {
        Lent { pool, dealer: self.dealer, scratch: self.scratch, now: self.now }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use fullbore_core::time::Tai;

    use super::*;
    use crate::ring::{Gauge, Wake};
    use crate::source::dealer::{Dealer, Lane};
    use crate::source::scratch::Scratch;

    #[test]
    fn a_batch_of_strangers_is_no_empty_socket() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = format!("udp://{free}?format=raw&source=127.0.0.2");
        let source = UdpSource::parse(&endpoint).unwrap().remove(0);
        let numbers = Arc::new(AtomicU16::new(1));
        let mut port = Port::open(source, 0, numbers, 1 << 20, 1 << 20, 1 << 20).unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..5 {
            stranger.send_to(&[1; 100], free).unwrap();
        }
        let (commands, _writer) = rtrb::RingBuffer::new(1);
        let (_back, returned) = rtrb::RingBuffer::new(1);
        let (gauge, wake) = (Arc::new(Gauge::default()), Arc::new(Wake::new().unwrap()));
        let mut dealer = Dealer::new(vec![Lane::new(commands, returned, gauge, wake, 1)]);
        let (mut scratch, mut notices) = (Scratch::new(), Vec::new());
        let (dealer, scratch, notices) = (&mut dealer, &mut scratch, &mut notices);
        let mut lender = Lender { dealer, scratch, notices, now: Tai(0) };
        assert!(port.receive(&mut lender).unwrap() > 0, "what waits behind them would not be read");
        while port.receive(&mut lender).unwrap() > 0 {}
    }
}
