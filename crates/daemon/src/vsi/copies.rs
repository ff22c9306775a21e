//! `disk2file`: parts of sealed scans as files, each written by a thread.
//!
//! A file is written under another name, and gets its own when it is whole. No file is replaced. A command that comes again
//! after the end of its copy, because its answer was lost, finds the file and writes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fullbore_core::name::ScanName;
use fullbore_transfer::files::ServedFiles;
use fullbore_transfer::governor;
use fullbore_vsi::station::{CopyJob, CopyState};
use uuid::Uuid;

use super::runs::Runs;

/// Why there is no file.
pub(super) const NO_DIRECTORY: &str =
    "the daemon has no directory for files, start it with --vsi-s-files";

/// Bytes that are read at once.
const PIECE: usize = 4 << 20;

/// The copies of all runtimes.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    members: Vec<PathBuf>,
    directory: Option<PathBuf>,
    newest: Arc<Mutex<BTreeMap<String, Newest>>>,
}

/// The newest copy of a runtime.
#[derive(Debug)]
struct Newest {
    state: CopyState,
    /// True if its file is whole.
    is_whole: bool,
}

impl Copies {
    /// Copies into a directory. Without one, there are none.
    pub(super) fn new(members: Vec<PathBuf>, directory: Option<PathBuf>) -> Self {
        Self { members, directory, newest: Arc::default() }
    }

    /// The path of a file, whose name is checked.
    pub(super) fn path_of(&self, file: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(file))
    }

    /// The newest copy of a runtime.
    pub(super) fn newest(&self, runtime: &str) -> Option<CopyState> {
        self.lock().get(runtime).map(|it| it.state.clone())
    }

    /// Begins a copy. What fails later is told to `runs`.
    pub(super) fn start(&self, runtime: &str, job: CopyJob, runs: &Runs) -> Result<(), String> {
        let Some(directory) = self.directory.clone() else {
            return Err(NO_DIRECTORY.to_owned());
        };
        let state = CopyState { job: job.clone(), is_active: true, current: job.start };
        let before = self.lock().insert(runtime.to_owned(), Newest { state, is_whole: false });
        let is_again = before.is_some_and(|it| it.is_whole && it.state.job == job);
        let (copies, runs, name) = (self.clone(), runs.clone(), runtime.to_owned());
        let work = move || {
            governor::beside();
            let done = match is_again && directory.join(&job.file).is_file() {
                true => Ok(()),
                false => copies.copy(&name, &job, &directory),
            };
            let is_whole = done.is_ok();
            if let Err(why) = done {
                runs.report(format!("disk2file {}: {why}", job.file));
            }
            copies.change(&name, |it| (it.state.is_active, it.is_whole) = (false, is_whole));
        };
        let started = thread::Builder::new().name("vsi-file".into()).spawn(work);
        started.map(drop).map_err(|error| {
            self.lock().remove(runtime);
            error.to_string()
        })
    }

    fn copy(&self, runtime: &str, job: &CopyJob, directory: &Path) -> Result<(), String> {
        let whole = directory.join(&job.file);
        if fs::symlink_metadata(&whole).is_ok() {
            return Err("File exists, and no file is replaced".to_owned());
        }
        let part = directory.join(format!(".{}.part", Uuid::now_v7()));
        let file = OpenOptions::new().write(true).create_new(true).open(&part);
        let mut file = file.map_err(|error| format!("{}: {error}", part.display()))?;
        let done = self.fill(runtime, job, &mut file).and_then(|()| {
            // Unlike a rename, a link replaces nothing.
            let linked = file.sync_all().and_then(|()| fs::hard_link(&part, &whole));
            linked.map_err(|error| format!("{}: {error}", whole.display()))
        });
        // The link stays, if there is one.
        let removed = fs::remove_file(&part);
        done.and_then(|()| removed.map_err(|error| format!("{}: {error}", part.display())))
    }

    fn fill(&self, runtime: &str, job: &CopyJob, file: &mut File) -> Result<(), String> {
        let (scan, stream) = ScanName::of_directory(&job.scan)
            .ok_or_else(|| format!("{} is not the name of a scan", job.scan))?;
        let files = ServedFiles::of(self.members.clone());
        let mut streams = files.of_scan(&scan).map_err(|error| error.to_string())?;
        if let Some(stream) = stream {
            let start = format!("{scan}/{stream}.");
            streams.retain(|it| it.name.starts_with(&start));
        }
        let [listed] = streams.as_slice() else {
            let why = format!(
                "the scan has {} such streams, set one as {scan}_ds and its name",
                streams.len()
            );
            return Err(why);
        };
        let mut source = files.open(&listed.name).map_err(|error| error.to_string())?;
        let (mut at, end) = (job.start, job.end.min(source.length()));
        let mut piece = vec![0; PIECE];
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            source.read_at(at, &mut piece[..length]).map_err(|error| error.to_string())?;
            file.write_all(&piece[..length]).map_err(|error: io::Error| error.to_string())?;
            at += length as u64;
            self.change(runtime, |it| it.state.current = at);
        }
        Ok(())
    }

    fn change(&self, runtime: &str, change: impl FnOnce(&mut Newest)) {
        if let Some(copy) = self.lock().get_mut(runtime) {
            change(copy);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
