//! Any text as a query of an index by content and as a condition on samples, and any bytes as such an index.
#![no_main]

use fullbore_analysis::content::{Content, query::Query};

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| check(input));

fn check((text, bytes): (&str, &[u8])) {
    let content = Content::decode(bytes);
    match Query::of_samples(text) {
        Ok(query) => match Query::of_samples(&query.to_string()) {
            Ok(again) => assert_eq!(again.to_string(), query.to_string()),
            Err(error) => assert!(["fewer", "4096"].iter().any(|it| error.expected.contains(it))),
        },
        Err(error) => assert!(error.column <= text.chars().count() + 1),
    }
    match text.parse::<Query>() {
        Ok(query) => {
            // What is shown has more parentheses, so it may be too deep or too long.
            match query.to_string().parse::<Query>() {
                Ok(again) => assert_eq!(again.to_string(), query.to_string()),
                Err(error) => assert!(["fewer", "4096"].iter().any(|it| error.expected.contains(it))),
            }
            if let Ok(content) = content {
                let _ = query.find(&content);
            }
        }
        Err(error) => assert!(error.column <= text.chars().count() + 1),
    }
}
