//! Stages on a terminal: columns, with the verdict at the end, where it remains visible.

use super::stages::{called, figure, limit, spoken};
use super::{name, subject, text};
use crate::bench::result::{BenchResult, Kind, Level, Stage};

/// The text of a benchmark of stages.
pub fn screen(result: &BenchResult) -> String {
    let begun = result.started.replace('T', " ").replace('Z', " UTC");
    let mut told = format!(
        "{} of {}, {begun}, {}\n",
        name(result.kind),
        subject(result),
        text::seconds(result.seconds)
    );
    told += &stages(result);
    told += &notes(result);
    told += &verdict(result);
    told
}

/// Rows as columns: the first one left-aligned, the others right-aligned.
pub fn columns(heads: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let lines = || [&heads].into_iter().chain(rows);
    let width = |column: usize| {
        lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..heads.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut told = String::new();
    for line in lines() {
        let mut row = String::from(" ");
        for (number, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width - cell.chars().count());
            row +=
                &if number == 0 { format!(" {cell}{blanks}") } else { format!("  {blanks}{cell}") };
        }
        told += row.trim_end();
        told.push('\n');
    }
    told
}

fn stages(result: &BenchResult) -> String {
    if result.stages.is_empty() {
        return String::new();
    }
    let several = result.stages.iter().any(|stage| stage.threads > 1);
    let row = |stage: &Stage| {
        vec![
            called(stage, several),
            text::spread(&stage.rate),
            text::rate(stage.rate.least),
            text::rate(stage.rate.most),
            stage.cpu_s_per_gb.map_or("–".into(), |cost| format!("{cost:.3}")),
        ]
    };
    let rows: Vec<Vec<String>> = result.stages.iter().map(row).collect();
    let heads = ["stage", "rate", "slowest", "fastest", "CPU s/GB"];
    let mut told = format!("\n{}", columns(&heads, &rows));
    for stage in &result.stages {
        let figures: Vec<String> = stage
            .figures
            .iter()
            .map(|(name, value)| format!("{} {}", spoken(name), figure(name, *value)))
            .collect();
        if !figures.is_empty() {
            told += &format!("  {}: {}\n", called(stage, several), figures.join(", "));
        }
    }
    if let Some(sentence) = limit(&result.stages).filter(|_| result.kind == Kind::All) {
        told += &format!("\n{sentence}\n");
    }
    told
}

fn notes(result: &BenchResult) -> String {
    let mut told = String::new();
    for note in &result.notes {
        let mind = if note.level == Level::Warning { "MIND: " } else { "" };
        told += &format!("  {mind}{}\n", note.text);
    }
    if told.is_empty() { told } else { format!("\n{told}") }
}

fn verdict(result: &BenchResult) -> String {
    let mut told = String::new();
    if result.interrupted {
        told += "\nINTERRUPTED: what stands here was measured; the rest is not there, and there is no verdict.\n";
    }
    if let Some(verdict) = &result.verdict {
        told += &format!("\n{}: {}\n", verdict.grade(), verdict.sentence);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "1".to_owned()], vec!["bbb".to_owned(), "22 ±".to_owned()]];
        let told = columns(&["x", "y"], &rows);
        assert_eq!(told, "  x       y\n  a       1\n  bbb  22 ±\n");
        assert_eq!(columns(&["x"], &[]), "");
    }
}
