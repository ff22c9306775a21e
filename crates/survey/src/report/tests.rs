use super::*;
use crate::bench::result::{BenchResult, Direction, Environment, Spread, Stage};

/// A run of a drive with a cliff, written by hand.
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
    result.stages.push(stage(WHOLE_PATH, 2e9));
    assert_eq!(slowest(&result.stages).unwrap().name, "disk");
    let (page, told) = (html(&result), screen(&result));
    assert!(told.contains("The slowest stage is disk: 2.10 GB/s (what disk does)"), "{told}");
    assert!(page.contains("The slowest stage is disk") && page.contains("disk: what disk does"));
    assert!(page.contains("Far off the scale: ring-handover"), "it would leave nothing to see");
}

#[test]
fn a_path_slower_than_each_stage_is_not_said_to_be_limited_by_one() {
    let mut result = BenchResult::new(Kind::All, Environment::default());
    result.stages = vec![stage("copy", 9e9), stage("disk", 3.2e9), stage(WHOLE_PATH, 2.19e9)];
    for told in [html(&result), screen(&result)] {
        assert!(told.contains("No stage alone limits the path"), "{told}");
        assert!(!told.contains("The slowest stage is"), "{told}");
    }
}

#[test]
fn the_figures_of_stages_are_one_row_each() {
    let mut result = BenchResult::new(Kind::All, Environment::default());
    result.stages = vec![stage("receive", 2e9), stage(WHOLE_PATH, 2e9)];
    for each in &mut result.stages {
        each.figures.insert("wake_ups".into(), 7.0);
    }
    let page = html(&result);
    assert_eq!(page.matches(">wake ups<").count(), 1);
}

#[test]
fn a_quick_run_claims_no_more_than_it_shows() {
    let mut result = drive();
    let run = result.continuous.as_mut().unwrap();
    run.write.seconds = 3.0;
    run.cliffs.clear();
    let mean = run.write.rate;
    for point in &mut result.sweep {
        point.rate = Spread::of(&[mean]);
    }
    let page = html(&result);
    assert!(!page.contains("nothing here depended on a cache"), "three seconds show no cache");
    assert!(page.contains("but 3 s are too short to show a cache"));
    assert!(page.contains("3 s are too short to show a cliff"));
    assert!(!page.contains("whiskers are one standard deviation"), "there are none");
    assert!(!page.contains("Whiskers are the slowest"), "there are none");
    assert!(page.contains("One short run of each point"));
    assert!(!page.contains("per hour"), "three seconds are no hour");
}

#[test]
fn a_peak_of_reading_above_the_continuous_rate_is_told_too() {
    let mut result = drive();
    let read = result.continuous.as_ref().unwrap().read.as_ref().unwrap().rate;
    for point in result.sweep.iter_mut().filter(|it| it.direction == Direction::Read) {
        point.rate = Spread::of(&[read * 1.7]);
    }
    assert!(html(&result).contains("Reading, it is 1.7 times"));
}

#[test]
fn the_rate_asked_for_is_told_in_the_unit_that_was_typed() {
    let mut result = drive();
    assert!(html(&result).contains("Asked for: 1.00 GB/s;"));
    result.verdict.as_mut().unwrap().in_bits = true;
    let page = html(&result);
    assert!(page.contains("Asked for: 8.00 Gbit/s (1.00 GB/s);"));
    assert!(page.contains("sustained: 7.12 Gbit/s (890 MB/s)"));
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
