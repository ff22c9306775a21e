//! What a thread looks at again and again, so that no request waits for a disk or a program.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The newest look at something. Clones are handles of the same.
#[derive(Debug)]
pub struct Kept<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    asked: Condvar,
}

#[derive(Debug)]
struct State<T> {
    newest: Option<Arc<T>>,
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
        let kept = Self(Arc::new(Shared { state, asked: Condvar::new() }));
        let shared = kept.0.clone();
        thread::Builder::new().name(name.into()).spawn(move || {
            loop {
                let seen = Arc::new(look());
                let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.newest = Some(seen);
                let idle = |state: &mut State<T>| !state.is_asked;
                let waited = shared.asked.wait_timeout_while(state, every, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0.is_asked = false;
            }
        })?;
        Ok(kept)
    }

    /// What was seen last. `None` before the first look is over.
    pub fn newest(&self) -> Option<Arc<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).newest.clone()
    }

    /// Looks again soon.
    pub fn again(&self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).is_asked = true;
        self.0.asked.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_asked_for_is_looked_at_again() {
        let mut number = 0;
        let look = move || {
            number += 1;
            number
        };
        let kept = Kept::start("test", Duration::from_secs(3600), look).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let until = |wanted: i32| {
            while kept.newest().is_none_or(|it| *it < wanted) {
                assert!(Instant::now() < end);
                thread::sleep(Duration::from_millis(1));
            }
        };
        until(1);
        kept.again();
        until(2);
    }
}
