//! The settings of a PandA, requested while samples arrive.
//!
//! Only the settings tell how an acquisition was triggered, so they are kept with each acquisition. A separate thread
//! requests them on its own connection, so that samples do not wait for an answer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::hint::with_causes;
use fullbore_core::panda::PandaSource;
use fullbore_formats::panda::control::Settings;

use crate::{ControlPort, Timeouts};

/// The settings of a PandA, which may not have arrived yet.
#[derive(Clone, Debug, Default)]
pub struct Described(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

/// The settings, or the reason why there are none.
pub type Answer = Result<Arc<Settings>, String>;

impl Described {
    /// For a PandA that has no control port, such as a file.
    pub fn never() -> Self {
        Described(None)
    }

    /// Starts the request for the settings.
    pub fn ask(source: PandaSource, timeouts: Timeouts) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let ask = move || {
            let answer = ControlPort::connect(&source, timeouts).and_then(|mut it| it.settings());
            of_thread.put(answer.map(Arc::new).map_err(|error| with_causes(&error)));
        };
        if let Err(error) = std::thread::Builder::new().name("settings".into()).spawn(ask) {
            shared.put(Err(format!("starting a thread: {error}")));
        }
        Described(Some(shared))
    }

    /// Waits at most `most` for the answer. Returns `None` if it has not arrived.
    pub fn wait(&self, most: Duration) -> Option<Answer> {
        let shared = self.0.as_ref()?;
        let waited = shared.answered.wait_timeout_while(shared.lock(), most, |it| it.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// True if the answer has arrived, or no answer is expected.
    pub fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.lock().is_some())
    }

    /// The account's note if the settings could not be read.
    pub fn note(&self) -> Option<String> {
        let why = self.wait(Duration::ZERO)?.err()?;
        Some(format!("the settings of the PandA are not known: {why}"))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, answer: Answer) {
        *self.lock() = Some(answer);
        self.answered.notify_all();
    }
}
