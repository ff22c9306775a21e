//! Tests the writer of a member on real file systems: the files it leaves, and its behaviour when the disk is full,
//! turns read-only or vanishes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Shell, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::{Geometry, chunk_file};
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use fullbore_linux::ring::{
    Block, FullBlock, Notifier, Pool, ReplyReceiver, StreamRef, WriterCommand, WriterEvent,
    WriterMetrics, WriterReply, reply_queue,
};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::inventory::PART_SUFFIX;
use fullbore_store::{self as store, CaptureQueue, Member, Settings};
use uuid::Uuid;

const BLOCK: u32 = 1 << 20;

/// A capture thread and a supervisor in one.
struct Recorder {
    commands: rtrb::Producer<WriterCommand>,
    returned: ReplyReceiver,
    reports: mpsc::Receiver<WriterEvent>,
    wake: Arc<Notifier>,
    metrics: Arc<WriterMetrics>,
    writer: WriterThread,
    pool: Pool,
    written: usize,
    refused: Vec<FullBlock>,
    durable: Vec<(u16, u64)>,
    failures: Vec<String>,
    finished: Vec<u16>,
    returns: usize,
}

impl Recorder {
    fn new(member: &Member) -> Self {
        let (commands, receiver) = rtrb::RingBuffer::new(64);
        let (sender, returned) = reply_queue(64);
        let (report, reports) = mpsc::channel();
        let (wake, metrics) =
            (Arc::new(Notifier::new().unwrap()), Arc::new(WriterMetrics::default()));
        let lane = CaptureQueue { commands: receiver, returned: sender };
        let settings = Settings::of_member(0);
        let writer =
            store::spawn(member, vec![lane], metrics.clone(), report, wake.clone(), settings)
                .unwrap();
        let pool = Pool::new(Arc::new(Region::new(32 << 20).unwrap()), BLOCK as usize, 0);
        Self {
            commands,
            returned,
            reports,
            wake,
            metrics,
            writer,
            pool,
            written: 0,
            refused: vec![],
            durable: vec![],
            failures: vec![],
            finished: vec![],
            returns: 0,
        }
    }

