//! `--keep`: the oldest scans let go of after each seal, by a thread that a slow disk may hold up.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::Context;
use fullbore_core::keep::Keep;
use fullbore_engine::clock::Clock;
use fullbore_engine::store::keep;

/// Removes what is too much whenever a scan has been sealed.
pub struct Keeper {
    sealed: Sender<()>,
    told: Receiver<String>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// A keeper of the store with these members.
    pub fn start(roots: Vec<PathBuf>, limit: Keep) -> anyhow::Result<Self> {
        let (sealed, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let work = move || {
            while asked.recv().is_ok() {
                // Several scans sealed meanwhile are one occasion.
                while asked.try_recv().is_ok() {}
                for text in tidy(&roots, limit) {
                    // Nobody may listen any more; the work is done all the same.
                    let _ = tell.send(text);
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
    pub fn told(&self) -> Vec<String> {
        self.told.try_iter().collect()
    }

    /// Waits for what is still to be removed, and gives what was not told yet.
    pub fn finish(self) -> Vec<String> {
        drop(self.sealed);
        let failed = self.thread.join().is_err();
        let mut told: Vec<String> = self.told.iter().collect();
        if failed {
            told.push("--keep: the thread that removes old scans failed".to_owned());
        }
        told
    }
}

fn tidy(roots: &[PathBuf], limit: Keep) -> Vec<String> {
    let kept = match keep::keep(roots, limit, Clock::new().now()) {
        Ok(kept) => kept,
        Err(error) => return vec![format!("--keep {limit}: {error}")],
    };
    let removed = kept.removed.iter().map(|gone| format!("--keep {limit}: {} removed", gone.scan));
    let stayed =
        kept.stayed.iter().map(|(scan, why)| format!("--keep {limit}: {scan} stays: {why}"));
    removed.chain(stayed).collect()
}
