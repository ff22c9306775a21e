//! Short lists of stream names: `46220–46227, 46230`.

/// The names, with runs of consecutive numbers as ranges, and no more than `most` entries.
pub fn ranges(names: &[&str], most: usize) -> String {
    let runs = runs(names);
    let hidden: usize = runs.iter().skip(most).map(|run| run.names).sum();
    let mut shown: Vec<String> = runs.iter().take(most).map(Run::text).collect();
    if hidden > 0 {
        shown.push(format!("{hidden} more"));
    }
    shown.join(", ")
}

/// Names that differ only in a number that increases by one.
struct Run {
    first: String,
    last: String,
    names: usize,
}

impl Run {
    fn text(&self) -> String {
        match self.names {
            1 => self.first.clone(),
            2 => format!("{}, {}", self.first, self.last),
            _ => format!("{}–{}", self.first, self.last),
        }
    }

    /// True if a name is the next one: the same stem, and the following number in the same format.
    fn continues_with(&self, name: &str) -> bool {
        let ((stem, number), (next_stem, next)) = (parts(&self.last), parts(name));
        let zeros = |name: &str, stem: &str| name[stem.len()..].starts_with('0');
        let padded = zeros(&self.last, stem) || zeros(name, next_stem);
        stem == next_stem
            && number.and_then(|it| it.checked_add(1)).is_some_and(|it| Some(it) == next)
            && (!padded || self.last.len() == name.len())
    }
}

fn runs(names: &[&str]) -> Vec<Run> {
    let mut sorted = names.to_vec();
    sorted.sort_by_key(|name| parts(name));
    let mut runs: Vec<Run> = Vec::new();
    for name in sorted {
        match runs.last_mut() {
            Some(run) if run.continues_with(name) => {
                run.last = name.to_owned();
                run.names += 1;
            }
            _ => runs.push(Run { first: name.to_owned(), last: name.to_owned(), names: 1 }),
        }
    }
    runs
}

/// The text before the number at the end of a name, and the number.
fn parts(name: &str) -> (&str, Option<u64>) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_become_a_range() {
        let text = |names: &[&str]| ranges(names, 8);
        assert_eq!(text(&["46220", "46221", "46222", "46223"]), "46220–46223");
        assert_eq!(text(&["46220", "46221", "46224"]), "46220, 46221, 46224");
        assert_eq!(text(&["9", "11", "10"]), "9–11");
        assert_eq!(text(&["left", "right"]), "left, right");
        assert_eq!(text(&["panda1", "panda2", "panda3", "46220"]), "46220, panda1–panda3");
        assert_eq!(text(&["a08", "a09", "a10"]), "a08–a10");
        assert_eq!(text(&["a08", "a9", "a010"]), "a08, a9, a010");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let names: Vec<String> = (0..64).map(|number| (2 * number).to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(ranges(&names, 3), "0, 2, 4, 61 more");
    }
}
