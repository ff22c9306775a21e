//! Where a thread is put and how urgently it runs, and what came of asking for it.
//!
//! Nothing here is believed because a call succeeded: each thread asks, then reads back what the kernel says of it,
//! and that is what is told. A niceness, for one, is kept and does nothing against threads of another autogroup
//! ([`Autogroup`]).

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fullbore_core::place::{Rank, Seat};
use serde::Serialize;

use crate::sys::sched;

/// What a thread asks for at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posting {
    /// Cores to stay on; none: wherever the scheduler wants it.
    pub cpus: Vec<usize>,
    /// How urgently it runs.
    pub rank: Rank,
}

/// How a thread stands, as the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its name.
    pub thread: String,
    /// Its number.
    pub id: i32,
    /// Cores that it may run on.
    pub cpus: Vec<usize>,
    /// How it is scheduled: `other`, `fifo`, `round-robin`, `batch`, `idle` or `deadline`.
    pub policy: &'static str,
    /// Its priority, if it is `fifo` or `round-robin`.
    pub priority: i32,
    /// Its niceness, if it is none of these.
    pub nice: i32,
    /// What it asked for and did not get.
    pub refused: Vec<String>,
}

impl Posting {
    /// One core, or none.
    pub fn on(cpu: Option<usize>) -> Self {
        Self { cpus: cpu.into_iter().collect(), rank: Rank::default() }
    }

    /// In a seat, at a rank.
    pub fn in_seat(seat: &Seat, rank: Rank) -> Self {
        Self { cpus: seat.cpus.clone(), rank }
    }

    /// Asks for it on behalf of the calling thread, and tells how that stands then. What is refused leaves the
    /// thread as it was.
    pub fn take_up(&self) -> Standing {
        let mut refused = Vec::new();
        if !self.cpus.is_empty()
            && let Err(error) = sched::stay_on(&self.cpus)
        {
            let cores = fullbore_core::place::in_words(self.cpus.iter().copied());
            refused.push(format!("to stay on {cores}: {error}"));
        }
        let first = self.rank.fifo.map(|priority| (priority, sched::be_first(priority)));
        if let Some((priority, Err(error))) = &first {
            refused.push(format!("SCHED_FIFO at {priority}: {error}"));
        }
        if !matches!(first, Some((_, Ok(()))))
            && let Some(nice) = self.rank.nice
            && let Err(error) = sched::be_nice(nice)
        {
            refused.push(format!("niceness {nice}: {error}"));
        }
        Standing { refused, ..Standing::of_this_thread() }
    }
}

impl Standing {
    /// The calling thread's.
    pub fn of_this_thread() -> Self {
        let treatment = sched::treatment();
        Self {
            thread: std::thread::current().name().unwrap_or_default().to_owned(),
            id: rustix::thread::gettid().as_raw_nonzero().get(),
            cpus: sched::allowed().unwrap_or_default(),
            policy: treatment.as_ref().map_or("not known", |it| policy_name(it.policy)),
            priority: treatment.as_ref().map_or(0, |it| it.priority),
            nice: treatment.as_ref().map_or(0, |it| it.nice),
            refused: Vec::new(),
        }
    }

    /// How urgently it runs, for people.
    pub fn urgency(&self) -> String {
        match (self.priority, self.nice) {
            (0, 0) => "as everybody else".to_owned(),
            (0, nice) => format!("nice {nice}"),
            (priority, _) => format!("{} {priority}", self.policy),
        }
    }
}

fn policy_name(policy: i32) -> &'static str {
    match policy {
        libc::SCHED_OTHER => "other",
        libc::SCHED_FIFO => "fifo",
        libc::SCHED_RR => "round-robin",
        libc::SCHED_BATCH => "batch",
        libc::SCHED_IDLE => "idle",
        libc::SCHED_DEADLINE => "deadline",
        _ => "not known",
    }
}

/// The niceness of all processes of this session together. Where the kernel groups by session
/// (`CONFIG_SCHED_AUTOGROUP`), a thread's own counts only within its group.
///
/// It is as it was before once this is dropped, and also if this process is killed: a shell of the session must not
/// stay favoured for good.
#[derive(Debug)]
pub struct Autogroup {
    file: PathBuf,
    before: i32,
    /// What it is now.
    pub nice: i32,
    heir: Option<Heir>,
}

impl Autogroup {
    /// Asks for a niceness; `None` where processes are not grouped so, or have it already.
    pub fn raise(nice: i32) -> io::Result<Option<Self>> {
        let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        match enabled.is_ok_and(|it| it.trim() == "1") {
            true => Self::raise_in(PathBuf::from("/proc/self/autogroup"), nice),
            false => Ok(None),
        }
    }

