//! Advice of errors, and the text of errors with their causes and advice.

use std::borrow::Cow;
use std::error::Error;

/// An error that may have advice: what to do next, apart from the message, which says what happened.
///
/// An error that wraps another passes its advice on. The trait is here because this is the lowest crate whose errors
/// have advice; the crates above use it as `fullbore_core::hint`.
///
/// ```
/// use std::borrow::Cow;
///
/// use fullbore_formats::hint::{Hint, explained};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("{0} is no port")]
/// struct NoPort(u32);
///
/// impl Hint for NoPort {
///     fn hint(&self) -> Option<Cow<'static, str>> {
///         Some("give one from 1 to 65535".into())
///     }
/// }
///
/// assert_eq!(explained(&NoPort(70_000)), "70000 is no port\n  give one from 1 to 65535");
/// ```
pub trait Hint: Error {
    /// One sentence of advice, if there is any.
    fn hint(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// Returns an error with its causes, in one line. Some errors include their cause: it is not repeated.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text += &format!(": {more}");
        }
        cause = error.source();
    }
    text
}

/// Returns an error with its causes, and its advice on a line of its own.
pub fn explained(error: &dyn Hint) -> String {
    let advice = error.hint().map(|advice| format!("\n  {advice}"));
    with_causes(error) + &advice.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Failed(&'static str, #[source] Option<Box<Failed>>);

    #[test]
    fn a_cause_that_an_error_includes_is_not_repeated() {
        let opening = Failed("/x: no such file", Some(Failed("no such file", None).into()));
        let playing = Failed("playing", Some(opening.into()));
        assert_eq!(with_causes(&playing), "playing: /x: no such file");
    }
}
