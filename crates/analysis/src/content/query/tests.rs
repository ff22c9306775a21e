//! Queries: read, shown, and answered.

use proptest::prelude::*;

use super::super::file::tests::content;
use super::*;

fn found(query: &str) -> Vec<(f64, f64)> {
    let query: Query = query.parse().unwrap_or_else(|error| panic!("{error}"));
    query.find(&content()).unwrap().into_iter().map(|it| (it.begins_s, it.seconds)).collect()
}

#[test]
fn seconds_are_found_by_what_they_contain() {
    for (query, seconds) in [
        ("power(ch0) > -20.5 dB", vec![(0.0, 2.0)]),
        ("power(ch0) >= -20dB for 2s", vec![(0.0, 2.0)]),
        ("power(ch0) > -20 dB for 1s", vec![(0.0, 1.0)]),
        ("power(ch0) > -20 dB for 2s", vec![]),
        ("power(ch1:1) > -4", vec![(0.0, 2.0)]),
        ("power(any) < -20", vec![(2.0, 1.0)]),
        ("not power(any) < -20", vec![(0.0, 2.0), (3.0, 1.0)]),
        ("absent(any) > 10%", vec![(2.0, 2.0)]),
        ("absent(ch0) >= 25 % and power(ch1) > -30 dB", vec![(2.0, 1.0)]),
        ("burst(ch0) > 9 dB", vec![(0.0, 1.0)]),
        ("burst(ch1) > 0 dB", vec![]),
        ("(power(ch0) > -1 or absent(ch0) > 99 %) for 500 ms", vec![(0.0, 1.0), (3.0, 1.0)]),
    ] {
        assert_eq!(found(query), seconds, "{query}");
    }
    let query: Query = "power(ch0) < -100".parse().unwrap();
    let found = query.find(&content()).unwrap();
    assert_eq!(found[0].time, Some(Tai(2_000_000_000)));
}

#[test]
fn errors_point_at_the_place() {
    for (text, column, expected) in [
        ("", 1, "`power(…)`"),
        ("power", 6, "`(`"),
        ("power(3) > 1", 7, "`any`"),
        ("power(ch3 > -20 dB", 11, "`)`"),
        ("power(ch3) = 1", 12, "`>`"),
        ("power(ch3) > x", 14, "a number"),
        ("power(ch3) > 1 %", 16, "`and`"),
        ("power(ch3) > 1 for 1", 21, "`ms`"),
        ("µ power(ch3) > 1", 1, "`power(…)`"),
        ("(power(ch3) > 1", 16, "`)`"),
        ("power(ch3) > 1 and", 19, "`power(…)`"),
    ] {
        let error = text.parse::<Query>().unwrap_err();
        assert_eq!(
            (error.column, error.expected.split([',', ' ']).next().unwrap_or_default()),
            (column, expected.split([',', ' ']).next().unwrap_or_default()),
            "{text}: {error}"
        );
        let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[2].chars().count(), column + 2, "{error}");
    }
    let deep = "(".repeat(4000);
    assert!(deep.parse::<Query>().unwrap_err().expected.contains("parentheses"));
    assert!("not ".repeat(1000).parse::<Query>().is_err());
    assert!(" ".repeat(5000).parse::<Query>().unwrap_err().expected.contains("4096"));
}

#[test]
fn conditions_on_samples_have_bands_and_levels() {
    for (text, shown) in [
        ("power(ch3) > -20 dB for 10 ms", "(power(ch3) > -20 dB) for 0.01s"),
        ("power(ch0, 1.5MHz..2MHz)>-40", "power(ch0, 1500000Hz..2000000Hz) > -40 dB"),
        ("power(any, -10 .. 10) < 3 dB", "power(any, -10Hz..10Hz) < 3 dB"),
        ("not level(ch1:2) <= 12000", "not (level(ch1:2) <= 12000)"),
    ] {
        let query = Query::of_samples(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(query.to_string(), shown);
        assert_eq!(Query::of_samples(shown), Ok(query));
        assert!(
            text.contains("ch3") || text.parse::<Query>().is_err(),
            "an index has none: {text}"
        );
    }
    for (text, column) in [
        ("burst(ch0) > 3", 1),
        ("absent(any) > 3", 1),
        ("power(ch0, 2kHz..1kHz) > 0", 18),
        ("power(ch0, 1..) > 0", 15),
        ("power(ch0, ..1) > 0", 12),
        ("level(ch0, 1..2) > 0", 10),
        ("level(ch0) > 1 dB", 16),
    ] {
        assert_eq!(Query::of_samples(text).unwrap_err().column, column, "{text}");
    }
}

#[test]
fn a_channel_that_is_not_there_is_an_error() {
    let query: Query = "power(ch7) > 0".parse().unwrap();
    let error = query.find(&content()).unwrap_err().to_string();
    assert_eq!(error, "46220 has no channel ch7; it has ch1:0, ch1:1");
}

fn queries() -> impl Strategy<Value = Query> {
    let quantity =
        prop_oneof![Just(Quantity::Power), Just(Quantity::Burst), Just(Quantity::Absent)];
    let comparison = prop_oneof![
        Just(Comparison::Above),
        Just(Comparison::AtLeast),
        Just(Comparison::Below),
        Just(Comparison::AtMost)
    ];
    let line = prop::option::of((prop::option::of(0u16..3), 0usize..3));
    let line = line.prop_map(|line| line.map(|(thread, channel)| LineId { thread, channel }));
    let condition = (quantity, line, comparison, -100i32..100);
    let condition = condition.prop_map(|(quantity, line, comparison, number)| {
        let number = f64::from(number) / 8.0;
        Query::Condition(Condition { quantity, line, comparison, number })
    });
    condition.prop_recursive(4, 24, 3, |part| {
        prop_oneof![
            prop::collection::vec(part.clone(), 2..4).prop_map(Query::Or),
            prop::collection::vec(part.clone(), 2..4).prop_map(Query::And),
            part.clone().prop_map(|part| Query::Not(Box::new(part))),
            (part, 0u8..5).prop_map(|(part, seconds)| Query::For(Box::new(part), seconds.into())),
        ]
    })
}

proptest! {
    #[test]
    fn a_query_that_is_shown_reads_back(query in queries()) {
        let text = query.to_string();
        let read: Query = text.parse().map_err(|error: QueryError| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read.to_string(), text);
        let (one, other) = (query.find(&content()), read.find(&content()));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_place_in_it(text in "[powerbustan()ch0-9:<>=%dB fmsµ.+-]{0,60}") {
        for error in [text.parse::<Query>().err(), Query::of_samples(&text).err()].into_iter().flatten() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error);
        }
    }
}
