//! Results as CSV and as lines of text.

use std::fmt::Write;

use super::{Line, Report};

/// A table: a row for each frequency, time or level, and columns for each line. Powers are in squares of levels.
pub fn csv(report: &Report) -> String {
    let name = |line: &Line| line.name.replace(['"', ',', '\n'], " ");
    let mut text = String::new();
    let unit = if report.sample_rate_known { "frequency_hz" } else { "cycles_per_sample" };
    match report.product {
        "waterfall" => {
            let _ = writeln!(text, "seconds,{unit},channel,power");
            for line in &report.lines {
                let rows = report.seconds.iter().zip(&line.rows);
                for (second, row) in rows.filter_map(|(second, row)| Some((second, row.as_ref()?)))
                {
                    for (frequency, power) in report.frequency.iter().zip(row) {
                        let _ = writeln!(text, "{second},{frequency},{},{power:e}", name(line));
                    }
                }
            }
        }
        "histogram" => {
            text += "level";
            for line in &report.lines {
                let name = name(line);
                let _ = write!(text, ",count {name},fraction {name},expected {name}");
            }
            text += "\n";
            for (place, level) in report.levels.iter().enumerate() {
                let _ = write!(text, "{level}");
                for line in &report.lines {
                    let (count, fraction) = (line.counts[place], line.fractions[place]);
                    let _ = write!(text, ",{count},{fraction:.9},{:.9}", line.expected[place]);
                }
                text += "\n";
            }
        }
        "cross" => {
            let _ = writeln!(text, "{unit},power,phase_degrees,coherence");
            for line in &report.lines {
                for (place, frequency) in report.frequency.iter().enumerate() {
                    let power = line.power[place].unwrap_or(f64::NAN);
                    let (phase, coherence) = (line.phase_degrees[place], line.coherence[place]);
                    let _ = writeln!(text, "{frequency},{power:e},{phase:.6},{coherence:.9}");
                }
            }
        }
        _ => {
            let (first, places) = match report.product {
                "series" => ("seconds", &report.seconds),
                _ => (unit, &report.frequency),
            };
            text += first;
            report.lines.iter().for_each(|line| {
                let _ = write!(text, ",power {}", name(line));
            });
            text += "\n";
            for (place, at) in places.iter().enumerate() {
                let _ = write!(text, "{at}");
                for line in &report.lines {
                    let _ = match line.power[place] {
                        Some(power) => write!(text, ",{power:e}"),
                        None => write!(text, ","),
                    };
                }
                text += "\n";
            }
        }
    }
    text
}

/// The most lines of a summary.
const MOST_LINES: usize = 64;

/// A line for each channel, and what was left out.
pub fn summary(report: &Report) -> String {
    let mut text = format!("{}: {}", report.input, report.samples);
    if let Some(start) = &report.start {
        let _ = write!(text, ", from {start}");
    }
    text.push('\n');
    for line in report.lines.iter().take(MOST_LINES) {
        let _ = writeln!(text, "  {}", told(report, line));
    }
    if report.lines.len() > MOST_LINES {
        let _ = writeln!(text, "  and {} more channels", report.lines.len() - MOST_LINES);
    }
    let _ = write!(
        text,
        "{} segments of {} samples ({} window)",
        report.segments, report.segment_samples, report.window
    );
    if report.segments_left_out > 0 {
        let _ = write!(text, ", {} left out with absent samples", report.segments_left_out);
    }
    text.push('\n');
    for loss in &report.losses {
        let _ = writeln!(text, "  {loss}");
    }
    text
}

fn told(report: &Report, line: &Line) -> String {
    let name = &line.name;
    let powers = || line.power.iter().copied().flatten();
    let strongest = || powers().enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
    match report.product {
        "spectrum" | "cross" => {
            let Some((place, power)) = strongest() else { return format!("{name}: nothing") };
            let unit = if report.sample_rate_known { "Hz" } else { "cycles per sample" };
            let (frequency, peak) = (report.frequency[place], report.decibels(power));
            match line.phase_degrees.get(place) {
                Some(phase) => format!(
                    "{name}: strongest at {frequency} {unit} ({peak:.2} dB, {phase:.1}°, coherence {:.3})",
                    line.coherence[place]
                ),
                None => {
                    let total = report.decibels(powers().sum());
                    format!(
                        "{name}: {total:.2} dB in all, strongest at {frequency} {unit} ({peak:.2} dB)"
                    )
                }
            }
        }
        "series" => {
            let (count, sum) =
                powers().fold((0, 0.0), |(count, sum), power| (count + 1, sum + power));
            let (least, most) = powers()
                .fold((f64::INFINITY, 0.0f64), |(least, most), it| (least.min(it), most.max(it)));
            let [mean, least, most] =
                [sum / f64::from(count.max(1)), least, most].map(|power| report.decibels(power));
            format!("{name}: mean {mean:.2} dB, from {least:.2} to {most:.2} dB")
        }
        "histogram" => {
            let (mean, deviation) = (line.mean.unwrap_or(0.0), line.deviation.unwrap_or(0.0));
            let head = format!("{name}: mean {mean:.4}, deviation {deviation:.4}");
            if line.fractions.len() > 4 {
                return head;
            }
            let percent = |shares: &[f64]| {
                shares
                    .iter()
                    .map(|share| format!("{:.1}", share * 100.0))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            format!(
                "{head}, at the levels {} % (Gaussian: {} %)",
                percent(&line.fractions),
                percent(&line.expected)
            )
        }
        _ => {
            let rows = line.rows.iter().filter(|row| row.is_some()).count();
            format!("{name}: {rows} rows of {} channels", report.frequency.len())
        }
    }
}
