//! What the kernel says of the host's clock.

/// Whether the host's clock is kept synchronised (by NTP, PTP or the like), as far as the kernel was told; `None`: it
/// does not say.
pub fn is_synchronised() -> Option<bool> {
    // SAFETY: `timex` is a struct of integers, for which all bits zero are a value; with `modes` 0 it asks for nothing
    // to be set.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `timex` to the address, which is that of one we own and nobody else knows.
    let state = unsafe { libc::adjtimex(&mut asked) };
    (state >= 0).then_some(asked.status & libc::STA_UNSYNC == 0)
}
