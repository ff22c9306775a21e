//! What the kernel says of the host's clock.

/// Whether the host's clock is kept synchronised (by NTP, PTP or the like), as far as the kernel was told; `None`: it
/// does not say.
pub fn is_synchronised() -> Option<bool> {
    let (asked, _) = ask()?;
    Some(asked.status & libc::STA_UNSYNC == 0)
}

/// Whether the host's clock shows this Unix second for the second time, because a leap second follows it.
pub fn is_leap_second(unix: i64) -> bool {
    ask().is_some_and(|(asked, state)| {
        // Seconds have 32 bits on some machines.
        #[allow(clippy::useless_conversion)]
        let shown = i64::from(asked.time.tv_sec);
        state == libc::TIME_OOP && shown == unix
    })
}

/// What the kernel tells of its clock, and its state.
fn ask() -> Option<(libc::timex, i32)> {
    // SAFETY: `timex` is a struct of integers, for which all bits zero are a value; with `modes` 0 it asks for nothing
    // to be set.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `timex` to the address, which is that of one we own and nobody else knows.
    let state = unsafe { libc::adjtimex(&mut asked) };
    (state >= 0).then_some((asked, state))
}