    fn take(&mut self) -> Block {
        let begun = Instant::now();
        loop {
            self.collect();
            if let Some(block) = self.pool.take() {
                return block;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no block came back for a minute");
            std::thread::yield_now();
        }
    }

    fn collect(&mut self) {
        while let Ok(returned) = self.returned.pop() {
            match returned {
                WriterReply::Written { block, .. } => {
                    self.written += 1;
                    self.pool.put(block);
                }
                WriterReply::Refused(filled) => self.refused.push(filled),
            }
        }
        while let Ok(report) = self.reports.try_recv() {
            self.note(report);
        }
    }

    fn note(&mut self, report: WriterEvent) {
        match report {
            WriterEvent::Durable { stream_ref, sequences, .. } => {
                self.durable
                    .extend(sequences.iter().map(|&sequence| (stream_ref.number, sequence)));
            }
            WriterEvent::Failed { why, .. } => self.failures.push(why),
            WriterEvent::Finished { stream_ref, .. } => self.finished.push(stream_ref.number),
            WriterEvent::Full { .. } => unreachable!("a member fails when it is full"),
            WriterEvent::Back { .. } => self.returns += 1,
            WriterEvent::Alternate { .. } => panic!("a member has no files with other names"),
            WriterEvent::Gone { member } => panic!("the writer of member {member} ended early"),
        }
    }

    /// Sends block `sequence` of a stream, of `bytes` bytes.
    fn send(&mut self, stream_ref: &Arc<StreamRef>, sequence: u64, bytes: u32) {
        let geometry = stream_ref.geometry;
        let mut block = self.take();
        content(stream_ref.number, sequence, &mut block[..bytes as usize]);
        let place = sequence % u64::from(geometry.chunk_blocks);
        self.metrics.backlog_bytes.fetch_add(bytes.into(), Relaxed);
        let filled = FullBlock {
            block,
            stream_ref: stream_ref.clone(),
            sequence,
            chunk: (sequence / u64::from(geometry.chunk_blocks)) as u32,
            offset: place * u64::from(geometry.block_bytes),
            bytes,
            frames: 2,
            present: 1,
            invalid: 0,
            first: sequence as i64,
            time: None,
            seen: fullbore_linux::clock::Clock::new().now(),
            gaps: vec![Gap { first: sequence as i64, count: 1, cause: Cause::Missing }],
            lengths: vec![],
            crc: None,
        };
        self.commands.push(WriterCommand::Write(filled)).expect("room for every block");
        self.wake.wake();
    }

    /// Finishes the streams, waits until all blocks are returned, and ends the writer.
    fn finish(&mut self, stream_refs: &[Arc<StreamRef>]) {
        for stream_ref in stream_refs {
            let gaps = vec![];
            self.commands
                .push(WriterCommand::Finish { stream_ref: stream_ref.clone(), gaps })
                .unwrap();
            self.wake.wake();
        }
        while self.finished.len() < stream_refs.len() {
            let report = self.reports.recv_timeout(Duration::from_secs(60));
            self.note(report.expect("an answer to every finish"));
        }
        let begun = Instant::now();
        while self.pool.free() + self.refused.len() < self.pool.blocks() {
            self.collect();
            assert!(begun.elapsed() < Duration::from_secs(60), "a block did not come back");
        }
    }

    fn end(self) -> (usize, Vec<FullBlock>, Vec<String>) {
        assert_eq!(self.metrics.backlog_bytes.load(Relaxed), 0);
        drop((self.commands, self.returned));
        self.writer.join().expect("a writer that does not panic");
        (self.written, self.refused, self.failures)
    }
}

fn content(number: u16, sequence: u64, bytes: &mut [u8]) {
    for (place, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = (place as u64 ^ sequence << 24 ^ u64::from(number) << 56).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

fn stream_ref(number: u16, chunk_blocks: u32) -> Arc<StreamRef> {
    let geometry = Geometry { frame_bytes: 0, block_bytes: BLOCK, chunk_blocks };
    let directory = format!("s_a_ds{number}");
    Arc::new(StreamRef { scan: Uuid::from_u128(7), number, directory, geometry })
}

/// Returns the blocks of one stream by its index and its chunk files: sequence → bytes, every CRC checked.
fn read_back(root: &Path, stream_ref: &StreamRef) -> BTreeMap<u64, u32> {
    let directory = root.join(&stream_ref.directory);
    let index = std::fs::read(directory.join(SIDE_DIRECTORY).join(INDEX_FILE)).unwrap();
    let (entries, used) = Codec::of_scan(stream_ref.scan).decode_file(&index);
    assert_eq!(used, index.len(), "the index ends with its last record");
    let mut chunks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut blocks = BTreeMap::new();
    let mut marked = 0;
    for (_, entry) in entries {
        match entry {
            Entry::Block(block) => {
                let name = chunk_file(&stream_ref.directory, block.chunk);
                let read = || std::fs::read(directory.join(name)).unwrap();
                let chunk = chunks.entry(block.chunk).or_insert_with(read);
                let start = block.offset as usize;
                let bytes = &chunk[start..start + block.bytes as usize];
                assert_eq!(crc32c::crc32c(bytes), block.crc, "block {}", block.sequence);
                let mut expected = vec![0; bytes.len()];
                content(stream_ref.number, block.sequence, &mut expected);
                assert!(bytes == expected, "block {} is not what was sent", block.sequence);
                blocks.insert(block.sequence, block.bytes);
            }
            Entry::Mark { blocks, .. } => marked = blocks,
            Entry::Header { .. } | Entry::Gap(_) | Entry::Lengths { .. } | Entry::Found { .. } => {}
            Entry::Stripe(_) | Entry::Rows { .. } => panic!("{entry:?} in an index"),
        }
    }
    assert_eq!(marked, blocks.len() as u64, "the last mark covers every block");
    let bytes: u64 = blocks.values().map(|&bytes| u64::from(bytes)).sum();
    let plain: usize = chunks.values().map(Vec::len).sum();
    assert_eq!(plain as u64, bytes, "chunks hold the blocks and nothing else");
    blocks
}

fn files_beside(root: &Path, stream_ref: &StreamRef) -> Vec<String> {
    let side = root.join(&stream_ref.directory).join(SIDE_DIRECTORY);
    let entries = std::fs::read_dir(side).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns a stream of another scan.
fn track_of(scan: u128, directory: &str) -> Arc<StreamRef> {
    let like = stream_ref(0, 4);
    let directory = directory.to_owned();
    Arc::new(StreamRef {
        scan: Uuid::from_u128(scan),
        number: 0,
        directory,
        geometry: like.geometry,
    })
}

#[test]
fn a_member_that_was_away_takes_data_again_when_it_is_recalled_and_not_before() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (root, aside) = (directory.path().join("member"), directory.path().join("aside"));
    std::fs::create_dir(&root).unwrap();
    let member = Member::open(&root).unwrap();
    let mut recorder = Recorder::new(&member);
    // The file system is unmounted, and the mount point stays.
    std::fs::rename(&root, &aside).unwrap();
    std::fs::create_dir(&root).unwrap();
    let away = track_of(1, "s_away");
    recorder.send(&away, 0, BLOCK);
    recorder.finish(std::slice::from_ref(&away));
    assert_eq!((recorder.refused.len(), recorder.failures.len()), (1, 1));
    assert!(recorder.failures[0].contains("not mounted"), "{:?}", recorder.failures);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing is written below");
    // The file system is mounted again; that alone changes nothing.
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&aside, &root).unwrap();
    let ignored = track_of(2, "s_ignored");
    recorder.send(&ignored, 0, BLOCK);
    recorder.finish(std::slice::from_ref(&ignored));
    assert_eq!((recorder.refused.len(), recorder.returns), (2, 0));
    recorder.metrics.recalled.store(true, Relaxed);
    recorder.wake.wake();
    while recorder.returns == 0 {
        let report = recorder.reports.recv_timeout(Duration::from_secs(60));
        recorder.note(report.expect("a word that it is back"));
    }
    assert!(!recorder.metrics.refusing.load(Relaxed));
    let back = track_of(3, "s_back");
    (0..6).for_each(|sequence| recorder.send(&back, sequence, BLOCK));
    recorder.finish(std::slice::from_ref(&back));
    let (written, _, failures) = recorder.end();
    assert_eq!((written, failures.len()), (6, 1));
    assert_eq!(read_back(&root, &back).len(), 6);
}

fn streams_come_back_whole(member: &Member) {
    let stream_refs = [stream_ref(0, 4), stream_ref(1, 1), stream_ref(2, 100)];
    let mut recorder = Recorder::new(member);
    for sequence in 0..30 {
        for stream_ref in &stream_refs {
            recorder.send(stream_ref, sequence, BLOCK);
        }
    }
    for stream_ref in &stream_refs {
        recorder.send(stream_ref, 30, 12_345);
    }
    recorder.finish(&stream_refs);
    assert_eq!(recorder.durable.len(), 93);
    let (written, refused, failures) = recorder.end();
    assert_eq!((written, refused.len(), failures), (93, 0, vec![]));
    for stream_ref in &stream_refs {
        let blocks = read_back(member.root(), stream_ref);
        assert_eq!(blocks.len(), 31);
        assert_eq!(blocks[&30], 12_345);
        assert_eq!(files_beside(member.root(), stream_ref), [INDEX_FILE], "nothing is left over");
    }
}

#[test]
fn streams_come_back_whole_from_the_file_system_of_the_build() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    streams_come_back_whole(&Member::open(directory.path()).unwrap());
}

#[test]
fn streams_come_back_whole_through_the_page_cache() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let member = Member::open(directory.path()).unwrap().through_the_cache();
    assert!(member.buffered());
    streams_come_back_whole(&member);
}

