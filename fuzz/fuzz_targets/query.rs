//! Any text as a query of an index by content, and any bytes as such an index.
#![no_main]

use fullbore_analysis::content::{Content, query::Query};

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| check(input));

fn check((text, bytes): (&str, &[u8])) {
    let content = Content::decode(bytes);
    match text.parse::<Query>() {
        Ok(query) => {
            let again: Query = query.to_string().parse().expect("what is shown reads back");
            assert_eq!(again.to_string(), query.to_string());
            if let Ok(content) = content {
                let _ = query.find(&content);
            }
        }
        Err(error) => assert!(error.column <= text.chars().count() + 1),
    }
}
