//! What a PandA is set to, asked for while its samples come.
//!
//! How it was triggered is told by its settings and by nothing else, so they are kept with each
//! acquisition. They are asked for on a connection and a thread of their own: samples wait for no answer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::format::panda::PandaSource;
use fullbore_core::format::panda::control::Settings;

use crate::panda::{Control, Patience, with_cause};

/// The settings of a PandA, which may still be on their way.
#[derive(Clone, Debug, Default)]
pub struct Described(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

/// The settings, or why there are none.
pub type Answer = Result<Arc<Settings>, String>;

impl Described {
    /// Of a PandA that cannot be asked, as one that is only a file.
    pub fn never() -> Self {
        Described(None)
    }

    /// Asks.
    pub fn ask(source: PandaSource, patience: Patience) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let ask = move || {
            let answer = Control::connect(&source, patience).and_then(|mut it| it.settings());
            of_thread.put(answer.map(Arc::new).map_err(|error| with_cause(&error)));
        };
        if let Err(error) = std::thread::Builder::new().name("settings".into()).spawn(ask) {
            shared.put(Err(format!("starting a thread: {error}")));
        }
        Described(Some(shared))
    }

    /// The answer, for which is waited so long at most. Nothing: it has not come, or never will.
    pub fn wait(&self, most: Duration) -> Option<Answer> {
        let shared = self.0.as_ref()?;
        let waited = shared.answered.wait_timeout_while(shared.lock(), most, |it| it.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// What the account says if they could not be had.
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
