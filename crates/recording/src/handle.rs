//! A running recording and the handle of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use fullbore_engine::recorder::{Armed, Event, Progress, RecordError, RecordingConfig, Sealed};
use fullbore_linux::ring::{Tap, Taps};
use fullbore_linux::stop_handle::StopHandle;

use crate::events::Events;
use crate::outcome::RecordingOutcome;
use crate::retention::RetentionThread;
use crate::run;

/// A recording that runs on a thread of its own. All methods can be called from any thread.
///
/// Dropping it stops the recording and waits for its end.
#[derive(Debug)]
pub struct Recording {
    control: Arc<StopHandle>,
    taps: Taps,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<Result<(), RecordError>>>,
}

/// What the recorder's thread writes and handles read.
#[derive(Debug, Default)]
struct Shared {
    status: Status,
    subscribers: Vec<Events>,
    sealed: Vec<Sealed>,
}

/// The state of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingState {
    /// Members, memory and sockets are being opened.
    #[default]
    Arming,
    /// Data is recorded, or the start time is awaited.
    Running,
    /// The recording has ended.
    Ended,
}

/// A snapshot of a recording.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The state.
    pub state: RecordingState,
    /// The state at arming.
    pub armed: Option<Armed>,
    /// The latest progress.
    pub progress: Option<Progress>,
    /// The latest warning.
    pub warning: Option<String>,
    /// The outcome of the scans that are sealed; of the whole recording once it has ended.
    pub outcome: RecordingOutcome,
}

impl Recording {
    /// Starts a recording. Returns when it is armed: all memory is mapped, and all sources are open.
    pub fn start(config: RecordingConfig) -> Result<Self, RecordError> {
        Self::start_with(config, None, Vec::new())
    }

    /// The same. A retention thread removes old scans meanwhile, and subscribers get the events before arming too.
    pub fn start_with(
        config: RecordingConfig,
        retention: Option<RetentionThread>,
        subscribers: Vec<Events>,
    ) -> Result<Self, RecordError> {
        let (control, taps) = (Arc::new(StopHandle::default()), config.taps.clone());
        let shared = Arc::new(Mutex::new(Shared { subscribers, ..Shared::default() }));
        let (of_thread, stop) = (shared.clone(), control.clone());
        let (ready, armed) = mpsc::channel();
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let mut tell = |event: &Event| {
                locked(&of_thread).take(event);
                if matches!(event, Event::Armed(_)) {
                    // The starter may have gone.
                    let _ = ready.send(());
                }
            };
            let ended = run::record(config, retention, &stop, &mut tell);
            let mut shared = locked(&of_thread);
            shared.status.state = RecordingState::Ended;
            shared.subscribers.iter().for_each(Events::end);
            ended.map(|outcome| shared.status.outcome = outcome)
        });
        let thread = thread.map_err(RecordError::Thread)?;
        let recording = Self { control, taps, shared, thread: Some(thread) };
        match armed.recv() {
            Ok(()) => Ok(recording),
            // The thread ended without arming, and says why.
            Err(_) => Err(recording.join().err().unwrap_or_else(|| RecordError::Broken {
                why: "the recording ended before it was armed".to_owned(),
            })),
        }
    }

    /// Stops: everything received so far is written, and the scan is sealed.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Aborts: data in memory is counted and dropped, and the scan is sealed.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// The stop requests, for a signal handler.
    pub fn stop_handle(&self) -> &Arc<StopHandle> {
        &self.control
    }

    /// Returns a snapshot of the recording.
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Subscribes to the events from now on.
    pub fn subscribe(&self) -> Events {
        let events = Events::new();
        let mut shared = self.lock();
        if shared.status.state == RecordingState::Ended {
            events.end();
        }
        shared.subscribers.push(events.clone());
        events
    }

    /// Opens a tap: a reader of the newest written blocks, which can neither slow the recording nor lose anything of it.
    pub fn tap(&self) -> Tap {
        self.taps.open()
    }

    /// True if the recording has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end. Returns the sealed scans, or the error because of which it ended early.
    pub fn join(mut self) -> Result<Vec<Sealed>, RecordError> {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(()))) | None => Ok(std::mem::take(&mut self.lock().sealed)),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(RecordError::Broken { why: "the recorder's thread failed".into() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.control.stop();
            // A program that wants the error calls `join`.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn take(&mut self, event: &Event) {
        self.status.outcome.see(event);
        match event {
            Event::Armed(armed) => {
                (self.status.state, self.status.armed) =
                    (RecordingState::Running, Some(armed.clone()));
            }
            Event::Progress(progress) => self.status.progress = Some(progress.clone()),
            Event::Warning { text } => self.status.warning = Some(text.clone()),
            Event::Sealed(sealed) => self.sealed.push((**sealed).clone()),
            _ => {}
        }
        self.subscribers.iter().for_each(|subscriber| subscriber.put(event.clone()));
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
