//! The result of a benchmark as a table on the screen.

use std::fmt::Write as _;

use fullbore_core::completeness::counted;
use fullbore_core::units::ByteSize;
use fullbore_survey::bench::disk::mode_word;
use fullbore_survey::bench::result::{
    BenchResult, CommandRun, Comparison, Continuous, Curve, Direction, DutyRun, Level, Modifier,
    Pass, Spec, Spread, SweepPoint, Target,
};

/// The complete text.
pub fn text(result: &BenchResult) -> String {
    let mut text = machine(result);
    result.targets.iter().for_each(|target| text += &of_target(target));
    if !result.sweep.is_empty() {
        text += &sweep(result);
    }
    if let Some(long) = &result.continuous {
        text += &continuous(long);
    }
    if !result.comparisons.is_empty() {
        text += &comparisons(&result.comparisons);
    } else if !result.commands.is_empty() {
        text += &commands(&result.commands);
    }
    text += &promises(result);
    for note in &result.notes {
        let mark = match note.level {
            Level::Info => "note",
            Level::Warning => "warning",
        };
        let _ = writeln!(text, "{mark}: {}", note.text);
    }
    if result.interrupted {
        text += "interrupted: what was measured until then is above, and there is no verdict\n";
    }
    text
}

fn machine(result: &BenchResult) -> String {
    let machine = &result.environment;
    format!(
        "{} on {}: {}, {} CPUs, {} of memory, Linux {}\n",
        machine.program, machine.host, machine.cpu, machine.cpus, machine.memory, machine.kernel
    )
}

fn of_target(target: &Target) -> String {
    let mut facts = vec![];
    facts.extend(target.file_system.clone());
    if let Some(device) = &target.device {
        let model = target.model.as_ref().map_or(String::new(), |model| format!(" ({model})"));
        facts.push(format!("{device}{model}"));
    }
    if let (Some(speed), Some(width)) = (&target.link_speed, target.link_width) {
        facts.push(format!("{speed} ×{width}"));
    }
    facts.push(format!("sectors of {}", target.sector_bytes));
    facts.push(if target.direct { "direct".into() } else { "through the page cache".into() });
    format!("{}: {}, {} free of {}\n", target.path, facts.join(", "), target.free, target.capacity)
}

fn sweep(result: &BenchResult) -> String {
    let mut text = String::from("\nPeak, MB/s: mean ± deviation (least–most)\n");
    for (curve, title) in [
        (Curve::Session, "by session"),
        (Curve::Block, "by block"),
        (Curve::Depth, "by requests under way"),
        (Curve::Mode, "by way of moving bytes"),
        (Curve::Files, "by files"),
    ] {
        let points: Vec<&SweepPoint> =
            result.sweep.iter().filter(|point| point.curves.contains(&curve)).collect();
        if let Some(first) = points.first() {
            let _ = writeln!(text, "  {title} ({})", around(first, curve));
            text += &rows(&points, curve);
        }
    }
    text
}

/// The settings that are constant along a curve.
fn around(point: &SweepPoint, curve: Curve) -> String {
    let mut told = vec![];
    if curve != Curve::Session {
        told.push(format!("sessions of {}", binary(point.session_bytes)));
    }
    if !matches!(curve, Curve::Block | Curve::Session) {
        told.push(format!("blocks of {}", binary(point.block_bytes)));
    }
    if curve != Curve::Depth {
        told.push(format!("{} under way", point.depth));
    }
    if curve != Curve::Mode {
        told.push(mode_word(point.mode).into());
    }
    told.join(", ")
}

