//! `--keep`: the oldest scans let go of after each seal, by a thread that a slow disk may hold up.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::Context;
use fullbore_core::keep::Keep;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::Event;
use fullbore_engine::store::keep::{self, Kept};

/// Removes what is too much whenever a scan has been sealed.
pub struct Keeper {
    sealed: Sender<()>,
    told: Receiver<Event>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// A keeper of the store with these members.
    pub fn start(roots: Vec<PathBuf>, limit: Keep) -> anyhow::Result<Self> {
        let (sealed, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let work = move || {
            let mut said = BTreeSet::new();
            while asked.recv().is_ok() {
                // Several scans sealed meanwhile are one occasion.
                while asked.try_recv().is_ok() {}
                for event in tidy(&roots, limit, &mut said) {
                    // Nobody may listen any more; the work is done all the same.
                    let _ = tell.send(event);
                }
            }
        };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(work);
        Ok(Self { sealed, told, thread: thread.context("starting the thread that keeps house")? })
    }

    /// A scan has been sealed.
    pub fn scan_sealed(&self) {
        // A keeper that has failed has said so when its thread ended.
        let _ = self.sealed.send(());
    }

    /// What has been done since this was asked last.
    pub fn told(&self) -> Vec<Event> {
        self.told.try_iter().collect()
    }

    /// Waits for what is still to be removed, and gives what was not told yet.
    pub fn finish(self) -> Vec<Event> {
        drop(self.sealed);
        let failed = self.thread.join().is_err();
        let mut told: Vec<Event> = self.told.iter().collect();
        if failed {
            let text = "--keep: the thread that removes old scans failed".to_owned();
            told.push(Event::Warning { text });
        }
        told
    }
}

/// Removes what is too much. Why something stays is told once, and remembered in `said`.
fn tidy(roots: &[PathBuf], limit: Keep, said: &mut BTreeSet<String>) -> Vec<Event> {
    let (removed, stays) = match keep::keep(roots, limit, Clock::new().now()) {
        Ok(Kept { removed, stayed, in_the_way }) => {
            let stayed =
                stayed.iter().map(|(scan, why)| format!("--keep {limit}: {scan} stays: {why}"));
            let in_the_way = in_the_way.iter().map(|(scan, why)| {
                format!("--keep {limit} is not kept to: {scan} is beyond it and stays: {why}")
            });
            (removed, stayed.chain(in_the_way).collect())
        }
        Err(error) => (Vec::new(), vec![format!("--keep {limit}: {error}")]),
    };
    let removed = removed.iter().map(|gone| format!("--keep {limit}: {} removed", gone.scan));
    let removed = removed.map(|text| Event::Note { text });
    let news = stays.into_iter().filter(|text| said.insert(text.clone()));
    removed.chain(news.map(|text| Event::Warning { text })).collect()
}
