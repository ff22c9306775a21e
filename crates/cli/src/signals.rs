//! Stop requests by signals: Ctrl-C, TERM, and a closed terminal.
//!
//! Ctrl-C and TERM stop, a second one aborts, and a third waits no longer for a disk that does not respond than two
//! seconds. A closed terminal stops as well. It causes several SIGHUPs (from the kernel and the shell), which count as
//! one request. With `nohup`, SIGHUP is ignored. USR1 stops a recording and can be repeated: it never aborts. A daemon
//! sends it, since it cannot know what an earlier daemon has sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::SessionHandle;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// The environment variable with which `demo` gives its process number to the commands that it runs.
pub const PARENT: &str = "FULLBORE_STOP_WITH_PARENT";

/// Stops a recording: the first signal stops, the second aborts, the third waits two more seconds at most.
pub fn stop_recording(control: &Arc<StopHandle>) -> anyhow::Result<()> {
    let control = control.clone();
    let signals = heard().into_iter().chain([SIGUSR1]).collect();
    listen(signals, move |signal| match signal {
        SIGHUP | SIGUSR1 => control.stop_once(),
        _ => control.stop(),
    })
}

/// The same for a session with a schedule: the first signal stops, the second aborts. SIGHUP reads the schedule again.
pub fn follow_schedule(session: SessionHandle) -> anyhow::Result<()> {
    listen(vec![SIGINT, SIGTERM, SIGHUP, SIGUSR1], move |signal| match signal {
        SIGHUP => session.reload(),
        SIGUSR1 => session.stop_once(),
        _ => session.stop(),
    })
}

/// Calls `obey` for each signal, on a separate thread.
fn listen(signals: Vec<i32>, obey: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new(signals).context("listening to signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().for_each(obey))
        .context("starting the thread for signals")?;
    Ok(())
}

/// The same for a daemon with a file: SIGHUP sets `reload`, and does not stop.
pub fn stop_or_reload(reload: Arc<AtomicBool>) -> anyhow::Result<Arc<StopHandle>> {
    let stop = Arc::new(StopHandle::default());
    let stopped = stop.clone();
    listen(vec![SIGINT, SIGTERM, SIGHUP], move |signal| match signal {
        SIGHUP => reload.store(true, Ordering::SeqCst),
        _ if stopped.is_requested() => std::process::exit(128 + signal),
        _ => stopped.stop(),
    })?;
    Ok(stop)
}

/// A handle that the first signal stops; a second Ctrl-C ends the process at once.
pub fn stop_handle() -> anyhow::Result<Arc<StopHandle>> {
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in heard() {
        // The order matters: the first signal finds the flag unset and only sets it.
        if signal != SIGHUP {
            let signalled = signalled.clone();
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, signalled)
                .context("listening for Ctrl-C")?;
        }
        signal_hook::flag::register(signal, signalled.clone()).context("listening for Ctrl-C")?;
    }
    let stop = Arc::new(StopHandle::default());
    let stopped = stop.clone();
    listen(heard(), move |_| stopped.stop())?;
    Ok(stop)
}

/// Makes the end of `demo`, even by SIGKILL, stop the commands that it runs. The kernel then sends SIGHUP, which does
/// not count twice if Ctrl-C has reached both; SIGTERM if SIGHUP is ignored.
pub fn stop_with_parent() -> anyhow::Result<()> {
    let given = std::env::var(PARENT).ok().and_then(|text| text.parse().ok());
    let Some(parent) = given.and_then(Pid::from_raw) else { return Ok(()) };
    let signal = if heard().contains(&SIGHUP) { Signal::HUP } else { Signal::TERM };
    set_parent_process_death_signal(Some(signal)).context("stopping together with the parent")?;
    // The parent may have died before the kernel knew of it.
    anyhow::ensure!(getppid() == Some(parent), "the process that started this command is gone");
    Ok(())
}

/// The signals that are handled.
fn heard() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// True if the parent process has set a signal to be ignored, according to the kernel.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_from_the_start_is_known() {
        let nohup = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\nSigCgt:\t0\n";
        assert!(is_ignored(nohup, SIGHUP) && !is_ignored(nohup, SIGINT));
        assert!(!is_ignored("SigIgn:\t0000000000001000\n", SIGHUP) && !is_ignored("", SIGHUP));
    }
}
