//! `fullbore bench compare`: the changes between two results, compared with noise.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args as Arguments;
use fullbore_survey::bench::compare::{
    Comparison, Figure, Judgement, Unit, before, compare, last_two,
};
use fullbore_survey::bench::history;
use fullbore_survey::bench::result::BenchResult;
use fullbore_survey::report;

use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output, count};

/// Compare two results: what changed, and is it more than noise?
///
///   fullbore bench compare before.json after.json
///   fullbore bench compare after.json   with the previous one in the history
///   fullbore bench compare              the last two of a target in the history
///
/// The exit code is 1 if a figure is worse by more than its spread and the threshold. Differences of machine and
/// settings come first.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The earlier and the later result, as `--output` wrote them
    #[arg(value_name = "RESULT", num_args = 0..=2)]
    results: Vec<PathBuf>,
    /// Allowed loss of a figure, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    threshold: f64,
    /// Show every figure, not only those that differ
    #[arg(long)]
    all: bool,
}

/// Runs the comparison.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(
        (0.0..=1000.0).contains(&args.threshold),
        "--threshold is 0 to 1000 percent, not {}",
        args.threshold
    );
    let (earlier, later) = two(&args.results)?;
    let comparison = compare(&earlier, &later, args.threshold / 100.0);
    ensure!(
        !comparison.figures.is_empty(),
        "the two results have no figure in common: they measured different things"
    );
    output.tell(&comparison, || told(&comparison, args.all))?;
    Ok(ExitCode::from(if comparison.worse { FOUND } else { GOOD }))
}

fn two(paths: &[PathBuf]) -> anyhow::Result<(BenchResult, BenchResult)> {
    let read = |path: &PathBuf| history::read(path).map_err(explained);
    match paths {
        [earlier, later] => Ok((read(earlier)?, read(later)?)),
        [later] => {
            let later = read(later)?;
            let kept = kept()?;
            let earlier = before(&kept, &later).cloned();
            let earlier =
                earlier.context("the history has no earlier result of the same target")?;
            Ok((earlier, later))
        }
        [] => {
            let kept = kept()?;
            let (earlier, later) = last_two(&kept)
                .context("the history has no two results of one target: run the benchmark again")?;
            Ok((earlier.clone(), later.clone()))
        }
        _ => bail!("two results are compared, not {}", paths.len()),
    }
}

/// The results in the history; unreadable ones are skipped with a warning.
fn kept() -> anyhow::Result<Vec<BenchResult>> {
    let directory = history::directory().map_err(explained)?;
    let paths = history::list(&directory).map_err(explained)?;
    let mut results = Vec::new();
    for path in paths {
        match history::read(&path) {
            Ok(result) => results.push(result),
            Err(error) => output::note(format_args!("{error}")),
        }
    }
    Ok(results)
}

