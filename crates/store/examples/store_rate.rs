//! Measures the rate and the CPU time of the store: writes blocks of a pattern to one or more members.
//!
//! `store_rate [--gigabytes N] [--streams N] [--chunk-megabytes N] [--depth-megabytes N] [--pool-blocks N]
//! [--round-megabytes N] [--round-milliseconds N] [--buffered] DIRECTORY…`
//!
//! Each run prints one line: the rate from the first block to the last file closed, including checksums, index and
//! rounds of syncs; and the CPU time of the whole process, including the kernel threads of its rings. The program
//! removes the files that it wrote.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fullbore_core::layout::Geometry;
use fullbore_linux::ring::{
    FullBlock, Notifier, Pool, ReplyReceiver, StreamRef, WriterCommand, WriterEvent, WriterMetrics,
    WriterReply, reply_queue,
};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::{self as store, CaptureQueue, Member, Settings};
use fullbore_time::Tai;
use rustix::time::{ClockId, clock_gettime};

/// The bytes of a VDIF frame as used in the field.
const FRAME_BYTES: u32 = 8032;

struct Arguments {
    gigabytes: u64,
    streams: u16,
    chunk_bytes: u64,
    depth_bytes: u64,
    buffered: bool,
    pool_blocks: usize,
    round_bytes: u64,
    round_interval: Duration,
    directories: Vec<PathBuf>,
}

/// The capture side's view of one member.
struct Link {
    commands: rtrb::Producer<WriterCommand>,
    returned: ReplyReceiver,
    wake: Arc<Notifier>,
    metrics: Arc<WriterMetrics>,
    writer: WriterThread,
    root: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = parse()?;
    let (sender, reports) = mpsc::channel();
    let mut links = Vec::new();
    for (number, directory) in arguments.directories.iter().enumerate() {
        links.push(link(number, directory, &arguments, sender.clone())?);
    }
    drop(sender);
    let frame = Geometry::of_frames(FRAME_BYTES, 4 << 20, arguments.chunk_bytes)?;
    let scan = uuid::Uuid::now_v7();
    let stream_ref = |number| {
        let directory = format!("rate_{}_ds{number}", scan.simple());
        Arc::new(StreamRef { scan, number, directory, geometry: frame })
    };
    let stream_refs: Vec<Arc<StreamRef>> = (0..arguments.streams).map(stream_ref).collect();
    let mut pool = pattern_pool(arguments.pool_blocks, frame.block_bytes as usize)?;

    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let bytes = feed(&arguments, &stream_refs, &mut links, &mut pool)?;
    for link in &mut links {
        for stream_ref in &stream_refs {
            let finish = WriterCommand::Finish { stream_ref: stream_ref.clone(), gaps: vec![] };
            link.commands.push(finish).ok().context("no room for the finish")?;
        }
        link.wake.wake();
    }
    let durable = await_finish(&reports, stream_refs.len() * links.len())?;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let gigabytes = bytes as f64 / 1e9;
    let longest = |of: fn(&WriterMetrics) -> u64| {
        links.iter().map(|link| of(&link.metrics)).max().unwrap_or(0) as f64 / 1e6
    };
    println!(
        "{:.2} GB in {seconds:.3} s: {:.2} GB/s, {:.4} CPU s/GB, longest write {:.1} ms, longest round {:.1} ms",
        gigabytes,
        gigabytes / seconds,
        cpu / gigabytes,
        longest(|metrics| metrics.longest_write_ns.load(Relaxed)),
        longest(|metrics| metrics.longest_sync_ns.load(Relaxed)),
    );
    anyhow::ensure!(durable == bytes, "{durable} of {bytes} bytes were reported durable");
    finish(links, &stream_refs)
}

fn parse() -> anyhow::Result<Arguments> {
    let mut arguments = Arguments {
        gigabytes: 4,
        streams: 1,
        chunk_bytes: 256_000_000,
        depth_bytes: 32 << 20,
        buffered: false,
        pool_blocks: 64,
        round_bytes: 256 << 20,
        round_interval: Duration::from_millis(250),
        directories: vec![],
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number =
            || words.next().context("a number is missing")?.parse().context("not a number");
        match word.as_str() {
            "--gigabytes" => arguments.gigabytes = number()?,
            "--streams" => arguments.streams = u16::try_from(number()?)?.max(1),
            "--chunk-megabytes" => arguments.chunk_bytes = number()? * 1_000_000,
            "--depth-megabytes" => arguments.depth_bytes = number()? << 20,
            "--pool-blocks" => arguments.pool_blocks = usize::try_from(number()?)?.clamp(2, 256),
            "--round-megabytes" => arguments.round_bytes = number()? * 1_000_000,
            "--round-milliseconds" => {
                arguments.round_interval = Duration::from_millis(number()?);
            }
            "--buffered" => arguments.buffered = true,
            flag if flag.starts_with('-') => bail!("{flag} is not known"),
            directory => arguments.directories.push(directory.into()),
        }
    }
    anyhow::ensure!(!arguments.directories.is_empty(), "name one directory or more");
    Ok(arguments)
}

