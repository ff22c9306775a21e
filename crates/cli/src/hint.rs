//! Error messages for users: each cause once, and advice on a separate line.

use std::borrow::Cow;

use fullbore_core::hint::{Hint, with_causes};

/// The error, with its advice below.
pub fn explained<E: Hint + Send + Sync + 'static>(error: E) -> anyhow::Error {
    let advice = error.hint();
    with_advice(error.into(), advice)
}

/// The same, preceded by the operation.
pub fn explained_of<E: Hint + Send + Sync + 'static>(what: &str, error: E) -> anyhow::Error {
    let advice = error.hint();
    with_advice(anyhow::Error::from(error).context(what.to_owned()), advice)
}

/// An error of another crate, with advice below.
pub fn with_advice(error: anyhow::Error, advice: Option<Cow<'static, str>>) -> anyhow::Error {
    match advice {
        Some(advice) => anyhow::anyhow!("{}\n  {advice}", with_causes(&*error)),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use fullbore_engine::recorder::RecordError;

    use super::*;

    #[test]
    fn what_to_do_stands_on_a_line_of_its_own() {
        let error = explained(RecordError::NoMember);
        assert_eq!(
            with_causes(&*error),
            "no member of the disk set was given\n  give a directory with --store"
        );
    }
}