fn told(comparison: &Comparison, all: bool) -> String {
    let [earlier, later] = &comparison.started;
    let mut text = format!("{earlier} and {later}\n");
    for it in &comparison.circumstances {
        let mind = if it.weighty { "MIND: another " } else { "another " };
        text += &format!("  {mind}{}: {} and {}\n", it.name, it.values[0], it.values[1]);
    }
    let matters = |figure: &&Figure| all || figure.judgement != Judgement::Same;
    let row = |figure: &Figure| {
        vec![
            match figure.unit {
                Unit::BytesPerSecond => figure.name.clone(),
                Unit::CpuPerGb => format!("{}, CPU s/GB", figure.name),
                Unit::Milliseconds => figure.name.clone(),
            },
            value(figure, 0),
            value(figure, 1),
            signed(figure.change),
            figure.noise.map_or("not known".into(), report::share),
            figure.judgement.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = comparison.figures.iter().filter(matters).map(row).collect();
    let heads = ["figure", "before", "after", "change", "noise", ""];
    if !rows.is_empty() {
        text += &format!("\n{}", report::columns(&heads, &rows));
    }
    let count = |judgement| comparison.count(judgement);
    text += &format!(
        "\n{} compared: {} worse, {} better, {} within the threshold, {} the same, {} not judged",
        comparison.figures.len(),
        count(Judgement::Worse),
        count(Judgement::Better),
        count(Judgement::Slight),
        count(Judgement::Same),
        count(Judgement::NotJudged)
    );
    if comparison.unmatched > 0 {
        text += &format!("; {} that only one of them has", comparison.unmatched);
    }
    text + &format!(".\n{}\n", conclusion(comparison))
}

/// The conclusion: figures that are worse, and the number of figures not judged or not compared.
fn conclusion(comparison: &Comparison) -> String {
    use Judgement::{Better, NotJudged, Same, Slight, Worse};
    let weighty = comparison.circumstances.iter().any(|it| it.weighty);
    let not_judged = comparison.count(NotJudged);
    let judged: usize = [Worse, Better, Slight, Same].map(|it| comparison.count(it)).iter().sum();
    let partial = not_judged > 0 || comparison.unmatched > 0;
    let verdict = match (comparison.worse, weighty) {
        (true, false) => "WORSE: by more than noise and the threshold.",
        (true, true) => "WORSE, but machine or settings differ: the difference may be theirs.",
        (false, _) if judged == 0 && partial => "No figure was judged.",
        (false, false) if partial => "Nothing judged is worse.",
        (false, true) if partial => "Nothing judged is worse, though machine or settings differ.",
        (false, false) => "Nothing is worse by more than noise and the threshold.",
        (false, true) => "Nothing is worse, though machine or settings differ.",
    };
    let mut text = verdict.to_owned();
    if not_judged > 0 {
        text += &format!(
            " Not judged: {not_judged} of {}, since their run-to-run variation is unknown (give more --runs, or write \
             for longer).",
            comparison.figures.len()
        );
    }
    if comparison.unmatched > 0 {
        let figures = count(comparison.unmatched, "figure");
        text += &format!(" Not compared: {figures} that only one of the results has.");
    }
    text
}

fn value(figure: &Figure, which: usize) -> String {
    let spread = &figure.values[which];
    match figure.unit {
        Unit::BytesPerSecond => report::spread(spread),
        Unit::CpuPerGb => format!("{:.3}", spread.mean),
        Unit::Milliseconds => report::milliseconds(spread.mean),
    }
}

fn signed(change: f64) -> String {
    let told = report::share(change);
    if change > 0.0 { format!("+{told}") } else { told }
}

#[cfg(test)]
mod tests {
    use fullbore_survey::bench::compare::Circumstance;
    use fullbore_survey::bench::result::Spread;

    use super::*;

    fn comparison(judgements: &[(Judgement, usize)], weighty: bool) -> Comparison {
        let figure = |judgement| Figure {
            name: "copy".into(),
            unit: Unit::BytesPerSecond,
            values: [Spread::of(&[1e9]), Spread::of(&[5e8])],
            change: -0.5,
            noise: None,
            judgement,
        };
        let values = ["a".into(), "b".into()];
        Comparison {
            results: Default::default(),
            started: Default::default(),
            threshold: 0.05,
            circumstances: vec![Circumstance { name: "host".into(), values, weighty }],
            figures: judgements
                .iter()
                .flat_map(|(judgement, times)| vec![figure(*judgement); *times])
                .collect(),
            unmatched: 0,
            worse: judgements.iter().any(|(judgement, _)| *judgement == Judgement::Worse),
        }
    }

    #[test]
    fn the_conclusion_tells_how_many_figures_were_not_judged() {
        use Judgement::{NotJudged, Same, Shown, Worse};
        let of = |judgements: &[_], weighty| conclusion(&comparison(judgements, weighty));
        let most = of(&[(Same, 2), (NotJudged, 26)], false);
        let why = "since their run-to-run variation is unknown";
        let start = format!("Nothing judged is worse. Not judged: 26 of 28, {why}");
        assert!(most.starts_with(&start), "{most}");
        let elsewhere = of(&[(Same, 2), (NotJudged, 26)], true);
        assert!(elsewhere.starts_with("Nothing judged is worse, though machine"), "{elsewhere}");
        let none = of(&[(Shown, 1), (NotJudged, 3)], true);
        assert!(none.starts_with(&format!("No figure was judged. Not judged: 3 of 4, {why}")));
        let worse = of(&[(Worse, 1), (NotJudged, 3)], false);
        assert!(worse.starts_with("WORSE: ") && worse.contains("Not judged: 3 of 4"), "{worse}");
        let all = of(&[(Same, 2), (Shown, 1)], false);
        assert_eq!(all, "Nothing is worse by more than noise and the threshold.");
    }

    #[test]
    fn the_conclusion_tells_how_many_figures_only_one_result_has() {
        use Judgement::{NotJudged, Same, Worse};
        let of = |judgements: &[_], unmatched| {
            conclusion(&Comparison { unmatched, ..comparison(judgements, false) })
        };
        let alone = "Not compared: 66 figures that only one of the results has.";
        assert_eq!(of(&[(Same, 2)], 66), format!("Nothing judged is worse. {alone}"));
        assert!(
            of(&[(Worse, 1)], 66).starts_with("WORSE: ") && of(&[(Worse, 1)], 66).ends_with(alone)
        );
        let both = of(&[(NotJudged, 3)], 66);
        assert!(
            both.starts_with("No figure was judged. Not judged: 3 of 3") && both.ends_with(alone)
        );
    }
}