fn link(
    number: usize,
    directory: &std::path::Path,
    arguments: &Arguments,
    reports: mpsc::Sender<WriterEvent>,
) -> anyhow::Result<Link> {
    let mut member = Member::open(directory)?;
    if arguments.buffered {
        member = member.through_the_cache();
    }
    for warning in member.warnings() {
        eprintln!("{}: {warning}", member.root().display());
    }
    let (commands, receiver) = rtrb::RingBuffer::new(256);
    let (sender, returned) = reply_queue(256);
    let (wake, metrics) = (Arc::new(Notifier::new()?), Arc::new(WriterMetrics::default()));
    let lane = CaptureQueue { commands: receiver, returned: sender };
    let settings = Settings {
        depth_bytes: arguments.depth_bytes,
        round_bytes: arguments.round_bytes,
        round_interval: arguments.round_interval,
        ..Settings::of_member(number)
    };
    let root = member.root().to_owned();
    let writer =
        store::spawn(&member, vec![lane], metrics.clone(), reports, wake.clone(), settings)?;
    Ok(Link { commands, returned, wake, metrics, writer, root })
}

/// Returns a pool of non-zero blocks; 64 blocks are more than most caches hold.
fn pattern_pool(blocks: usize, block_bytes: usize) -> anyhow::Result<Pool> {
    let region = Arc::new(Region::new(blocks * block_bytes)?);
    let mut pool = Pool::new(region, block_bytes, 0);
    let mut blocks: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let mut word = 0x9E37_79B9_7F4A_7C15u64;
    for bytes in blocks.iter_mut().flat_map(|block| block.chunks_exact_mut(8)) {
        word = word.rotate_left(5).wrapping_mul(0x2545_F491_4F6C_DD1D);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    blocks.into_iter().for_each(|block| pool.put(block));
    Ok(pool)
}

/// Sends blocks to the member with the least backlog, a chunk at a time, as fast as free blocks return.
fn feed(
    arguments: &Arguments,
    stream_refs: &[Arc<StreamRef>],
    links: &mut [Link],
    pool: &mut Pool,
) -> anyhow::Result<u64> {
    let geometry = stream_refs[0].geometry;
    let block_bytes = u64::from(geometry.block_bytes);
    let blocks = arguments.gigabytes * 1_000_000_000 / block_bytes;
    let mut dealt: BTreeMap<u16, usize> = BTreeMap::new();
    for number in 0..blocks {
        let stream_ref = &stream_refs[(number % stream_refs.len() as u64) as usize];
        let sequence = number / stream_refs.len() as u64;
        let place = sequence % u64::from(geometry.chunk_blocks);
        if place == 0 {
            let backlog = |link: &Link| link.metrics.backlog_bytes.load(Relaxed);
            let least = links.iter().enumerate().min_by_key(|(_, link)| backlog(link));
            dealt.insert(stream_ref.number, least.map_or(0, |(n, _)| n));
        }
        let block = take(pool, links)?;
        let filled = FullBlock {
            block,
            stream_ref: stream_ref.clone(),
            sequence,
            chunk: (sequence / u64::from(geometry.chunk_blocks)) as u32,
            offset: place * block_bytes,
            bytes: geometry.block_bytes,
            frames: geometry.frames_per_block(),
            present: geometry.frames_per_block(),
            invalid: 0,
            first: (sequence * u64::from(geometry.frames_per_block())) as i64,
            time: None,
            seen: Tai(0),
            gaps: vec![],
            lengths: vec![],
            crc: None,
        };
        let link = &mut links[dealt[&stream_ref.number]];
        link.metrics.backlog_bytes.fetch_add(block_bytes, Relaxed);
        link.commands.push(WriterCommand::Write(filled)).ok().context("no room for a block")?;
        link.wake.wake();
    }
    while pool.free() < pool.blocks() {
        let block = take(pool, links)?;
        pool.put(block);
        std::thread::sleep(Duration::from_micros(200));
        collect(pool, links)?;
    }
    Ok(blocks * block_bytes)
}

fn take(pool: &mut Pool, links: &mut [Link]) -> anyhow::Result<fullbore_linux::ring::Block> {
    loop {
        collect(pool, links)?;
        if let Some(block) = pool.take() {
            return Ok(block);
        }
        // A capture thread waits for packets during this time.
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn collect(pool: &mut Pool, links: &mut [Link]) -> anyhow::Result<()> {
    for link in links {
        while let Ok(returned) = link.returned.pop() {
            match returned {
                WriterReply::Written { block, .. } => pool.put(block),
                WriterReply::Refused(_) => bail!("{} refuses", link.root.display()),
            }
        }
    }
    Ok(())
}

fn await_finish(reports: &mpsc::Receiver<WriterEvent>, mut finishes: usize) -> anyhow::Result<u64> {
    let mut durable = 0;
    while finishes > 0 {
        match reports.recv().context("a writer died")? {
            WriterEvent::Durable { bytes, .. } => durable += bytes,
            WriterEvent::Finished { .. } => finishes -= 1,
            WriterEvent::Full { .. } | WriterEvent::Back { .. } | WriterEvent::Alternate { .. } => {
            }
            WriterEvent::Failed { why, .. } => bail!("{why}"),
            WriterEvent::Gone { .. } => bail!("a writer ended early"),
        }
    }
    Ok(durable)
}

fn finish(links: Vec<Link>, stream_refs: &[Arc<StreamRef>]) -> anyhow::Result<()> {
    for link in links {
        drop((link.commands, link.returned));
        link.writer.join().ok().context("a writer panicked")?;
        for stream_ref in stream_refs {
            let directory = link.root.join(&stream_ref.directory);
            if directory.exists() {
                std::fs::remove_dir_all(&directory)?;
            }
        }
    }
    Ok(())
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
