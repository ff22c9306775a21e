//! The environment of the measurement: machine, targets, notes, commands, terms.

use maud::{Markup, html};

use super::{page, text};
use crate::bench::result::{BenchResult, CommandRun, Environment, Level, Target, TargetKind};

/// The sections with all information needed to interpret and repeat the measurements.
pub fn sections(result: &BenchResult) -> Markup {
    html! {
        section { h2 { "Environment" } (environment(&result.environment)) }
        @for target in &result.targets {
            h3 { "Target " code { (target.path) } }
            (target_facts(target))
        }
        (notes(result))
        (commands(result))
        (words())
        footer {
            "Made by " (result.environment.program) " from the benchmark " code { (result.id) }
            ". This file is complete: it fetches nothing."
        }
    }
}

fn environment(machine: &Environment) -> Markup {
    let huge = machine.huge_pages.as_ref();
    page::facts(&[
        ("Host", Some(machine.host.clone())),
        ("Processor", Some(format!("{}, {} usable", machine.cpu, machine.cpus))),
        ("Architecture", Some(machine.architecture.clone())),
        ("Memory", Some(text::size(machine.memory.0 as f64))),
        ("Kernel", Some(machine.kernel.clone())),
        ("Virtual machine", machine.virtualization.clone()),
        ("Transparent huge pages", huge.cloned()),
        ("Memory that may be locked", machine.memlock.map(|limit| text::size(limit.0 as f64))),
        (
            "Program",
            Some(match machine.optimised {
                true => machine.program.clone(),
                false => {
                    format!("{}, built without optimisation: too slow to judge by", machine.program)
                }
            }),
        ),
    ])
}

fn target_facts(target: &Target) -> Markup {
    let kind = match target.kind {
        TargetKind::Directory => "directory",
        TargetKind::File => "file",
        TargetKind::BlockDevice => "block device",
        TargetKind::Host => "host",
    };
    let bytes = |bytes: u64| (bytes > 0).then(|| text::size(bytes as f64));
    let link = target.link_speed.as_ref().map(|speed| match target.link_width {
        Some(width) => format!("{speed}, {width} lanes"),
        None => speed.clone(),
    });
    let sectors = (target.sector_bytes > 0).then(|| match target.physical_sector_bytes {
        Some(physical) => format!("{} bytes, physically {physical}", target.sector_bytes),
        None => format!("{} bytes", target.sector_bytes),
    });
    let disk = target.kind != TargetKind::Host;
    page::facts(&[
        ("Kind", Some(kind.into())),
        ("File system", target.file_system.clone()),
        ("Mount options", target.mount_options.clone()),
        ("Device", target.device.clone()),
        ("Model", target.model.clone()),
        ("Firmware", target.firmware.clone()),
        ("Link", link),
        ("NUMA node", target.numa_node.map(|node| node.to_string())),
        ("Medium", target.rotational.map(|it| if it { "turns" } else { "solid state" }.into())),
        ("Write cache", target.write_cache.clone()),
        ("Scheduler", target.scheduler.clone()),
        ("Sector", sectors),
        ("Capacity", bytes(target.capacity.0)),
        ("Free at the beginning", bytes(target.free.0)),
        ("Writing", disk.then(|| way(target).into())),
    ])
}

/// The way of writing. Some file systems accept direct requests and cache them; a note reports that too.
fn way(target: &Target) -> &'static str {
    match (target.direct, target.file_system.as_deref()) {
        (true, _) => "past the page cache (O_DIRECT)",
        (false, Some("tmpfs" | "btrfs")) => {
            "through the page cache: direct requests are taken here, and cached all the same"
        }
        (false, _) => "through the page cache: direct requests are refused or cached here",
    }
}

fn notes(result: &BenchResult) -> Markup {
    html! {
        @if !result.notes.is_empty() {
            h2 { "Notes" }
            ul.notes {
                @for note in &result.notes {
                    @if note.level == Level::Warning {
                        li.warning { b { "Mind: " } (note.text) }
                    } @else {
                        li { (note.text) }
                    }
                }
            }
        }
    }
}

fn commands(result: &BenchResult) -> Markup {
    let (ran, not): (Vec<&CommandRun>, Vec<&CommandRun>) =
        result.commands.iter().partition(|command| command.ran);
    html! {
        h2 { "Commands" }
        p.lead { "This benchmark:" }
        (command(result.command.iter().map(|word| quoted(word))))
        @if !ran.is_empty() {
            p.lead { "Run in the course of it:" }
            @for it in ran { (command(it.command.split(' '))) }
        }
        @if !not.is_empty() {
            p.lead { "Not run here; they do the same job:" }
            @for it in not { (command(it.command.split(' '))) }
        }
    }
}

/// A command that is wrapped only between its words: without this, browsers break `--direct` after its hyphens.
fn command(words: impl Iterator<Item = impl AsRef<str>>) -> Markup {
    html! {
        pre {
            @for (number, word) in words.enumerate() {
                @if number > 0 { " " }
                span { (word.as_ref()) }
            }
        }
    }
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn words() -> Markup {
    html! {
        h2 { "What the words mean" }
        (page::facts(&[
            ("MB, GB, TB", Some("10⁶, 10⁹ and 10¹² bytes. KiB, MiB and GiB are powers of 1024; blocks are told in them.".into())),
            ("Peak", Some("the best mean of several short runs. Caches take part in it: no rate to record at.".into())),
            ("Continuous", Some("the mean of one long write over the stated part of the target, its last sync included.".into())),
            ("Sustained", Some("the highest rate that the ring at hand would have held in this run without losing a frame, by replaying the measured write times.".into())),
            ("Ring", Some("the block memory of a recording: what has come in and is not yet on disk waits there.".into())),
            ("Stall", Some("a time in which blocks are not written though some wait.".into())),
            ("Cliff", Some("a place where the rate changes for good: a cache is full, a drive is hot, the inner tracks begin.".into())),
            ("±", Some("one standard deviation of the runs.".into())),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("--require=2Gbit/s"), "--require=2Gbit/s");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