/// One row per point of the curve, with writing beside reading.
fn rows(points: &[&SweepPoint], curve: Curve) -> String {
    let mut names: Vec<String> = vec![];
    for point in points {
        let name = name(point, curve);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = format!(
        "    {:<12} {:>30} {:>30} {:>8} {:>11}\n",
        "", "write", "read", "CPU s/GB", "slowest ms"
    );
    for row in names {
        let find = |direction| {
            points.iter().find(|point| point.direction == direction && name(point, curve) == row)
        };
        let (write, read) = (find(Direction::Write), find(Direction::Read));
        let some = write.or(read).expect("the name is that of a point");
        let cell = |point: Option<&&SweepPoint>| point.map_or("–".into(), |point| spread(point));
        let _ = writeln!(
            text,
            "    {row:<12} {:>30} {:>30} {:>8.3} {:>11.1}{}",
            cell(write),
            cell(read),
            some.cpu_s_per_gb,
            some.slowest_ms,
            modified(some)
        );
        for (way, point) in [("write", write), ("read", read)] {
            text += &point.map_or(String::new(), |point| iterations(way, point));
        }
    }
    text
}

/// The rate of each run, if requested.
fn iterations(way: &str, point: &SweepPoint) -> String {
    if point.iterations.is_empty() {
        return String::new();
    }
    let each: Vec<String> =
        point.iterations.iter().map(|rate| format!("{:.0}", rate / 1e6)).collect();
    format!(
        "      {way}: {}; mean {:.1}, standard deviation {:.1}\n",
        each.join(", "),
        point.rate.mean / 1e6,
        point.rate.deviation / 1e6
    )
}

fn name(point: &SweepPoint, curve: Curve) -> String {
    match curve {
        Curve::Session => binary(point.session_bytes),
        Curve::Block => binary(point.block_bytes),
        Curve::Depth => point.depth.to_string(),
        Curve::Mode => mode_word(point.mode).into(),
        Curve::Files => point.files.to_string(),
    }
}

fn spread(point: &SweepPoint) -> String {
    let rate = &point.rate;
    let [mean, deviation, least, most] =
        [rate.mean, rate.deviation, rate.least, rate.most].map(|rate| rate / 1e6);
    let cut = if point.cut_by_time { "*" } else { "" };
    match rate.runs {
        1 => format!("{mean:.0}{cut}"),
        _ => format!("{mean:.0} ± {deviation:.0} ({least:.0}–{most:.0}){cut}"),
    }
}

/// The cost of blocks that end within a sector, as text.
fn modified(point: &SweepPoint) -> String {
    let Some(modified) = &point.read_modify_write else { return String::new() };
    let by = match modified.by {
        Modifier::Program => "read-modify-write of sectors",
        Modifier::Kernel => "read-modify-write in the page cache",
    };
    let more = (modified.extra_read_bytes + modified.extra_written_bytes) as f64
        / point.moved_bytes.max(1) as f64;
    let ratio = modified
        .ratio_to_aligned
        .map_or(String::new(), |ratio| format!(", {ratio:.2} of the rate of whole sectors"));
    match modified.by {
        Modifier::Program => format!("  {by}: {:.0} % more bytes{ratio}", more * 100.0),
        Modifier::Kernel => format!("  {by}{ratio}"),
    }
}

fn continuous(long: &Continuous) -> String {
    let mut text = String::from("\nContinuous\n");
    let pass = |name: &str, pass: &Pass| {
        format!(
            "  {name:<10} {:>9} in {:.1} s: {}, {:.3} CPU s/GB\n",
            ByteSize(pass.bytes),
            pass.seconds,
            megabytes(pass.rate),
            pass.cpu_s_per_gb
        )
    };
    text += &pass("written", &long.write);
    if let Some(rate) = long.paced {
        let lost = ByteSize(long.overrun_bytes);
        let _ = writeln!(text, "  paced at {rate} with a ring of {}: {lost} overrun", long.ring);
    }
    if let Some(bytes) = long.wrap {
        let _ = writeln!(
            text,
            "  wrapped    within {bytes}, {:.1} times",
            long.write.bytes as f64 / bytes.0.max(1) as f64
        );
    }
    if let Some(duty) = &long.duty {
        text += &scans(duty);
    }
    if let Some(read) = &long.read {
        text += &pass("read back", read);
    }
    if let Some(found) = &long.verification {
        let bytes = ByteSize(found.compared_bytes);
        let _ = match &found.first {
            None => writeln!(text, "  compared   {bytes} with {}: all as written", long.pattern),
            Some(first) => writeln!(
                text,
                "  compared   {bytes} with {}: {} WRONG; {first}",
                long.pattern,
                counted(found.wrong_blocks, "block")
            ),
        };
    }
    for cliff in &long.cliffs {
        let _ = writeln!(
            text,
            "  cliff      after {} ({:.1} s): from {} to {}; {}",
            ByteSize(cliff.position),
            cliff.at_s,
            megabytes(cliff.before),
            megabytes(cliff.after),
            cliff.likely
        );
    }
    if let Some(settled) = &long.settled {
        let _ = writeln!(
            text,
            "  settled    {} over {} in {:.1} s: the rates and rings below are those of this stretch",
            megabytes(settled.rate),
            ByteSize(settled.bytes),
            settled.seconds
        );
    }
    for sensor in &long.temperatures {
        let hottest = sensor.readings.iter().map(|(_, celsius)| *celsius).fold(f64::MIN, f64::max);
        let limit = sensor.limit_c.map_or(String::new(), |limit| format!(" of {limit:.0} °C"));
        let _ = writeln!(text, "  {}: {hottest:.0} °C at most{limit}", sensor.sensor);
    }
    for counter in long.throttling.iter().filter(|counter| counter.after > counter.before) {
        let _ = writeln!(text, "  {} rose by {}", counter.counter, counter.after - counter.before);
    }
    for member in &long.members {
        let _ = writeln!(
            text,
            "  {}: {}, longest write {:.1} ms",
            member.path,
            megabytes(member.rate),
            member.longest_ms
        );
    }
    text + &stalls(long) + &rings(long)
}

/// The scans of a duty cycle in two lines.
fn scans(duty: &DutyRun) -> String {
    let rates = Spread::of(&duty.scans.iter().map(|scan| scan.rate).collect::<Vec<_>>());
    let drained = duty.scans.iter().map(|scan| scan.drained_s).fold(0.0, f64::max);
    let pauses: u64 = duty.scans.iter().map(|scan| scan.pause_bytes).sum();
    format!(
        "  duty cycle {} s / {} s, {}: {} each on average, {} the slowest\n  \
         in pauses  {} written, in {drained:.1} s of a pause at most\n",
        duty.record_s,
        duty.pause_s,
        counted(duty.scans.len() as u64, "scan"),
        megabytes(rates.mean),
        megabytes(rates.least),
        ByteSize(pauses),
    )
}

fn stalls(long: &Continuous) -> String {
    let mut text = String::new();
    let stalls = &long.stalls;
    let percentiles: Vec<String> =
        stalls.percentiles.iter().map(|p| format!("p{} {:.1}", p.percent, p.ms)).collect();
    let _ = writeln!(
        text,
        "  stalls     {} writes, ms: {}, longest {:.1}; nothing completed for {:.1} ms at most",
        stalls.writes,
        percentiles.join(", "),
        stalls.longest_ms,
        stalls.longest_silence_ms
    );
    let windows: Vec<String> = long
        .worst_windows
        .iter()
        .map(|window| format!("{} s {:.0}", window.seconds, window.rate / 1e6))
        .collect();
    if !windows.is_empty() {
        let _ = writeln!(text, "  worst      MB/s in any window of {}", windows.join(", "));
    }
    text
}

fn rings(long: &Continuous) -> String {
    let mut text = String::from(
        "  ring       what each rate would have needed, what each ring would have held\n",
    );
    let left = long.ring_for_rate.iter().map(|row| {
        let more = if row.unbounded { " and more" } else { "" };
        let bytes = megabytes(row.rate.0 as f64);
        format!("{:>14} {bytes:>11} {:>10}{more:<9}", row.rate.to_string(), row.ring.to_string())
    });
    let right = long.rate_for_ring.iter().map(|row| {
        let bytes = megabytes(row.rate.0 as f64);
        format!("{:>10} {:>14} {bytes:>11}", row.ring.to_string(), row.rate.to_string())
    });
    let (left, right): (Vec<String>, Vec<String>) = (left.collect(), right.collect());
    for n in 0..left.len().max(right.len()) {
        let empty = String::new();
        let (left, right) = (left.get(n).unwrap_or(&empty), right.get(n).unwrap_or(&empty));
        let _ = writeln!(text, "    {left:<48}   {right}");
    }
    let best = &long.recommended;
    if long.write.bytes == 0 {
        return text;
    }
    let _ =
        writeln!(text, "  sustained  {} ({})", best.sustained, megabytes(best.sustained.0 as f64));
    let _ = writeln!(
        text,
        "  recommended {} ({}): {}",
        best.rate,
        megabytes(best.rate.0 as f64),
        best.margin
    );
    text
}

/// The commands for repeating the job by hand, if it was not run here.
fn commands(commands: &[CommandRun]) -> String {
    let mut text = String::from("\nThe same job by fio, not run here\n");
    for one in commands {
        let _ = writeln!(text, "  {}", one.command);
    }
    text
}

fn comparisons(comparisons: &[Comparison]) -> String {
    let mut text = String::from("\nThe same job by others\n");
    for one in comparisons {
        let way = match one.direction {
            Direction::Write => "write",
            Direction::Read => "read",
        };
        let pages = if one.huge_pages { "huge pages" } else { "4 KiB pages" };
        let theirs = match (&one.rate, &one.skipped) {
            (Some(rate), _) => format!(
                "{} ({:.3} CPU s/GB), ours over theirs {:.2}",
                megabytes(*rate),
                one.cpu_s_per_gb.unwrap_or(0.0),
                one.ratio.unwrap_or(0.0)
            ),
            (None, Some(why)) => format!("not run: {why}"),
            (None, None) => "not run".into(),
        };
        let _ = writeln!(
            text,
            "  {way:<5} ours {} ({:.3} CPU s/GB); {} with {pages}: {theirs}",
            megabytes(one.ours),
            one.ours_cpu_s_per_gb,
            one.program,
        );
        let _ = writeln!(text, "        {}", one.command);
    }
    text
}

/// The data sheet, the warranty and the requirement.
fn promises(result: &BenchResult) -> String {
    let mut text = String::new();
    for (way, spec) in [("write", &result.spec), ("read", &result.spec_read)] {
        text += &spec.as_ref().map_or(String::new(), |spec| of_spec(way, spec));
    }
    if let Some(life) = &result.endurance {
        let _ = write!(
            text,
            "\nEndurance: {:.1} TB a day at {} ({})",
            life.tb_per_day,
            life.rate,
            megabytes(life.rate.0 as f64)
        );
        if let Some(share) = life.recording_share {
            let _ = write!(text, " for {:.0} % of the time", share * 100.0);
        }
        if let Some(writes) = life.drive_writes_per_day {
            let _ = write!(text, ", {writes:.1} drive writes per day");
        }
        if let (Some(tbw), Some(days)) = (life.tbw, life.days) {
            let _ = write!(text, "; {tbw:.0} TB warranted last {days:.0} days of 24 hours");
        }
        text.push('\n');
    }
    if let Some(verdict) = &result.verdict {
        let _ = write!(text, "{}: {}", verdict.word(), verdict.sentence);
        // A run that shows nothing has no margin.
        match verdict.not_shown {
            true => text.push('\n'),
            false => text += &format!(" (margin {:+.0} %)\n", verdict.margin * 100.0),
        }
    }
    text
}

/// One direction, compared with the data sheet and the system's own benchmark.
fn of_spec(way: &str, spec: &Spec) -> String {
    let percent =
        |ratio: Option<f64>| ratio.map_or("–".into(), |ratio| format!("{:.0} %", ratio * 100.0));
    let beside = spec
        .continuous_over_system
        .map_or(String::new(), |ratio| format!("; continuous is {:.0} % of fio", ratio * 100.0));
    format!(
        "\nData sheet, {way} {}: peak {}, continuous {}, fio {} of it{beside}\n",
        megabytes(spec.rate.0 as f64),
        percent(spec.peak_ratio),
        percent(spec.continuous_ratio),
        percent(spec.system_ratio),
    )
}

fn megabytes(rate: f64) -> String {
    match rate {
        rate if rate > 0.0 && rate < 1e6 => format!("{:.0} kB/s", rate / 1e3),
        rate => format!("{:.0} MB/s", rate / 1e6),
    }
}

/// `128 KiB`, `4 GiB`, or bytes.
fn binary(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::units::ByteRate;
    use fullbore_survey::bench::result::{Environment, Kind, Mode, ReadModifyWrite, Verdict};

    use super::*;

    fn point(block_bytes: u64, direction: Direction) -> SweepPoint {
        SweepPoint {
            curves: vec![Curve::Block],
            direction,
            mode: Mode::Direct,
            session_bytes: 512 << 20,
            block_bytes,
            depth: 8,
            files: 1,
            moved_bytes: 1 << 30,
            rate: Spread::of(&[2.0e9, 2.2e9]),
            iterations: vec![],
            cpu_s_per_gb: 0.003,
            slowest_ms: 4.5,
            read_modify_write: None,
            cut_by_time: false,
        }
    }

    #[test]
    fn sizes_are_told_as_they_are_meant() {
        assert_eq!([128 << 10, 4 << 30, 5000].map(binary), ["128 KiB", "4 GiB", "5000 B"]);
    }

    #[test]
    fn a_sweep_shows_both_ways_in_one_row_and_names_the_cost_of_parts_of_sectors() {
        let mut result = BenchResult::new(Kind::Disk, Environment::default());
        let mut odd = point(5000, Direction::Write);
        odd.read_modify_write = Some(ReadModifyWrite {
            by: Modifier::Program,
            extra_read_bytes: 1 << 29,
            extra_written_bytes: 0,
            ratio_to_aligned: Some(0.25),
        });
        result.sweep = vec![point(1 << 20, Direction::Write), odd, point(1 << 20, Direction::Read)];
        let told = text(&result);
        let row = told.lines().find(|line| line.contains("1 MiB")).unwrap();
        assert_eq!(row.matches("2100 ± 141 (2000–2200)").count(), 2, "{told}");
        assert!(told.contains("read-modify-write of sectors: 50 % more bytes, 0.25 of"), "{told}");
    }

    #[test]
    fn a_verdict_is_the_last_word() {
        let mut result = BenchResult::new(Kind::Disk, Environment::default());
        let rate = ByteRate(2_000_000_000);
        result.verdict = Some(Verdict {
            in_bits: true,
            required: rate,
            sustained: ByteRate(1_000_000_000),
            holds: false,
            not_shown: false,
            margin: -0.5,
            sentence: format!("{rate} is not held by any ring"),
        });
        assert!(
            text(&result)
                .contains("DOES NOT HOLD: 16.0 Gbit/s is not held by any ring (margin -50 %)")
        );
    }
}
