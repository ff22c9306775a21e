//! The account of a sender in words.

use super::{Gap, Kind, UnderrunAccount};

/// The most gaps that are told in words; JSON has more of them.
const MOST_LINES: usize = 8;

/// `1.9 µs`, `31 ms`.
pub fn short_time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

impl UnderrunAccount {
    /// The account as lines: the counts, and the first gaps.
    pub fn lines(&self) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "account  {} datagrams planned: {} sent on time, {} late (by more than {}), {} not sent\n",
            counts.planned,
            counts.on_time,
            counts.late,
            short_time(self.late_after_ns),
            counts.not_sent,
        );
        self.gaps.iter().take(MOST_LINES).for_each(|gap| text += &line(gap));
        let more = self.gaps.len().saturating_sub(MOST_LINES) as u64 + self.gaps_not_listed;
        if more > 0 {
            text += &format!("  gaps   {more} more; --json lists up to {}\n", super::MOST_GAPS);
        }
        text
    }
}

fn line(gap: &Gap) -> String {
    let Gap { stream, first, packets, .. } = gap;
    let which = match packets {
        1 => format!("datagram {first}"),
        _ => format!("datagrams {first} to {}", first + packets - 1),
    };
    let due = gap.due_seconds.map_or_else(String::new, |due| format!(", due after {due:.3} s"));
    let (title, late) = match gap.kind {
        Kind::Late => {
            let most = (gap.most_late_seconds * 1e9) as u64;
            ("late", format!(", up to {} late", short_time(most)))
        }
        Kind::NotSent => ("unsent", String::new()),
    };
    format!("  {title:<6} {stream}: {which}{due}{late}: {}\n", gap.cause.words())
}

#[cfg(test)]
mod tests {
    use crate::underrun::{Cause, Underruns};

    #[test]
    fn the_first_line_has_the_counts_and_each_gap_its_packets_and_cause() {
        let mut account = Underruns::new(["a".to_owned()], 1_000_000);
        account.sent(0, Some(0), 0);
        account.sent(0, Some(1_000_000), 20_000_000);
        account.sent(0, Some(2_000_000), 19_000_000);
        account.not_sent(0, None, 1, Cause::Refused);
        let told = account.finish().lines();
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "account  4 datagrams planned: 1 sent on time, 2 late (by more than 1.0 ms), 1 not sent",
                "  late   a: datagrams 1 to 2, due after 0.001 s, up to 20.0 ms late: \
                 the sending thread got too little CPU time",
                "  unsent a: datagram 3: the kernel refused them: a transmit queue was full",
            ]
        );
    }

    #[test]
    fn many_gaps_are_counted_in_one_line() {
        let mut account = Underruns::new(["a".to_owned()], 1_000_000);
        for n in 0..40 {
            account.sent(0, Some(n), n % 2 * 2_000_000);
        }
        let told = account.finish().lines();
        assert!(told.ends_with("  gaps   12 more; --json lists up to 1000\n"), "{told}");
    }
}
