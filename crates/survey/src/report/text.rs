//! Numbers in the format of reports: three significant digits, MB = 10⁶, blocks in KiB and MiB.

/// Three significant digits, with at most two decimals.
fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// The value in the largest unit in which it is at least 1.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "not known".into();
    }
    let last = steps.last().copied().unwrap_or((1.0, ""));
    let enough = |(step, _): &(f64, &str)| value.abs() >= step * 0.9995;
    let (step, unit) = steps.iter().copied().find(enough).unwrap_or(last);
    format!("{} {unit}", three_digits(value / step))
}

/// `6.41 GB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    if bytes_per_s == 0.0 {
        return "0 B/s".into();
    }
    scaled(bytes_per_s, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")])
}

/// A rate in the unit of the request: `500 MB/s`, or `4.00 Gbit/s (500 MB/s)`.
pub fn in_unit(bytes_per_s: f64, in_bits: bool) -> String {
    let told = rate(bytes_per_s);
    if !in_bits {
        return told;
    }
    format!("{} ({told})", fullbore_core::units::ByteRate(bytes_per_s as u64))
}

/// The required rate of a verdict, in the unit that was typed.
pub fn requested(verdict: &crate::bench::result::Verdict) -> String {
    in_unit(verdict.required.0 as f64, verdict.in_bits)
}

/// `960 GB`.
pub fn size(bytes: f64) -> String {
    if bytes == 0.0 {
        return "0 B".into();
    }
    scaled(bytes, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// `128 KiB`, `4 GiB`; a size that is no whole number of KiB is given in bytes.
pub fn block_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = |(bits, _): &(u32, &str)| bytes > 0 && bytes.is_multiple_of(1u64 << bits);
    match units.into_iter().find(whole) {
        Some((bits, unit)) => format!("{} {unit}", count(bytes >> bits)),
        None => format!("{} B", count(bytes)),
    }
}

/// `1.9 µs`, `46 ms`.
pub fn nanoseconds(ns: f64) -> String {
    if ns == 0.0 {
        return "0 s".into();
    }
    let told = scaled(ns, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]);
    // Round numbers need no decimals.
    told.replace(".00 ", " ").replace(".0 ", " ")
}

/// `46 ms`, for a value in milliseconds.
pub fn milliseconds(ms: f64) -> String {
    nanoseconds(ms * 1e6)
}

/// `27 s`, `34 min 33 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "not known".into();
    }
    if seconds < 100.0 {
        return nanoseconds(seconds * 1e9);
    }
    let whole = seconds.round() as u64;
    let parts = [
        (whole / 86_400, "d"),
        (whole / 3600 % 24, "h"),
        (whole / 60 % 60, "min"),
        (whole % 60, "s"),
    ];
    let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let told = parts[first..].iter().take(2).filter(|(number, _)| *number > 0);
    told.map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// A number with thin spaces between its thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut told = String::with_capacity(digits.len() * 2);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) && digits.len() > 4 {
            told.push('\u{202f}');
        }
        told.push(digit);
    }
    told
}

/// `12 %`, `0.3 %`, `−8 %`.
pub fn share(share: f64) -> String {
    if !share.is_finite() {
        return "not known".into();
    }
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    format!("{percent:.digits$} %").replace('-', "−")
}

/// Mean and standard deviation of rates: `6.41 ± 0.12 GB/s`; the mean alone of a single run.
pub fn spread(spread: &crate::bench::result::Spread) -> String {
    if spread.runs < 2 {
        return rate(spread.mean);
    }
    let mean = rate(spread.mean);
    let Some((number, unit)) = mean.split_once(' ') else { return mean };
    let step = match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        "kB/s" => 1e3,
        _ => 1.0,
    };
    let digits = number.split_once('.').map_or(0, |(_, places)| places.len());
    format!("{number} ± {:.digits$} {unit}", spread.deviation / step)
}

/// The last part of a path, and enough before it to recognise it.
pub fn short_path(path: &str) -> String {
    const MOST: usize = 48;
    let length = path.chars().count();
    if length <= MOST {
        return path.to_owned();
    }
    format!("…{}", path.chars().skip(length - MOST + 1).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::Spread;

    #[test]
    fn numbers_have_three_digits_and_one_unit() {
        assert_eq!(rate(6.412e9), "6.41 GB/s");
        assert_eq!(rate(999.7e6), "1.00 GB/s");
        assert_eq!(rate(442e6), "442 MB/s");
        assert_eq!((rate(0.0), rate(f64::NAN)), ("0 B/s".into(), "not known".into()));
        assert_eq!(size(960_197_033_984.0), "960 GB");
        assert_eq!(size(12.34e6), "12.3 MB");
    }

    #[test]
    fn blocks_are_told_in_whole_powers_of_two_or_in_bytes() {
        assert_eq!(block_size(131_072), "128 KiB");
        assert_eq!(block_size(4 << 30), "4 GiB");
        assert_eq!(block_size(1_000_000), "1\u{202f}000\u{202f}000 B");
        assert_eq!((block_size(512), block_size(0)), ("512 B".into(), "0 B".into()));
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        assert_eq!(nanoseconds(45_800_000.0), "45.8 ms");
        assert_eq!((nanoseconds(1e6), nanoseconds(1900.0)), ("1 ms".into(), "1.90 µs".into()));
        assert_eq!(seconds(27.0), "27 s");
        assert_eq!(seconds(2073.0), "34 min 33 s");
        assert_eq!((seconds(7500.0), seconds(86_400.0)), ("2 h 5 min".into(), "1 d".into()));
    }

    #[test]
    fn a_spread_has_the_digits_of_its_mean() {
        assert_eq!(spread(&Spread::of(&[6.3e9, 6.5e9])), "6.40 ± 0.14 GB/s");
        assert_eq!(spread(&Spread::of(&[442e6])), "442 MB/s");
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!((share(0.123), share(-0.084)), ("12 %".into(), "−8.4 %".into()));
    }
}
