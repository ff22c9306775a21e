//! Fault hooks before metadata or data of a member is touched: a test can stall the member or kill its writer.

use std::path::Path;

/// Called before metadata is touched.
#[cfg(not(any(test, feature = "testing")))]
pub fn at(_root: &Path) {}

/// Called before a writer takes a block.
#[cfg(not(any(test, feature = "testing")))]
pub fn before_a_block(_root: &Path) {}

#[cfg(any(test, feature = "testing"))]
pub use tests::{Hung, at, before_a_block, hang, hang_writer, kill_writer};

#[cfg(any(test, feature = "testing"))]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::sync::{Condvar, Mutex};

    use super::Path;

    static HUNG: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    static CHANGED: Condvar = Condvar::new();

    static DYING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

    /// A member that stalls until this is dropped.
    pub struct Hung(PathBuf);

    /// Stalls metadata operations of the member at `root`.
    pub fn hang(root: &Path) -> Hung {
        HUNG.lock().expect("no holder of it panics").insert(root.to_owned());
        Hung(root.to_owned())
    }

    /// Stalls its writer.
    pub fn hang_writer(root: &Path) -> Hung {
        hang(&data_of(root))
    }

    /// Kills its writer at the next block.
    pub fn kill_writer(root: &Path) {
        DYING.lock().expect("no holder of it panics").insert(root.to_owned());
    }

    fn data_of(root: &Path) -> PathBuf {
        root.join("data")
    }

    /// Called before a writer takes a block.
    pub fn before_a_block(root: &Path) {
        at(&data_of(root));
        let dies = DYING.lock().expect("no holder of it panics").remove(root);
        assert!(!dies, "the writer of {} was to die", root.display());
    }

    impl Drop for Hung {
        fn drop(&mut self) {
            HUNG.lock().expect("no holder of it panics").remove(&self.0);
            CHANGED.notify_all();
        }
    }

    /// Called before metadata is touched. Waits while the member is stalled.
    pub fn at(root: &Path) {
        let hung = HUNG.lock().expect("no holder of it panics");
        drop(CHANGED.wait_while(hung, |hung| hung.contains(root)));
    }
}
