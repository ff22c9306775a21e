//! Lists of threads, as options and endpoints name them.

/// The highest number of a thread: it has ten bits.
const HIGHEST: u16 = 1023;

/// Reads `0-7,9`; no thread twice.
pub fn thread_list(text: &str) -> Result<Vec<u16>, String> {
    let bad = || format!("threads are numbers from 0 to {HIGHEST}, such as 0-7,9");
    let number = |text: &str| text.parse().ok().filter(|&thread| thread <= HIGHEST).ok_or_else(bad);
    let mut threads = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        if range.is_empty() {
            return Err(bad());
        }
        for thread in range {
            if threads.contains(&thread) {
                return Err(format!("thread {thread} is listed twice"));
            }
            threads.push(thread);
        }
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges_and_no_thread_twice() {
        assert_eq!(thread_list("0-2,9"), Ok(vec![0, 1, 2, 9]));
        for text in ["", "1024", "3-2", "1,1", "0-2,2", "a"] {
            assert!(thread_list(text).is_err(), "{text}");
        }
    }
}
