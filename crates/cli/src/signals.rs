//! How an end is asked for from outside: Ctrl-C, TERM, and a terminal that goes away.
//!
//! Ctrl-C and TERM stop, a second one aborts, and a third waits for nobody. A terminal that goes away stops as well; it says so
//! several times over (the kernel does, and the shell), which is no second wish. Whoever started us with
//! `nohup` has told that a terminal may go, and is obeyed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fullbore_engine::recorder::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Ends a recording: the first signal stops, the second aborts, the third leaves it as it is.
pub fn stop_recording(control: &Arc<Control>) -> anyhow::Result<()> {
    let control = control.clone();
    listen(heard(), move |signal| {
        if signal != SIGHUP || control.asked() == 0 {
            control.stop();
        }
    })
}

/// The same for a session with a schedule: the first signal stops, the second aborts. SIGHUP sets `again`: the
/// schedule is to be read again.
pub fn follow_schedule(control: &Arc<Control>, again: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (control, again) = (control.clone(), again.clone());
    listen(vec![SIGINT, SIGTERM, SIGHUP], move |signal| match signal {
        SIGHUP => again.store(true, Ordering::SeqCst),
        _ => control.stop(),
    })
}

/// Does something for each signal, in a thread of its own.
fn listen(signals: Vec<i32>, obey: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new(signals).context("listening to signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().for_each(obey))
        .context("starting the thread for signals")?;
    Ok(())
}

/// A flag that the first signal sets; a second Ctrl-C ends the process at once.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in heard() {
        // In this order: the first signal finds the flag unset and only sets it.
        if signal != SIGHUP {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
                .context("listening for Ctrl-C")?;
        }
        signal_hook::flag::register(signal, stop.clone()).context("listening for Ctrl-C")?;
    }
    Ok(stop)
}

/// The signals that are listened to.
fn heard() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether whoever started us has had a signal ignored, as the kernel tells it.
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
