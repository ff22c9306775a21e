//! The verbs that work on stored scans, through the binary.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use fullbore_core::gap::Cause;
use fullbore_core::manifest::Copied;
use fullbore_store::lock::ScanLock;
use fullbore_store::testing::{FRAME_BYTES, Laid, Store, StreamPlan};
use serde_json::Value;

fn fullbore(store: &Store, words: &[&str]) -> Output {
    let roots: Vec<String> = store.roots().iter().map(|it| it.display().to_string()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullbore"));
    command.args(words).env("FULLBORE_STORE", roots.join(",")).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs, checks the exit code, and gives standard output.
fn told(store: &Store, words: &[&str], code: i32) -> String {
    let output = fullbore(store, words);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{out}\n{err}");
    out
}

/// Runs what cannot run, and gives standard error.
fn refused(store: &Store, words: &[&str]) -> String {
    let output = fullbore(store, words);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    assert!(error.starts_with("fullbore: ") || error.starts_with("error: "), "{error}");
    error
}

fn json(store: &Store, words: &[&str], code: i32) -> Value {
    serde_json::from_str(&told(store, words, code)).unwrap()
}

fn two_streams(store: &Store) -> Laid {
    let first = StreamPlan::vdif("a").gap(40, 3, Cause::Missing);
    store.lay_down("r1_a", &[first, StreamPlan::varying("b").frames(300)])
}

#[test]
fn ls_lists_each_scan_with_its_state() {
    let store = Store::new(2);
    two_streams(&store);
    store.lay_down("r1_b", &[StreamPlan::vdif("a").unsealed()]);
    let broken = store.lay_down("r2_c", &[StreamPlan::vdif("a")]);
    for member in 0..2 {
        std::fs::write(broken.manifest_path(0, member), "{").unwrap();
    }
    let list = told(&store, &["ls"], 0);
    let states: Vec<Vec<&str>> = list
        .lines()
        .skip(1)
        .take(3)
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(states, [["r1_a", "sealed"], ["r1_b", "unsealed"], ["r2_c", "broken"]], "{list}");
    let list = json(&store, &["ls", "r1_a", "--json"], 0);
    assert_eq!(list[0]["streams"], 2);
    assert_eq!(list[0]["verdict"], "unproven");
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[test]
fn a_scan_without_one_of_its_members_is_never_shown_as_whole() {
    let store = Store::new(3);
    two_streams(&store);
    let (given, absent) = (store.roots()[..2].to_vec(), store.roots()[2].display().to_string());
    let given: Vec<String> = given.iter().map(|root| root.display().to_string()).collect();
    let partly = ["--store", &given.join(",")];
    let list = told(&store, &[&["ls"], &partly[..]].concat(), 0);
    assert!(list.lines().nth(1).unwrap().ends_with("unproven, 1 member not attached"), "{list}");
    assert!(list.contains(&format!("r1_a: {absent} is not attached")), "{list}");
    let list = json(&store, &[&["ls", "--json"], &partly[..]].concat(), 0);
    assert_eq!(list[0]["absent"][0], *absent);
    let info = told(&store, &[&["info", "r1_a"], &partly[..]].concat(), 0);
    assert!(info.contains(&format!("member {absent}: NOT ATTACHED")), "{info}");
    let recovered = told(&store, &[&["recover", "r1_a"], &partly[..]].concat(), 0);
    assert!(recovered.contains(&format!("{absent} is not attached")), "{recovered}");
    assert!(!told(&store, &["ls"], 0).contains("attached"));
}

#[test]
fn every_verb_takes_a_scan_by_the_beginning_of_its_name_and_with_store_before_it() {
    let store = Store::new(2);
    two_streams(&store);
    for name in ["r1_a", "r1", "store:r1_a", "store:r1"] {
        assert!(told(&store, &["verify", name], 3).contains(" intact: "), "{name}");
        assert!(told(&store, &["info", name], 0).contains("r1_a sealed"), "{name}");
        assert!(told(&store, &["recover", name], 0).contains("nothing was done"), "{name}");
        let stream = format!("{name}/b");
        assert!(!told(&store, &["info", &stream], 0).contains("r1_a_dsa"), "{name}");
        assert_eq!(fullbore(&store, &["cat", &stream]).status.code(), Some(0), "{name}");
        assert!(refused(&store, &["rm", &stream, "--yes"]).contains("removed whole"));
        assert!(refused(&store, &["verify", &stream]).contains("verified whole"));
        assert!(refused(&store, &["recover", &stream]).contains("recovered whole"));
        let play = ["play", &stream, "--to", "udp://127.0.0.1:9", "--flat-out", "--json"];
        assert_eq!(json(&store, &play, 0)["streams"].as_array().unwrap().len(), 1);
    }
    let play = ["play", "r1", "--to", "udp://127.0.0.1:9-10", "--flat-out", "--json"];
    let report = json(&store, &play, 0);
    let targets: Vec<&str> =
        (0..2).map(|n| report["streams"][n]["target"].as_str().unwrap()).collect();
    assert!(targets[0].contains(":9") && targets[1].contains(":10"), "{targets:?}");
    for verb in ["verify", "info", "cat", "recover", "play"] {
        let to = if verb == "play" { &["--to", "udp://127.0.0.1:9"][..] } else { &[] };
        let error = refused(&store, &[&[verb, "r1_a/c"], to].concat());
        assert!(error.contains("r1_a"), "{error}");
        let error = refused(&store, &[&[verb, "nope"], to].concat());
        assert!(error.contains("fullbore ls"), "{error}");
    }
    told(&store, &["rm", "store:r1", "--yes"], 0);
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let store = Store::new(1);
    for verb in [vec!["ls"], vec!["verify", "x"], vec!["info", "x"], vec!["rm", "x", "--yes"]] {
        let words = [verb, vec!["--store", "/nowhere/at/all"]].concat();
        assert!(refused(&store, &words).contains("/nowhere/at/all"), "{words:?}");
    }
    for verb in ["verify", "info", "cat", "recover"] {
        let error = refused(&store, &[verb, "r9_x"]);
        assert!(error.contains("r9_x"), "{error}");
    }
}

#[test]
fn verify_tells_good_from_bad_by_its_exit_code_and_names_the_file() {
    let store = Store::new(2);
    let laid = two_streams(&store);
    assert!(told(&store, &["verify", "r1_a"], 3).contains(" intact: "));
    assert_eq!(json(&store, &["verify", "--all", "--json"], 3)["good"], true);
    let path = laid.chunk_path(0, 2);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = told(&store, &["verify", "r1_a"], 1);
    assert!(report.contains(&format!("! {}: block 6", path.display())), "{report}");
    let report = json(&store, &["verify", "r1_a", "--json"], 1);
    assert_eq!(report["findings"][0]["what"], "blocks-damaged");
    assert_eq!(report["findings"][0]["file"], path.display().to_string());
    refused(&store, &["verify"]);
}

#[test]
fn info_shows_the_account_and_where_the_scan_lies() {
    let store = Store::new(2);
    let laid = two_streams(&store);
    let info = told(&store, &["info", "r1", "--full"], 0);
    for expected in ["is sealed", "unexplained", "3 frames from 40 on missing", "2026-11-21T18"] {
        assert!(info.contains(expected), "{expected} is not in\n{info}");
    }
    for member in 0..2 {
        assert!(info.contains(&laid.directory(1, member).display().to_string()), "{info}");
    }
    let info = json(&store, &["info", "r1_a", "--json"], 0);
    assert_eq!(info["accounts"][0]["terms"]["missing"], 3);
    assert_eq!(info["manifest"]["scan"]["session"], "r1");
}

#[test]
fn cat_gives_the_bytes_whole_in_part_and_without_fill() {
    let store = Store::new(3);
    let laid = two_streams(&store);
    let cat = |words: &[&str]| {
        let output = fullbore(&store, &[&["cat"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        output.stdout
    };
    let (whole, frame) = (&laid.bytes[0], FRAME_BYTES as usize);
    assert!(cat(&["r1_a/a"]) == *whole);
    assert!(cat(&["r1_a", "--stream", "b"]) == laid.bytes[1]);
    assert!(cat(&["r1_a/a", "--from", "5", "--to", "700"]) == whole[5 * frame..700 * frame]);
    assert!(cat(&["r1_a/a", "--from", "+2s", "--to", "+3s"]) == whole[200 * frame..300 * frame]);
    let from = "2026-11-21T18:00:09.99";
    assert!(cat(&["r1_a/a", "--from", from]) == whole[999 * frame..]);
    let kept = [&whole[..40 * frame], &whole[43 * frame..]].concat();
    assert!(cat(&["r1_a/a", "--no-fill"]) == kept);
    let error = refused(&store, &["cat", "r1_a"]);
    assert!(error.contains("a, b"), "the streams to choose from: {error}");
    assert!(refused(&store, &["cat", "r1_a/c"]).contains("no stream c"));
    refused(&store, &["cat", "r1_a/a", "--from", "noon"]);
    refused(&store, &["cat", "r1_a/a", "--from", "9", "--to", "8"]);
    assert!(refused(&store, &["cat", "r1_a/a", "--from", "7", "--to", "7"]).contains("no frame"));
    assert!(refused(&store, &["cat", "r1_a/a", "--from", "1000"]).contains("last frame, 999"));
    assert!(refused(&store, &["cat", "r1_a/a", "--from", "+1h"]).contains("last frame"));
    refused(&store, &["cat", "r1_a/b", "--no-fill"]);
}

#[test]
fn cat_stops_at_damage_unless_it_is_allowed() {
    let store = Store::new(2);
    let laid = two_streams(&store);
    let (path, block) = (laid.chunk_path(0, 1), 16384);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[block + 1] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let output = fullbore(&store, &["cat", "r1_a/a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout == laid.bytes[0][..4 * block]);
    assert!(text(&output.stderr).contains(&path.display().to_string()));
    let output = fullbore(&store, &["cat", "r1_a/a", "--allow-damaged"]);
    assert_eq!(output.status.code(), Some(1));
    let mut expected = laid.bytes[0].clone();
    expected[4 * block + 1] ^= 1;
    assert!(output.stdout == expected);
}

#[test]
fn a_reader_of_cat_that_goes_away_is_no_error() {
    let store = Store::new(1);
    store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(4000)]);
    let root = store.roots()[0].display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(["cat", "r1_a", "--store", &root])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn recover_seals_and_verify_agrees() {
    let store = Store::new(2);
    for name in ["r1_a", "r1_b"] {
        store.lay_down(name, &[StreamPlan::vdif("a").unrecorded(1)]);
    }
    assert!(told(&store, &["verify", "r1_a"], 1).contains("never sealed"));
    let report = told(&store, &["recover", "--all"], 0);
    assert!(report.contains("r1_a recovered") && report.contains("r1_b recovered"), "{report}");
    told(&store, &["verify", "--all"], 0);
    assert!(told(&store, &["recover", "r1_a"], 0).contains("nothing was done"));
    assert!(told(&store, &["recover", "--all"], 0).contains("no unsealed scans"));
}

#[test]
fn nothing_touches_a_scan_that_is_being_recorded() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let _lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
    for words in [vec!["recover", "r1_a"], vec!["rm", "r1_a", "--yes"]] {
        assert!(refused(&store, &words).contains("being recorded"), "{words:?}");
    }
    assert!(told(&store, &["verify", "r1_a"], 0).contains("r1_a: being recorded, intact so far"));
    assert!(told(&store, &["ls"], 0).contains("recording"));
    assert!(told(&store, &["info", "r1_a"], 0).contains("has been recorded for"));
    assert!(laid.chunk_path(0, 0).exists());
}

#[test]
fn rm_wants_to_be_sure_and_says_what_it_freed() {
    let store = Store::new(2);
    let laid = two_streams(&store);
    assert!(refused(&store, &["rm", "r1_a"]).contains("--yes"));
    assert!(refused(&store, &["rm", "r1_a/b", "--yes"]).contains("removed whole"));
    let removed = json(&store, &["rm", "r1_a", "--yes", "--json"], 0);
    assert_eq!(removed["kept"], Value::Array(vec![]));
    assert!(removed["bytes"].as_u64().unwrap() > 0);
    assert!(!Path::new(&laid.directory(0, 0)).exists());
    assert!(told(&store, &["ls"], 0).contains("no scans"));
}

/// As much of JSON Schema as our schemas use. Gives what does not fit.
fn misfits(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(&reference[1..]).unwrap_or_else(|| panic!("{reference}"));
        return misfits(value, target, root, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fitting = choices.iter().filter(|it| misfits(value, it, root, at).is_empty()).count();
        return if fitting == 1 { vec![] } else { vec![format!("{at} fits {fitting} choices")] };
    }
    let mut wrong = Vec::new();
    let kind = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some(other) => panic!("a type {other}"),
    };
    let listed = schema["enum"].as_array().is_none_or(|all| all.contains(value));
    let same = schema.get("const").is_none_or(|it| it == value);
    if !kind || !listed || !same {
        wrong.push(format!("{at}: {value}"));
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(described) => {
                wrong.extend(misfits(inner, described, root, &format!("{at}.{name}")));
            }
            None => wrong.push(format!("{at}.{name} is not described")),
        }
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
            wrong.push(format!("{at}.{name} is not there"));
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        wrong.extend(misfits(inner, &schema["items"], root, &format!("{at}[]")));
    }
    wrong
}

#[test]
fn every_manifest_and_account_is_as_its_schema_describes() {
    let schema = |name: &str| -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let read =
        |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let (manifests, accounts) = (schema("manifest.schema.json"), schema("account.schema.json"));
    let store = Store::new(2);
    let laid = two_streams(&store);
    let unsealed = store.lay_down("r1_b", &[StreamPlan::raw("a").unsealed()]);
    let fits = |path: &Path, schema: &Value| {
        assert_eq!(misfits(&read(path), schema, schema, "it"), Vec::<String>::new());
    };
    fits(&laid.manifest_path(0, 0), &manifests);
    fits(&unsealed.manifest_path(0, 0), &manifests);
    fits(&laid.account_path(0, 0), &accounts);
    told(&store, &["recover", "r1_b"], 0);
    fits(&unsealed.manifest_path(0, 0), &manifests);
    fits(&unsealed.account_path(0, 0), &accounts);
    let mut copy = laid.manifest.clone();
    let (begun, completed) = (copy.armed, copy.stopped);
    copy.copied = Some(Copied {
        host: "station-1".into(),
        key: "5e0c".into(),
        begun,
        completed,
        source: Vec::new(),
        unreadable_blocks: 0,
    });
    std::fs::write(laid.manifest_path(1, 1), copy.to_json()).unwrap();
    fits(&laid.manifest_path(1, 1), &manifests);
    let mut wrong = read(&laid.manifest_path(0, 0));
    wrong["streams"][0]["format"]["colour"] = "red".into();
    assert!(!misfits(&wrong, &manifests, &manifests, "it").is_empty());
}

#[test]
fn a_part_of_a_scan_is_named_alike_to_cat_and_to_play() {
    let store = Store::new(2);
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let sent = |words: &[&str]| {
        let play = ["play", "r1_a", "--to", "udp://127.0.0.1:9", "--flat-out", "--json"];
        json(&store, &[&play, words].concat(), 0)["frames"].as_u64().unwrap() as usize
    };
    let written = |words: &[&str]| {
        fullbore(&store, &[&["cat", "r1_a"], words].concat()).stdout.len() / FRAME_BYTES as usize
    };
    let all = written(&[]);
    assert_eq!(sent(&[]), all);
    for place in ["+2s", "+2.5s", "300"] {
        let (before, after) = (["--until", place], ["--from", place]);
        assert!(0 < written(&before) && written(&before) < all, "{place}: {}", written(&before));
        assert_eq!(written(&before) + written(&after), all, "{place}");
        assert_eq!(sent(&before), written(&before), "{place}");
        assert_eq!(sent(&after), written(&after), "{place}");
    }
    let backwards =
        ["play", "r1_a", "--to", "udp://127.0.0.1:9", "--from", "+2s", "--until", "+1s"];
    assert!(refused(&store, &backwards).contains("is not before"));
    // The old word of `cat` is still heard.
    assert_eq!(written(&["--to", "+2s"]), written(&["--until", "+2s"]));
}

#[test]
fn cat_tells_scripts_on_standard_error_what_it_wrote() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let cat = |words: &[&str], code: i32| -> Value {
        let output = fullbore(&store, &[&["--json", "cat", "r1_a"], words].concat());
        assert_eq!(output.status.code(), Some(code));
        let told: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(told["bytes"], output.stdout.len());
        told
    };
    let told = cat(&[], 0);
    assert_eq!((&told["scan"]["session"], &told["stream"]), (&"r1".into(), &"a".into()));
    assert_eq!(told["bytes"], laid.bytes[0].len());
    assert_eq!(told["wrong"], Value::Array(vec![]));
}

#[test]
fn a_directory_that_is_no_store_is_named() {
    let (store, other) = (Store::new(2), tempfile::tempdir().unwrap());
    std::fs::create_dir(other.path().join("some_thing")).unwrap();
    let path = other.path().to_str().unwrap();
    for verb in [&["ls"][..], &["verify", "--all"], &["recover", "--all"]] {
        let error = refused(&store, &[verb, &["--store", path]].concat());
        assert!(error.contains(path) && error.contains("no store"), "{verb:?}: {error}");
    }
    // Beside a member that is one, it does not hide what lies there.
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let both = format!("{},{path}", store.roots()[0].display());
    let output = fullbore(&store, &["ls", "--store", &both]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("r1_a") && text(&output.stderr).contains("no store"));
    // A store from which everything was removed is one.
    told(&store, &["rm", "r1_a", "--yes"], 0);
    assert!(told(&store, &["ls"], 0).contains("no scans"));
}
