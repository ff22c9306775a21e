//! Called before the books on a member are touched: a test lets one stand still.

use std::path::Path;

#[cfg(not(test))]
pub fn at(_root: &Path) {}

#[cfg(test)]
pub use tests::{Hung, at, hang};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::sync::{Condvar, Mutex};

    use super::Path;

    static HUNG: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    static CHANGED: Condvar = Condvar::new();

    /// A member that stands still until this is dropped.
    pub struct Hung(PathBuf);

    /// Lets the member at `root` stand still.
    pub fn hang(root: &Path) -> Hung {
        HUNG.lock().expect("no holder of it panics").insert(root.to_owned());
        Hung(root.to_owned())
    }

    impl Drop for Hung {
        fn drop(&mut self) {
            HUNG.lock().expect("no holder of it panics").remove(&self.0);
            CHANGED.notify_all();
        }
    }

    /// Waits while it does.
    pub fn at(root: &Path) {
        let hung = HUNG.lock().expect("no holder of it panics");
        drop(CHANGED.wait_while(hung, |hung| hung.contains(root)));
    }
}