    fn raise_in(file: PathBuf, nice: i32) -> io::Result<Option<Self>> {
        let Some(before) = read(&file).filter(|&before| before > nice) else {
            return Ok(None);
        };
        // Where there is no shell to be had, there is hardly one in this session that would stay favoured.
        let heir = Heir::of(&file, before).ok();
        if let Err(refused) = fs::write(&file, nice.to_string()) {
            if let Some(heir) = heir {
                heir.dismiss();
            }
            return Err(refused);
        }
        let nice = read(&file).unwrap_or(nice);
        Ok(Some(Self { file, before, nice, heir }))
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        // The heir tries again for a while where the kernel is asked too often.
        let done = fs::write(&self.file, self.before.to_string());
        if let Some(heir) = self.heir.take() {
            if done.is_ok() { heir.dismiss() } else { heir.inherit() }
        }
    }
}

/// Whoever puts a session's niceness back if this process cannot do so any more: a shell that waits for the end of a
/// pipe, which comes with the end of this process, however that ends.
///
/// It is of this session and therefore of its group; no key that is pressed and no terminal that is closed ends it.
#[derive(Debug)]
struct Heir {
    shell: Child,
}

impl Heir {
    /// What it does: nothing if it is told so, else the writing, a few times if need be, since the kernel takes such a
    /// wish of an ordinary user ten times a second at most, of all of them together.
    const WILL: &str = r#"
        trap '' HUP INT QUIT TERM TSTP
        read -r word && exit
        for try in 1 2 3 4 5; do
            echo "$2" > "$1" && exit
            sleep 1
        done"#;

    fn of(file: &Path, before: i32) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", Self::WILL, "fb-autogroup"]).arg(file).arg(before.to_string());
        // Whoever reads what the recorder says waits for the end of its output, and not for that of this one's.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir("/").env_clear().process_group(0);
        command.env("PATH", "/usr/bin:/bin");
        Ok(Self { shell: command.spawn()? })
    }

    /// There is nothing left to do.
    fn dismiss(mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // One that is gone was not needed.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }

    /// It does what it is there for, in its own time.
    fn inherit(mut self) {
        drop(self.shell.stdin.take());
    }
}

/// `/autogroup-609 nice 0`
fn read(file: &Path) -> Option<i32> {
    fs::read_to_string(file).ok()?.trim().rsplit_once("nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn what_a_thread_gets_is_what_the_kernel_says_of_it() {
        let last = *sched::allowed().unwrap().last().unwrap();
        let posting = Posting::on(Some(last));
        let standing = in_a_thread(move || {
            let standing = posting.take_up();
            assert_eq!(Standing::of_this_thread(), standing);
            standing
        });
        assert_eq!(standing.cpus, [last]);
        assert!(standing.refused.is_empty(), "{standing:?}");
    }

    #[test]
    fn a_core_that_is_not_there_is_told_as_refused() {
        let posting = Posting::on(Some(1000));
        let standing = in_a_thread(move || posting.take_up());
        assert_eq!(standing.cpus, sched::allowed().unwrap());
        assert!(standing.refused[0].contains("to stay on core 1000"), "{standing:?}");
    }

    /// A file that says what one of `/proc` would.
    fn group(name: &str) -> PathBuf {
        let file = std::env::temp_dir().join(format!("fullbore-{name}-{}", std::process::id()));
        fs::write(&file, "/autogroup-609 nice 0").unwrap();
        file
    }

    #[test]
    fn a_session_is_raised_once_and_put_back_by_whoever_raised_it() {
        let file = group("raised");
        let raised = Autogroup::raise_in(file.clone(), -10).unwrap().unwrap();
        assert_eq!((raised.before, fs::read_to_string(&file).unwrap().as_str()), (0, "-10"));
        fs::write(&file, "/autogroup-609 nice -10").unwrap();
        assert!(Autogroup::raise_in(file.clone(), -10).unwrap().is_none(), "it is so already");
        drop(raised);
        assert_eq!(fs::read_to_string(&file).unwrap(), "0");
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn an_heir_writes_what_was_before_once_nobody_is_left_to_tell_it_otherwise() {
        let file = group("inherited");
        fs::write(&file, "-10").unwrap();
        let heir = Heir::of(&file, 3).unwrap();
        heir.dismiss();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "-10",
            "one that was dismissed writes nothing"
        );
        let mut heir = Heir::of(&file, 3).unwrap();
        // What the kernel does with the pipe of a process that is killed.
        drop(heir.shell.stdin.take());
        assert!(heir.shell.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), "3");
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_thread_is_first_or_says_why_not() {
        let rank = Rank { fifo: Some(7), nice: Some(-3) };
        let standing = in_a_thread(move || Posting { cpus: vec![], rank }.take_up());
        match standing.policy {
            "fifo" => assert_eq!((standing.priority, standing.refused.len()), (7, 0)),
            _ => assert!(standing.refused[0].contains("SCHED_FIFO at 7"), "{standing:?}"),
        }
    }
}
