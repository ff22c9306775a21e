//! Called before the books on a member, or its data, are touched: a test lets one stand still, or its writer die.

use std::path::Path;

/// Before the books are touched.
#[cfg(not(test))]
pub fn at(_root: &Path) {}

/// Before a writer takes a block.
#[cfg(not(test))]
pub fn before_a_block(_root: &Path) {}

#[cfg(test)]
pub use tests::{Hung, at, before_a_block, hang, hang_writer, kill_writer};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::sync::{Condvar, Mutex};

    use super::Path;

    static HUNG: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    static CHANGED: Condvar = Condvar::new();

    static DYING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

    /// A member that stands still until this is dropped.
    pub struct Hung(PathBuf);

    /// Lets the books of the member at `root` stand still.
    pub fn hang(root: &Path) -> Hung {
        HUNG.lock().expect("no holder of it panics").insert(root.to_owned());
        Hung(root.to_owned())
    }

    /// Lets its writer stand still.
    pub fn hang_writer(root: &Path) -> Hung {
        hang(&data_of(root))
    }

    /// Lets its writer die at the next block.
    pub fn kill_writer(root: &Path) {
        DYING.lock().expect("no holder of it panics").insert(root.to_owned());
    }

    fn data_of(root: &Path) -> PathBuf {
        root.join("data")
    }

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

    /// Waits while it does.
    pub fn at(root: &Path) {
        let hung = HUNG.lock().expect("no holder of it panics");
        drop(CHANGED.wait_while(hung, |hung| hung.contains(root)));
    }
}
