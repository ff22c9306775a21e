//! Lists of processors in the kernel's notation: `0-3,8,10-11`.

/// The highest supported number of processors; a list with a higher number is invalid.
pub const MOST_CPUS: usize = 8192;

/// Parses a list. Returns `None` if it is invalid. An empty text is an empty list.
pub fn parse(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for span in text.trim().split(',').filter(|span| !span.is_empty()) {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (usize, usize) = (number(first)?, number(last)?);
        if last < first || cpus.len() + (last - first) >= MOST_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn number(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|&cpu| cpu < MOST_CPUS)
}

/// Returns `core 3` or `cores 0-3,8`, for people.
pub fn in_words(cpus: impl IntoIterator<Item = usize>) -> String {
    let mut cpus: Vec<usize> = cpus.into_iter().collect();
    cpus.sort_unstable();
    cpus.dedup();
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for &cpu in &cpus {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => spans.push((cpu, cpu)),
        }
    }
    let spans: Vec<String> = spans
        .into_iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    match cpus.len() {
        0 => "any core".to_owned(),
        1 => format!("core {}", spans[0]),
        _ => format!("cores {}", spans.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("\n"), Some(vec![]));
        for bad in ["x", "3-1", "1-", "-1", "0-99999999", "1;2", "0-8000,0-8000"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_list_is_said_in_spans() {
        assert_eq!(in_words([5]), "core 5");
        assert_eq!(in_words([8, 0, 1, 2, 1]), "cores 0-2,8");
        assert_eq!(in_words([]), "any core");
    }

    proptest! {
        #[test]
        fn what_is_said_reads_back_as_it_was(cpus in prop::collection::btree_set(0usize..64, 1..20)) {
            let said = in_words(cpus.iter().copied());
            let list = said.split_once(' ').unwrap().1;
            prop_assert_eq!(parse(list).unwrap(), cpus.into_iter().collect::<Vec<_>>());
        }
    }
}
