use super::*;

fn words(json: &str) -> Result<String, String> {
    let request: CommandRequest = serde_json::from_str(json).map_err(|it| it.to_string())?;
    let command = request.command("/m0,/m1", Some(Path::new("/x")));
    command.map(|it| it.words.join(" ")).map_err(|it| it.to_string())
}

#[test]
fn a_request_becomes_the_words_of_a_command() {
    for (json, expected) in [
        (r#"{"verb":"ls"}"#, "ls --store=/m0,/m1 --"),
        (
            r#"{"verb":"info","arguments":["r1_a/46220"],"json":true,"options":{"full":true,"follow":false}}"#,
            "info --json --store=/m0,/m1 --full -- r1_a/46220",
        ),
        (
            r#"{"verb":"mark","arguments":["r1_a","../ a -text"],"options":{"time":"2026-11-22T18:00:12"}}"#,
            "mark --store=/m0,/m1 --time=2026-11-22T18:00:12 -- r1_a ../ a -text",
        ),
        (
            r#"{"verb":"play","arguments":["r1_a"],"options":{"to":["udp://h:1","udp://h:2"],"rate":"2 Gbit/s"}}"#,
            "play --store=/m0,/m1 --rate=2 Gbit/s --to=udp://h:1 --to=udp://h:2 -- r1_a",
        ),
        (
            r#"{"verb":"convert","arguments":["store:r1_a","hdf5:all.h5?existing=append"]}"#,
            "convert --store=/m0,/m1 -- store:r1_a hdf5:/x/all.h5?existing=append",
        ),
        (
            r#"{"verb":"convert","arguments":["r1_a/a","wav:a.wav?channels=0"]}"#,
            "convert --store=/m0,/m1 -- r1_a/a wav:/x/a.wav?channels=0",
        ),
        (
            r#"{"verb":"convert","arguments":["r1_a","drf:top/channel"]}"#,
            "convert --store=/m0,/m1 -- r1_a drf:/x/top/channel",
        ),
        (
            r#"{"verb":"snapshot","arguments":["r1_a"],"options":{"output":"a.vdif","at":"+2.5s"}}"#,
            "snapshot --store=/m0,/m1 --at=+2.5s --output=/x/a.vdif -- r1_a",
        ),
    ] {
        assert_eq!(words(json).unwrap(), expected);
    }
}

#[test]
fn what_reaches_beyond_the_store_is_refused() {
    for (wrong, why) in [
        (r#"{"verb":"serve"}"#, "does not run `serve`"),
        (r#"{"verb":"record","arguments":["x"]}"#, "does not run `record`"),
        (r#"{"verb":"ls","options":{"store":"/etc"}}"#, "takes no `store`"),
        (r#"{"verb":"rebuild","arguments":["r1_a"],"options":{"onto":"/etc"}}"#, "takes no `onto`"),
        (r#"{"verb":"ls","arguments":["device:/dev/sda"]}"#, "':'"),
        (r#"{"verb":"info","arguments":["s3://bucket/r1_a"]}"#, "':'"),
        (r#"{"verb":"info","arguments":["../r1_a"]}"#, "'.'"),
        (r#"{"verb":"info","arguments":["r1_a/../b"]}"#, "'.'"),
        (r#"{"verb":"info","arguments":[]}"#, "takes 1 to 1"),
        (r#"{"verb":"rm","arguments":["r1"]}"#, "r1"),
        (r#"{"verb":"play","arguments":["file:x"],"options":{"to":"udp://h:1"}}"#, "':'"),
        (r#"{"verb":"play","arguments":["r1_a"],"options":{"to":"panda://h"}}"#, "udp://HOST:PORT"),
        (r#"{"verb":"convert","arguments":["file:dump","a.h5"]}"#, "':'"),
        (r#"{"verb":"convert","arguments":["r1_a","/tmp/a.h5"]}"#, "the name of a file"),
        (r#"{"verb":"convert","arguments":["r1_a","hdf5:../a.h5"]}"#, "the name of a file"),
        (r#"{"verb":"convert","arguments":["r1_a","drf:top/../x"]}"#, "the name of a file"),
        (r#"{"verb":"convert","arguments":["r1_a",".hidden.h5"]}"#, "the name of a file"),
        (r#"{"verb":"convert","arguments":["r1_a","a.h5?x=/etc"]}"#, "plain options"),
        (
            r#"{"verb":"snapshot","arguments":["r1_a"],"options":{"output":"a/b"}}"#,
            "the name of a file",
        ),
        (r#"{"verb":"verify","options":{"all":"yes"}}"#, "true or false"),
        (r#"{"verb":"verify","options":{"reads":true}}"#, "a text"),
        (r#"{"verb":"mark","arguments":["r1_a","two\nlines"]}"#, "control characters"),
        (r#"{"verb":"ls","stdin":"x"}"#, "unknown field `stdin`"),
    ] {
        let error = words(wrong).unwrap_err();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn files_need_a_directory_for_exports() {
    let request: CommandRequest =
        serde_json::from_str(r#"{"verb":"convert","arguments":["r1_a","a.h5"]}"#).unwrap();
    let error = request.command("/m0", None).unwrap_err();
    let advice = fullbore_core::hint::Hint::hint(&error).unwrap();
    assert!(matches!(error, CommandError::NoExports { .. }) && advice.contains("exports"));
}

#[test]
fn only_an_admin_removes() {
    let verb = |name: &str| VERBS.iter().find(|it| it.name == name).unwrap();
    assert!(verb("ls").may(Role::Viewer) && !verb("verify").may(Role::Viewer));
    assert!(verb("verify").may(Role::Operator) && !verb("rm").may(Role::Operator));
    assert!(verb("rm").may(Role::Admin));
}
