//! The SHA-512 of a file that is being written.
//!
//! A thread reads the file behind the writer, so the writer never waits for it before the end. What it reads was
//! written a moment ago and is in the page cache.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use sha2::{Digest, Sha512};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// The hash of a file so far.
pub struct FileHash {
    progress: Arc<Progress>,
    /// `None` once the thread is joined.
    thread: Option<JoinHandle<io::Result<String>>>,
}

#[derive(Default)]
struct Progress {
    /// Bytes of the file that are written.
    written: AtomicU64,
    /// True if no more bytes come.
    ended: AtomicBool,
}

impl FileHash {
    /// Starts the thread, which reads this file from its start.
    pub fn of(file: File) -> io::Result<Self> {
        let progress = Arc::new(Progress::default());
        let seen = progress.clone();
        let work = move || follow(file, &seen);
        let thread = std::thread::Builder::new().name("sha512".into()).spawn(work)?;
        Ok(Self { progress, thread: Some(thread) })
    }

    /// Says how many bytes of the file are written.
    pub fn wrote(&self, bytes: u64) {
        // A thread that is waked for every frame has no time to hash.
        if bytes - self.progress.written.load(Ordering::Relaxed) >= PIECE as u64 {
            self.tell(bytes, false);
        }
    }

    /// The hash of the file, which has this many bytes, as 128 hexadecimal digits.
    pub fn finish(mut self, bytes: u64) -> io::Result<String> {
        self.tell(bytes, true);
        let thread = self.thread.take().expect("it is joined once");
        thread.join().map_err(|_| io::Error::other("the thread that hashes the file panicked"))?
    }

    fn tell(&self, bytes: u64, ended: bool) {
        self.progress.written.store(bytes, Ordering::Release);
        self.progress.ended.store(ended, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for FileHash {
    /// Ends the thread of a file that is not finished.
    fn drop(&mut self) {
        self.tell(0, true);
    }
}

/// Hashes what is written, until no more comes.
fn follow(mut file: File, progress: &Progress) -> io::Result<String> {
    let (mut hash, mut buffer, mut at) = (Sha512::new(), vec![0; PIECE], 0u64);
    loop {
        // In this order, so that the last bytes are seen with the end.
        let ended = progress.ended.load(Ordering::Acquire);
        let written = progress.written.load(Ordering::Acquire);
        if at < written {
            let some = (written - at).min(PIECE as u64) as usize;
            file.read_exact(&mut buffer[..some])?;
            hash.update(&buffer[..some]);
            at += some as u64;
        } else if ended {
            return Ok(hexadecimal(&hash.finalize()));
        } else {
            std::thread::park();
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
