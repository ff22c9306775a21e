//! The sentences of an account: each once, and a limited number.

/// The largest number of different sentences; further ones are only counted.
const LISTED: usize = 100;

/// Sentences, and the number of times that each was added.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    told: Vec<(String, u64)>,
    unlisted: u64,
}

impl Notes {
    /// Adds a sentence, or counts its repetition.
    pub(super) fn push(&mut self, text: String) {
        if let Some((_, count)) = self.told.iter_mut().find(|(told, _)| *told == text) {
            *count += 1;
        } else if self.told.len() < LISTED {
            self.told.push((text, 1));
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns all sentences, in the order of their first occurrence.
    pub(super) fn into_texts(self) -> Vec<String> {
        let text = |(text, count)| match count {
            1 => text,
            count => format!("{text} ({count} times)"),
        };
        let more = (self.unlisted > 0).then(|| format!("and {} more of the kind", self.unlisted));
        self.told.into_iter().map(text).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_counted_and_all_of_it_has_a_bound() {
        let mut notes = Notes::default();
        for n in 0..1000 {
            notes.push("connection lost".to_owned());
            notes.push(format!("joined again: {n} samples in between are lost"));
        }
        let texts = notes.into_texts();
        assert_eq!((texts[0].as_str(), texts.len()), ("connection lost (1000 times)", LISTED + 1));
        assert_eq!(texts[LISTED], "and 901 more of the kind");
    }
}
