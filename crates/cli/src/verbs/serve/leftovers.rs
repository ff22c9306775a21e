//! What a demonstration leaves if it is killed: a directory, and a recorder that nobody follows.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_daemon::recorder::Recorders;
use fullbore_terminal::output;
use rustix::process::geteuid;

/// The beginning of the name of a demonstration's directory.
pub const PREFIX: &str = "fullbore-demo-";

/// How long the recorders of a demonstration may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Removes the directories of this user's demonstrations that were killed. What cannot be removed is told, and stays.
pub fn remove(program: &Path) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten().filter(is_ours) {
        // The daemon of a demonstration holds its lock. One that is just starting has none yet.
        let Ok(lock) = File::open(entry.path().join("station/lock")) else { continue };
        if lock.try_lock().is_ok()
            && let Err(error) = end(&entry.path(), program.to_owned())
        {
            let path = entry.path();
            output::note(format!(
                "{}: the demonstration that left it cannot be removed: {error:#}",
                path.display()
            ));
        }
    }
}

fn is_ours(entry: &DirEntry) -> bool {
    let is_named = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    // A link is not followed.
    let is_own = |it: fs::Metadata| it.is_dir() && it.uid() == geteuid().as_raw();
    is_named(&entry.file_name()) && entry.metadata().is_ok_and(is_own)
}

/// Ends the recorders of a demonstration, and removes its directory.
fn end(place: &Path, program: PathBuf) -> anyhow::Result<()> {
    let recorders = Recorders::find(program, String::new(), place.join("station/recordings"))?;
    let until = Instant::now() + PATIENCE;
    loop {
        let all = recorders.all();
        let mut running = all.iter().filter(|it| it.life.is_active()).peekable();
        if running.peek().is_none() {
            break;
        }
        anyhow::ensure!(Instant::now() < until, "its recorder does not end");
        for recording in running {
            // Nothing of a demonstration is kept. One that has ended just now is seen in the next round.
            let _ = recorders.ask(recording.id, true);
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(fs::remove_dir_all(place)?)
}