#[test]
fn streams_come_back_whole_from_tmpfs() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("skipped: there is no /dev/shm to write to");
    };
    let member = Member::open(directory.path()).unwrap();
    assert_eq!(member.file_system(), "tmpfs");
    assert!(!member.warnings().is_empty(), "tmpfs is worth a warning");
    streams_come_back_whole(&member);
}

#[test]
fn a_chunk_that_exists_is_never_written_over() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let member = Member::open(directory.path()).unwrap();
    let stream_ref = stream_ref(0, 1);
    let inner = member.root().join(&stream_ref.directory);
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join(chunk_file(&stream_ref.directory, 0)), "older").unwrap();
    let mut recorder = Recorder::new(&member);
    recorder.send(&stream_ref, 0, BLOCK);
    recorder.finish(std::slice::from_ref(&stream_ref));
    let (written, _, failures) = recorder.end();
    assert_eq!(written, 1, "it is written, and stays under .fullbore/");
    assert!(failures[0].contains("File exists"), "{failures:?}");
    let older = std::fs::read(inner.join(chunk_file(&stream_ref.directory, 0))).unwrap();
    assert_eq!(older, b"older");
    let part = format!("{}{PART_SUFFIX}", chunk_file(&stream_ref.directory, 0));
    assert!(files_beside(member.root(), &stream_ref).contains(&part));
}

