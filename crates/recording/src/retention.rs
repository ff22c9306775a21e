//! Retention: a thread removes the oldest scans after each seal, or the oldest pieces of a circular recording. A slow disk
//! may delay it, but no recording.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_care::retention::{self, RetentionResult};
use fullbore_core::manifest::Manifest;
use fullbore_core::retention::RetentionRule;
use fullbore_engine::recorder::{Event, RecordError, RecordingConfig};
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::Taps;

use crate::circular::Keeper;
use crate::circular::fit::Room;
use crate::circular::lookout::{Condition, Found, Lookout};

/// Time between two looks at the triggers of a circular recording.
const LOOK: Duration = Duration::from_millis(100);

/// A thread that removes excess scans after each seal.
pub struct RetentionThread {
    sealed: Sender<Box<Manifest>>,
    told: Receiver<Event>,
    /// For conditions on samples that trigger.
    tell: Sender<Event>,
    looking: Looking,
    /// The room that a circular recording needs.
    room: Option<Room>,
    thread: JoinHandle<()>,
}

/// What looks for conditions on samples.
enum Looking {
    /// There are no conditions.
    Nothing,
    /// The recording does not run yet.
    Ready(Vec<Condition>, SyncSender<Found>),
    /// It runs.
    Running(Lookout),
}

impl RetentionThread {
    /// Starts a retention thread for the store with these members.
    pub fn start(roots: Vec<PathBuf>, limit: RetentionRule) -> io::Result<Self> {
        Self::spawn(move |requested, tell| {
            let mut said = BTreeSet::new();
            while requested.recv().is_ok() {
                // Several scans sealed meanwhile are handled together.
                while requested.try_recv().is_ok() {}
                for event in tidy(&roots, limit, &mut said) {
                    // The receiver may be gone; the work is done all the same.
                    let _ = tell.send(event);
                }
            }
        })
    }

    /// Starts the thread of a circular recording: it keeps what triggers name, and removes the oldest pieces.
    pub fn circular(mut keeper: Keeper) -> io::Result<Self> {
        let (conditions, room) = (keeper.conditions(), keeper.room_on_disks());
        let started = Self::spawn(move |sealed, tell| {
            loop {
                let ended = match sealed.recv_timeout(LOOK) {
                    Ok(manifest) => {
                        keeper.sealed(&manifest);
                        sealed.try_iter().for_each(|manifest| keeper.sealed(&manifest));
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => true,
                };
                for event in keeper.step(ended) {
                    // The receiver may be gone; the work is done all the same.
                    let _ = tell.send(event);
                }
                if ended {
                    return;
                }
            }
        })?;
        let looking =
            conditions.map_or(Looking::Nothing, |(all, finds)| Looking::Ready(all, finds));
        Ok(Self { looking, room, ..started })
    }

    /// Checks that the disks hold a circular recording of this configuration. Returns a warning of what may not fit.
    ///
    /// # Errors
    ///
    /// It does not fit.
    pub(crate) fn check_room(
        &self,
        config: &RecordingConfig,
    ) -> Result<Option<Event>, RecordError> {
        self.room.as_ref().map_or(Ok(None), |room| room.check(config))
    }

    /// Starts to look for conditions in the samples that these taps show, if triggers depend on any.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub(crate) fn look_at(&mut self, taps: &Taps) -> io::Result<()> {
        self.looking = match std::mem::replace(&mut self.looking, Looking::Nothing) {
            Looking::Ready(conditions, finds) => {
                let tell = self.tell.clone();
                Looking::Running(Lookout::start(taps, conditions, finds, tell)?)
            }
            other => other,
        };
        Ok(())
    }

    fn spawn(
        work: impl FnOnce(Receiver<Box<Manifest>>, Sender<Event>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sealed, requested) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let of_thread = tell.clone();
        let thread = std::thread::Builder::new()
            .name("retention".into())
            .spawn(move || work(requested, of_thread))?;
        let (looking, room) = (Looking::Nothing, None);
        Ok(Self { sealed, told, tell, looking, room, thread })
    }

    /// Reports a sealed scan to the thread.
    pub fn scan_sealed(&self, manifest: &Manifest) {
        // A thread that failed has reported its error when it ended.
        let _ = self.sealed.send(Box::new(manifest.clone()));
    }

    /// The events since the last call.
    pub fn told(&self) -> Vec<Event> {
        self.told.try_iter().collect()
    }

    /// Waits for pending removals, and returns the remaining events.
    pub fn finish(self) -> Vec<Event> {
        // The last samples may trigger, so they are looked at before the last pieces are kept.
        let looked = match self.looking {
            Looking::Running(lookout) => lookout.finish(),
            Looking::Nothing | Looking::Ready(..) => Vec::new(),
        };
        drop((self.sealed, self.tell));
        let failed = self.thread.join().is_err();
        let mut told: Vec<Event> = self.told.iter().chain(looked).collect();
        if failed {
            let text = "the thread that removes old scans failed".to_owned();
            told.push(Event::Warning { text });
        }
        told
    }
}

/// Removes excess scans. The reason why a scan is kept is reported once, and remembered in `said`.
fn tidy(roots: &[PathBuf], limit: RetentionRule, said: &mut BTreeSet<String>) -> Vec<Event> {
    let (removed, stays) = match retention::keep(roots, limit, Clock::new().now()) {
        Ok(RetentionResult { removed, stayed, in_the_way }) => {
            let stayed =
                stayed.iter().map(|(scan, why)| format!("--keep {limit}: {scan} stays: {why}"));
            let in_the_way = in_the_way
                .iter()
                .map(|(scan, why)| format!("--keep {limit}: {scan} is not removed: {why}"));
            (removed, stayed.chain(in_the_way).collect())
        }
        Err(error) => (Vec::new(), vec![format!("--keep {limit}: {error}")]),
    };
    let removed = removed.iter().map(|gone| format!("--keep {limit}: {} removed", gone.scan));
    let removed = removed.map(|text| Event::Note { text });
    let news = stays.into_iter().filter(|text| said.insert(text.clone()));
    removed.chain(news.map(|text| Event::Warning { text })).collect()
}
