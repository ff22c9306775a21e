//! Fault hooks before every change to the files of a stored scan: a test crashes at each in turn.

/// Called before each change.
#[cfg(not(any(test, feature = "testing")))]
pub fn step() -> std::io::Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
pub use tests::{after, step};

#[cfg(any(test, feature = "testing"))]
mod tests {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static STEPS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    }

    /// Lets this many more changes happen, then crashes.
    pub fn after(steps: u32) {
        STEPS_LEFT.set(steps);
    }

    /// Called before each change.
    pub fn step() -> io::Result<()> {
        match STEPS_LEFT.get().checked_sub(1) {
            Some(left) => STEPS_LEFT.set(left),
            None => return Err(io::Error::other("the process died")),
        }
        Ok(())
    }
}
