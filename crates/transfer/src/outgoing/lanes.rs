//! Reads blocks for many connections: few requests at a time on each device, and fewer beside a recorder.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_linux::sys::sched;
use fullbore_store::read::{BlockExtent, ExtentReader, Fault, Settings};
use fullbore_store::redundancy::RowReconstructor;

/// Time after which a thread that waits for its turn looks again whether more requests are allowed now.
const RECHECK: Duration = Duration::from_millis(100);

thread_local! {
    /// True if this thread asked for the lowest priority on the disks.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The devices that blocks are read from.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Mutex<BTreeMap<u64, Arc<Lane>>>,
}

#[derive(Debug, Default)]
struct Lane {
    turns: Mutex<Turns>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    reading: usize,
    /// Readers that no thread uses, each with its file open.
    idle: Vec<Reader>,
    /// Files opened before this number was raised are not used any more.
    round: u64,
}

#[derive(Debug, Default)]
struct Reader {
    round: u64,
    extents: ExtentReader,
    rows: RowReconstructor,
}

impl Lanes {
    /// Reads an extent, from parity if there is no other way. Waits while the device has as many requests as `settings`
    /// allows.
    pub fn read(
        &self,
        extent: &BlockExtent,
        settings: impl Fn() -> Settings,
        into: &mut [u8],
    ) -> Result<(), Fault> {
        let lane = lock(&self.lanes).entry(extent.device).or_default().clone();
        let mut reader = lane.enter(&settings);
        be_quiet(settings().quiet);
        let mut result = reader.extents.read(extent, into);
        if result.is_err() && reader.rows.mend(extent, into) {
            result = Ok(());
        }
        lane.leave(reader, result.is_ok());
        result
    }

    /// Closes all files: names may mean other files now.
    pub fn close_files(&self) {
        for lane in lock(&self.lanes).values() {
            let mut turns = lock(&lane.turns);
            turns.round += 1;
            turns.idle.clear();
        }
    }
}

impl Lane {
    fn enter(&self, settings: &impl Fn() -> Settings) -> Reader {
        let mut turns = lock(&self.turns);
        while turns.reading >= settings().reads_per_device.max(1) {
            let waited = self.free.wait_timeout(turns, RECHECK);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        turns.reading += 1;
        let round = turns.round;
        turns.idle.pop().unwrap_or_else(|| Reader { round, ..Reader::default() })
    }

    fn leave(&self, reader: Reader, keep: bool) {
        let mut turns = lock(&self.turns);
        turns.reading -= 1;
        if keep && reader.round == turns.round {
            turns.idle.push(reader);
        }
        self.free.notify_one();
    }
}

/// Asks the disk scheduler to serve other threads before this one, or to treat it like them. A refusal changes nothing.
fn be_quiet(quiet: bool) {
    if QUIET.replace(quiet) != quiet {
        let _ = if quiet { sched::use_disks_last() } else { sched::use_disks_as_usual() };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use fullbore_store::read::pool;

    use super::*;

    fn extent(path: &Path, content: &[u8]) -> BlockExtent {
        std::fs::write(path, content).unwrap();
        BlockExtent {
            path: Arc::new(path.to_owned()),
            device: 1,
            offset: 0,
            bytes: content.len() as u32,
            crc: crc32c::crc32c(content),
            stripe: None,
        }
    }

    #[test]
    fn beside_a_recorder_a_device_has_one_request_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let extent = extent(&directory.path().join("a"), &[7; 4096]);
        let lanes = Lanes::default();
        let lane = lock(&lanes.lanes).entry(1).or_default().clone();
        let held = lane.enter(&Settings::beside_a_recorder);
        let read = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut block = pool(1, 4096).unwrap().take().unwrap();
                    lanes.read(&extent, Settings::beside_a_recorder, &mut block).unwrap();
                    assert_eq!(block[..], [7; 4096]);
                    read.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(read.load(Ordering::Relaxed), 0);
            lane.leave(held, true);
        });
        assert_eq!(read.load(Ordering::Relaxed), 3);
        assert_eq!(lock(&lane.turns).idle.len(), 1, "one reader did it all");
    }

    #[test]
    fn waiting_threads_start_once_the_recording_is_over() {
        let lane = Lane::default();
        let begun = Instant::now();
        let settings = || match begun.elapsed() < Duration::from_millis(20) {
            true => Settings::beside_a_recorder(),
            false => Settings::default(),
        };
        let _first = lane.enter(&settings);
        let _second = lane.enter(&settings);
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_file_with_the_name_of_another_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let before = extent(&path, &[7; 4096]);
        let lanes = Lanes::default();
        let mut block = pool(1, 4096).unwrap().take().unwrap();
        lanes.read(&before, Settings::default, &mut block).unwrap();
        std::fs::rename(&path, directory.path().join("b")).unwrap();
        let after = extent(&path, &[8; 4096]);
        lanes.close_files();
        lanes.read(&after, Settings::default, &mut block).unwrap();
    }
}