#[test]
fn a_directory_that_vanishes_ends_in_refused_blocks() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let member = Member::open(directory.path()).unwrap();
    directory.close().unwrap();
    let stream_ref = stream_ref(0, 4);
    let mut recorder = Recorder::new(&member);
    for sequence in 0..3 {
        recorder.send(&stream_ref, sequence, BLOCK);
    }
    recorder.finish(std::slice::from_ref(&stream_ref));
    assert!(recorder.metrics.refusing.load(Relaxed));
    let (written, refused, failures) = recorder.end();
    assert_eq!((written, refused.len(), failures.len()), (0, 3, 1));
    assert!(failures[0].contains("No such file"), "{failures:?}");
}

/// A small ext4 of its own, unmounted when dropped.
struct Loop {
    mount: PathBuf,
    device: String,
    _directory: tempfile::TempDir,
}

impl Loop {
    /// Returns `None`, with the reason printed, if the system does not allow one.
    fn new(megabytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (image, mount) = (directory.path().join("image"), directory.path().join("mount"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let image = image.to_str().unwrap();
        run("mkfs.ext4", &["-q", "-F", "-m", "0", image])?;
        let device = run("losetup", &["--show", "--direct-io=on", "-f", image])?;
        let device = device.trim().to_owned();
        if run("mount", &[&device, mount.to_str().unwrap()]).is_none() {
            run("losetup", &["-d", &device]);
            return None;
        }
        Some(Self { mount, device, _directory: directory })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The kernel holds files of a ring for a moment after it is closed.
        for _ in 0..100 {
            if run("umount", &[self.mount.to_str().unwrap()]).is_some() {
                break;
            }
            std::thread::yield_now();
        }
        run("losetup", &["-d", &self.device]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Shell::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            println!("skipped: {program} {arguments:?}: {}", error.trim());
            None
        }
        Err(error) => {
            println!("skipped: {program}: {error}");
            None
        }
    }
}

#[test]
fn a_full_disk_takes_no_new_chunk_and_keeps_every_block_it_has() {
    let Some(disk) = Loop::new(64) else { return };
    let member = Member::open(&disk.mount).unwrap();
    assert_eq!(member.file_system(), "ext4");
    let stream_ref = stream_ref(0, 8);
    let mut recorder = Recorder::new(&member);
    let mut sent = 0;
    while recorder.refused.is_empty() && sent < 100 {
        recorder.collect();
        if recorder.pool.free() > 0 {
            recorder.send(&stream_ref, sent, BLOCK);
            sent += 1;
        }
    }
    recorder.finish(std::slice::from_ref(&stream_ref));
    assert!(recorder.metrics.refusing.load(Relaxed));
    let durable = recorder.durable.len();
    let (written, refused, failures) = recorder.end();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("the disk is full"), "{failures:?}");
    assert_eq!(written as u64 + refused.len() as u64, sent);
    assert_eq!(written, durable);
    assert!(written >= 32, "half of the disk at least: {written}");
    assert_eq!(read_back(member.root(), &stream_ref).len(), written);
    assert_eq!(files_beside(member.root(), &stream_ref), [INDEX_FILE], "nothing is left over");
}

#[test]
fn nothing_is_called_durable_on_a_file_system_that_turned_read_only() {
    let Some(disk) = Loop::new(64) else { return };
    let member = Member::open(&disk.mount).unwrap();
    let stream_ref = stream_ref(0, 8);
    let mut recorder = Recorder::new(&member);
    for sequence in 0..3 {
        recorder.send(&stream_ref, sequence, BLOCK);
    }
    while recorder.durable.len() < 3 {
        recorder.collect();
        std::thread::yield_now();
    }
    // ext4 does the same to itself after an error of its journal.
    let aborted = run("mount", &["-o", "remount,abort", disk.mount.to_str().unwrap()]).is_some();
    for sequence in 3..6 {
        recorder.send(&stream_ref, sequence, BLOCK);
    }
    recorder.finish(std::slice::from_ref(&stream_ref));
    let durable = recorder.durable.len();
    let (written, refused, failures) = recorder.end();
    assert_eq!(written + refused.len(), 6);
    if aborted {
        assert_eq!(durable, 3, "nothing is durable on an aborted file system");
        assert!(!failures.is_empty());
    }
}

/// The variable with the directory for the child of a crash test.
const CRASH_DIRECTORY: &str = "FULLBORE_CRASH_DIRECTORY";

/// Not a test of its own: records without end, printing what is durable, until it is killed.
#[test]
fn child_of_the_crash_test() {
    let Some(directory) = std::env::var_os(CRASH_DIRECTORY) else { return };
    let member = Member::open(Path::new(&directory)).unwrap();
    let stream_refs = [stream_ref(0, 4), stream_ref(1, 9)];
    let mut recorder = Recorder::new(&member);
    let mut told = 0;
    for sequence in 0.. {
        for stream_ref in &stream_refs {
            recorder.send(stream_ref, sequence, BLOCK);
        }
        recorder.collect();
        for (number, sequence) in &recorder.durable[told..] {
            println!("durable {number} {sequence}");
        }
        told = recorder.durable.len();
    }
}

#[test]
fn what_was_durable_is_found_after_a_sigkill() {
    for lines in [1, 40, 150] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut child = Shell::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_of_the_crash_test", "--nocapture"])
            .env(CRASH_DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut durable: Vec<(u16, u64)> = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            if let ["durable", number, sequence] = words[..] {
                durable.push((number.parse().unwrap(), sequence.parse().unwrap()));
            }
            if durable.len() >= lines {
                // Later output was durable, too, and is left unread.
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(durable.len() >= lines, "the child ended on its own");
        for stream_ref in [stream_ref(0, 4), stream_ref(1, 9)] {
            let sequences = durable.iter().filter(|(number, _)| *number == stream_ref.number);
            found_after_crash(
                directory.path(),
                &stream_ref,
                sequences.map(|(_, sequence)| *sequence),
            );
        }
    }
}

/// Finds blocks as `recover` does: by the index, in the chunk's final or working file.
fn found_after_crash(root: &Path, stream_ref: &StreamRef, sequences: impl Iterator<Item = u64>) {
    let directory = root.join(&stream_ref.directory);
    let side = directory.join(SIDE_DIRECTORY);
    let index = std::fs::read(side.join(INDEX_FILE)).unwrap_or_default();
    let (entries, _) = Codec::of_scan(stream_ref.scan).decode_file(&index);
    let found: BTreeMap<u64, _> = entries
        .into_iter()
        .filter_map(|(_, entry)| match entry {
            Entry::Block(block) => Some((block.sequence, block)),
            _ => None,
        })
        .collect();
    for sequence in sequences {
        let block = found.get(&sequence).unwrap_or_else(|| panic!("no record of {sequence}"));
        let name = chunk_file(&stream_ref.directory, block.chunk);
        let file = std::fs::File::open(directory.join(&name))
            .or_else(|_| std::fs::File::open(side.join(format!("{name}{PART_SUFFIX}"))))
            .unwrap_or_else(|error| panic!("the chunk of {sequence}: {error}"));
        let mut bytes = vec![0; block.bytes as usize];
        file.read_exact_at(&mut bytes, block.offset).unwrap();
        assert_eq!(crc32c::crc32c(&bytes), block.crc, "block {sequence}");
    }
}
