use super::*;
use crate::bench::result::{BenchResult, Environment, Spread, Stage};

/// A run of a drive with a cliff, written down by hand.
const DRIVE: &str = include_str!("../../tests/data/drive.json");

fn drive() -> BenchResult {
    serde_json::from_str(DRIVE).expect("the fixture follows the schema")
}

#[test]
fn the_page_is_whole_and_fetches_nothing() {
    let page = html(&drive());
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "not a page");
    for outside in ["http://", "https://", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside} is in the page");
    }
    for id in ["time", "position", "ring", "histogram", "percentiles", "beside", "stages"] {
        let title = format!("id=\"{id}-title\"");
        let there = page.matches(&title).count();
        assert!(there <= 1, "{id} is there {there} times");
    }
    assert!(page.matches("role=\"img\"").count() >= 8);
}

#[test]
fn every_chart_says_what_it_shows() {
    let page = html(&drive());
    let charts = page.matches("role=\"img\"").count();
    assert_eq!(page.matches("<desc id=").count(), charts);
    assert_eq!(page.matches("-title\">").count(), charts);
}

#[test]
fn the_verdict_and_the_commands_are_on_page_and_screen() {
    let mut result = drive();
    let (page, told) = (html(&result), screen(&result));
    for it in [&page, &told] {
        assert!(it.contains("FAIL") && !it.contains("PASS"), "{it}");
    }
    assert!(page.contains("--require") && page.contains("<span>fio</span> <span>--name="));
    let verdict = result.verdict.as_mut().unwrap();
    verdict.holds = true;
    assert!(html(&result).contains("PASS") && screen(&result).contains("PASS"));
}

fn stage(name: &str, rate: f64) -> Stage {
    Stage {
        name: name.into(),
        what: format!("what {name} does"),
        rate: Spread::of(&[rate, rate * 1.1]),
        cpu_s_per_gb: Some(0.1),
        threads: 1,
        figures: Default::default(),
    }
}

#[test]
fn the_slowest_stage_has_a_name_and_the_whole_path_is_none_of_them() {
    let mut result = BenchResult::new(Kind::All, Environment::default());
    result.stages = vec![stage("copy", 9e9), stage("ring-handover", 7e12), stage("disk", 2e9)];
    result.stages.push(stage(WHOLE_PATH, 1.5e9));
    assert_eq!(slowest(&result.stages).unwrap().name, "disk");
    let (page, told) = (html(&result), screen(&result));
    assert!(told.contains("The slowest stage is disk: 2.10 GB/s (what disk does)"), "{told}");
    assert!(page.contains("The slowest stage is disk"));
    assert!(page.contains("Far off the scale: ring-handover"), "it would leave nothing to see");
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let evil = "\"><script>alert('x')</script>&";
    let mut result = drive();
    result.environment.host = evil.into();
    result.environment.cpu = evil.into();
    result.command = vec![evil.into()];
    result.targets[0].path = evil.into();
    result.targets[0].model = Some(evil.into());
    result.notes[0].text = evil.into();
    result.comparisons[0].program = evil.into();
    result.commands[0].command = evil.into();
    let run = result.continuous.as_mut().unwrap();
    run.cliffs[0].likely = evil.into();
    run.temperatures[0].sensor = evil.into();
    run.recommended.margin = evil.into();
    result.verdict.as_mut().unwrap().sentence = evil.into();
    let page = html(&result);
    assert!(!page.contains("<script"), "something was not escaped");
    assert!(page.matches("&lt;script&gt;").count() >= 12);
}

#[test]
fn a_result_without_anything_is_still_a_page() {
    let mut empty = drive();
    (empty.sweep, empty.comparisons, empty.stages) = (Vec::new(), Vec::new(), Vec::new());
    (empty.notes, empty.commands, empty.targets) = (Vec::new(), Vec::new(), Vec::new());
    (empty.continuous, empty.spec, empty.endurance, empty.verdict) = (None, None, None, None);
    assert!(html(&empty).contains("Environment"));
}

#[test]
fn figures_that_are_no_numbers_draw_no_nonsense() {
    let mut odd = drive();
    let run = odd.continuous.as_mut().unwrap();
    for bin in &mut run.write.over_time {
        (bin.rate, bin.slowest_ms) = (f64::NAN, f64::INFINITY);
    }
    run.write.over_position.clear();
    run.stalls.percentiles.iter_mut().for_each(|it| it.ms = f64::NAN);
    odd.sweep.iter_mut().for_each(|point| point.rate.mean = f64::NAN);
    let page = html(&odd);
    assert!(!page.contains("NaN") && !page.contains("=\"inf"), "a number went astray");
}

#[test]
fn a_peak_below_the_continuous_rate_is_not_told_as_agreement() {
    let mut result = drive();
    let mean = result.continuous.as_ref().unwrap().write.rate;
    for (factor, words) in [
        (3.0, "3.0 times the continuous rate"),
        (1.0, "Short and long runs agree"),
        (0.5, "only 50 % of the continuous rate"),
    ] {
        result.sweep.iter_mut().for_each(|point| point.rate.mean = mean * factor);
        assert!(html(&result).contains(words), "{words}");
    }
}

#[test]
fn file_systems_that_cache_direct_requests_are_not_said_to_refuse_them() {
    let mut result = drive();
    let target = &mut result.targets[0];
    (target.direct, target.file_system) = (false, Some("tmpfs".into()));
    assert!(html(&result).contains("direct requests are taken here, and cached all the same"));
    assert!(!html(&result).contains("refused"));
}
