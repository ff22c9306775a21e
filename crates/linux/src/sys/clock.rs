//! The state of the host's clock, as the kernel reports it.

/// Returns true if the host's clock is synchronised (by NTP, PTP or the like), as far as the kernel knows; `None` if
/// the kernel does not report it.
pub fn is_synchronised() -> Option<bool> {
    let (requested, _) = ask()?;
    Some(requested.status & libc::STA_UNSYNC == 0)
}

/// Returns true if the host's clock shows this Unix second for the second time, because of a leap second.
pub fn is_leap_second(unix: i64) -> bool {
    ask().is_some_and(|(requested, state)| {
        // Seconds have 32 bits on some machines.
        #[allow(clippy::useless_conversion)]
        let shown = i64::from(requested.time.tv_sec);
        state == libc::TIME_OOP && shown == unix
    })
}

/// Reads the kernel's clock parameters and clock state.
fn ask() -> Option<(libc::timex, i32)> {
    // SAFETY: `timex` is a struct of integers, for which all bits zero are a value; with `modes` 0 it asks for nothing
    // to be set.
    let mut requested: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `timex` to the address of `requested`, which is borrowed exclusively.
    let state = unsafe { libc::adjtimex(&mut requested) };
    (state >= 0).then_some((requested, state))
}
