//! The parity task: a background thread that reads complete and durable chunks back, and writes their parity to other
//! members.
//!
//! The task is not on the data path. While a scan is recorded, it waits whenever a member has blocks queued, so parity
//! uses the spare capacity of the members. The rest is made when the scan is sealed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fullbore_core::chunk_map::Renumbering;
use fullbore_core::redundancy::{Followed, Scheme};
use fullbore_linux::ring::WriterMetrics;
use fullbore_store::redundancy::StripeBuilder;
use uuid::Uuid;

/// Time between two checks for complete chunks.
const LOOK: Duration = Duration::from_millis(250);

/// Time between two checks whether the members are idle.
const BREATH: Duration = Duration::from_millis(5);

/// With a larger backlog at a member, parity waits.
const BUSY_BYTES: u64 = 32 << 20;

/// The longest wait for a member that completes no row of parity while the scan is sealed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parity task of one scan while it is recorded.
pub struct ParityTask {
    scan: Uuid,
    scheme: Scheme,
    roots: Vec<PathBuf>,
    shared: Arc<Shared>,
    /// The result of the thread, once it has started.
    result: Option<Receiver<(Followed, Vec<String>)>>,
    /// The reason why the thread is missing, if there should be one.
    failed: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
    over: AtomicBool,
    left: AtomicBool,
    rows: AtomicU64,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u16, (String, Option<Renumbering>)>,
}

impl Shared {
    /// A thread that panicked left the state consistent: every change of it is one statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl ParityTask {
    /// A task for a scan on these roots. It starts with the first chunks.
    pub fn new(scan: Uuid, scheme: Scheme, roots: Vec<PathBuf>) -> Self {
        Self { scan, scheme, roots, shared: Arc::default(), result: None, failed: None }
    }

    /// Notes a stream that has durable blocks. `metrics` show the backlog of the members.
    pub fn note(&mut self, number: u16, directory: &str, metrics: &[Arc<WriterMetrics>]) {
        let mut state = self.shared.lock();
        let _ = state.streams.entry(number).or_insert_with(|| (directory.to_owned(), None));
        drop(state);
        self.start(metrics);
    }

    fn start(&mut self, metrics: &[Arc<WriterMetrics>]) {
        if self.result.is_some() || self.failed.is_some() {
            return;
        }
        let composer = StripeBuilder::new(self.scan, self.scheme, self.roots.clone());
        let (shared, metrics) = (self.shared.clone(), metrics.to_vec());
        let (tell, told) = mpsc::channel();
        let work = move || {
            // The receiver is gone if the scan was left.
            let _ = tell.send(follow(composer, &shared, &metrics));
        };
        match Builder::new().name("parity".into()).spawn(work) {
            Ok(_) => self.result = Some(told),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    /// Makes the missing parity of a sealed scan, and reports the result. `renamed` holds the current numbers of the
    /// streams' chunk files.
    pub fn finish(
        mut self,
        streams: Vec<(u16, String, Option<Renumbering>)>,
    ) -> (Option<Followed>, Vec<String>) {
        let since = Instant::now();
        let mut state = self.shared.lock();
        for (number, directory, renamed) in streams {
            state.streams.insert(number, (directory, renamed));
        }
        drop(state);
        self.start(&[]);
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.news.notify_all();
        let Some(result) = self.result.take() else {
            return (None, vec![format!("redundancy: {}", self.failed.take().unwrap_or_default())]);
        };
        let rows = || self.shared.rows.load(Ordering::Relaxed);
        loop {
            let before = rows();
            match result.recv_timeout(PATIENCE) {
                Ok((followed, told)) => {
                    let after_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                    return (Some(Followed { after_ms, ..followed }), told);
                }
                Err(RecvTimeoutError::Timeout) if rows() > before => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.left.store(true, Ordering::SeqCst);
                    let why = "a member does not respond: `fullbore rebuild` makes the parity that is missing";
                    return (None, vec![why.into()]);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return (None, vec!["the thread that made its redundancy failed".into()]);
                }
            }
        }
    }
}

impl Drop for ParityTask {
    /// A scan that is left or discarded gets no more parity.
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::SeqCst);
        self.shared.news.notify_all();
        // The thread ends before its next row. It may be waiting for a member, and no other thread waits for it.
    }
}

fn follow(
    mut composer: StripeBuilder,
    shared: &Shared,
    metrics: &[Arc<WriterMetrics>],
) -> (Followed, Vec<String>) {
    let leaves = || shared.left.load(Ordering::SeqCst);
    let busy = || metrics.iter().any(|it| it.backlog_bytes.load(Ordering::Relaxed) > BUSY_BYTES);
    loop {
        let over = shared.over.load(Ordering::SeqCst);
        let state = shared.lock();
        for (number, (directory, renamed)) in &state.streams {
            composer.add(*number, directory, BTreeSet::new(), 0, None);
            composer.rename(*number, renamed.as_ref());
        }
        drop(state);
        composer.look(over);
        let all = composer.compose(over, &mut |_| {
            shared.rows.fetch_add(1, Ordering::Relaxed);
            while busy() && !leaves() && !shared.over.load(Ordering::SeqCst) {
                // The members wake no thread when they are idle, so that parity costs them nothing.
                std::thread::sleep(BREATH);
            }
            !leaves()
        });
        if over || !all {
            return composer.end();
        }
        let state = shared.lock();
        if !leaves() && !shared.over.load(Ordering::SeqCst) {
            let waited = shared.news.wait_timeout(state, LOOK);
            drop(waited.unwrap_or_else(|poisoned| poisoned.into_inner()));
        }
        if leaves() {
            return composer.end();
        }
    }
}
