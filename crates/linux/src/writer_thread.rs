//! The thread of a writer: its affinity, its priority and its end.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::rights::drop_network_rights;
use crate::ring::Notifier;
use crate::thread_config::{ThreadConfig, ThreadStatus};

/// The thread of a writer. It ends when the capture ends of all its queues have been dropped.
pub struct WriterThread {
    thread: JoinHandle<()>,
    notifier: Arc<Notifier>,
    status: ThreadStatus,
    unpinned: Option<io::Error>,
}

impl WriterThread {
    /// A thread that runs with this affinity and priority. `unpinned` is the reason why the kernel has not pinned all
    /// block memory.
    pub fn new(
        thread: JoinHandle<()>,
        notifier: Arc<Notifier>,
        status: ThreadStatus,
        unpinned: Option<io::Error>,
    ) -> Self {
        Self { thread, notifier, status, unpinned }
    }

    /// Starts a writer. The closure `work` runs on the new thread and receives the notifier.
    pub fn spawn(
        name: &str,
        notifier: Arc<Notifier>,
        thread_config: ThreadConfig,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (ready, answer) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // A kernel that refuses leaves the thread as it was.
            let _ = drop_network_rights();
            // The receiver is gone only if the thread that started this one is gone.
            let _ = ready.send(thread_config.apply());
            work();
        })?;
        let status = answer.recv().map_err(|_| io::Error::other("the thread ended at once"))?;
        Ok(Self { thread, notifier, status, unpinned: None })
    }

    /// The affinity and priority of the thread.
    pub fn status(&self) -> &ThreadStatus {
        &self.status
    }

    /// The reason why the kernel has not pinned all block memory for this writer, if it has not.
    pub fn unpinned(&self) -> Option<&io::Error> {
        self.unpinned.as_ref()
    }

    /// Waits for the thread to end.
    pub fn join(self) -> std::thread::Result<()> {
        self.notifier.wake();
        self.thread.join()
    }
}
