//! What a thread looks at again and again, so that no request waits for a disk or a program.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The newest look at something. Clones are handles of the same.
#[derive(Debug)]
pub struct Kept<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    asked: Condvar,
    looked: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// When a look was over, and what was seen.
    newest: Option<(Instant, Arc<T>)>,
    is_asked: bool,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Looks now, and then each time that `every` has passed, on a thread of this name, as long as the process runs.
    pub fn start(
        name: &str,
        every: Duration,
        mut look: impl FnMut() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let state = Mutex::new(State { newest: None, is_asked: false });
        let (asked, looked) = (Condvar::new(), Condvar::new());
        let kept = Self(Arc::new(Shared { state, asked, looked }));
        let shared = kept.0.clone();
        thread::Builder::new().name(name.into()).spawn(move || {
            loop {
                let seen = Arc::new(look());
                let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.newest = Some((Instant::now(), seen));
                shared.looked.notify_all();
                let idle = |state: &mut State<T>| !state.is_asked;
                let waited = shared.asked.wait_timeout_while(state, every, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0.is_asked = false;
            }
        })?;
        Ok(kept)
    }

    /// What was seen last. `None` before the first look is over.
    pub fn newest(&self) -> Option<Arc<T>> {
        self.lock().newest.as_ref().map(|(_, seen)| seen.clone())
    }

    /// The same, and the first look is waited for, for at most this time.
    pub fn first(&self, patience: Duration) -> Option<Arc<T>> {
        let none = |state: &mut State<T>| state.newest.is_none();
        let waited = self.0.looked.wait_timeout_while(self.lock(), patience, none);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.newest()
    }

    /// Looks again soon if the last look is older than this.
    pub fn refresh(&self, age: Duration) {
        let mut state = self.lock();
        if state.newest.as_ref().is_some_and(|(at, _)| at.elapsed() >= age) {
            state.is_asked = true;
            self.0.asked.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_looked_at_again() {
        let mut number = 0;
        let look = move || {
            number += 1;
            number
        };
        let kept = Kept::start("test", Duration::from_secs(3600), look).unwrap();
        let patience = Duration::from_secs(30);
        assert_eq!(kept.first(patience).as_deref(), Some(&1));
        kept.refresh(Duration::from_secs(3600));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(kept.newest().as_deref(), Some(&1), "it is not that old");
        kept.refresh(Duration::ZERO);
        let end = Instant::now() + patience;
        while kept.newest().as_deref() != Some(&2) {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
    }
}
