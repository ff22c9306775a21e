//! Set-ups as clients give them, and the endpoints that they become.

use proptest::prelude::*;

use super::*;

fn told(setup: &mut Setup, text: &str) -> String {
    let statement = Statement::parse(text).unwrap();
    setup.answer(&statement).unwrap().to_text(&statement)
}

#[test]
fn the_set_up_of_the_field_system_becomes_an_endpoint() {
    let mut setup = Setup::default();
    assert_eq!(setup.sources().unwrap_err().code, Code::Conflict);
    for text in [
        "mode = VDIF_8000-2048-16-2",
        "mtu = 9000",
        "net_protocol = udpsnor : 128M : 256000000 : 4",
        "net_port = 46227",
    ] {
        assert!(told(&mut setup, text).contains("= 0 ;"), "{text}");
    }
    let source = "udp://0.0.0.0:46227?mode=VDIF_8000-2048-16-2&psn=true&rcvbuf=128MiB";
    assert_eq!(setup.sources().unwrap(), [source]);
    assert_eq!(setup.chunk_bytes(), Some(256_000_000));
    let mode = "!mode? 0 : VDIF_8000-2048-16-2 : VDIF : 32 : 64000000.000 : 8000 ;";
    assert_eq!(told(&mut setup, "mode?"), mode);
    let protocol = "!net_protocol? 0 : udpsnor : 134217728 : 256000000 : 4 ;";
    assert_eq!(told(&mut setup, "net_protocol?"), protocol);
    assert_eq!(told(&mut setup, "mode=none"), "!mode= 0 ;");
    assert_eq!(told(&mut setup, "mode?"), "!mode? 0 : : <unknown> : 0 : 0.000 ;");
}

#[test]
fn ports_with_suffixes_are_streams() {
    let mut setup = Setup::default();
    told(&mut setup, "mode=VDIF_8000-64-1-2");
    told(&mut setup, "net_protocol=pudp");
    told(&mut setup, "net_port=127.0.0.1@46227=A:239.1.2.3@46228=B");
    let ports = "!net_port? 0 : 127.0.0.1@46227=A : 239.1.2.3@46228=B ;";
    assert_eq!(told(&mut setup, "net_port?"), ports);
    let mode = "mode=VDIF_8000-64-1-2";
    let sources = [
        format!("udp://127.0.0.1:46227?{mode}&name=A"),
        format!("udp://239.1.2.3:46228?{mode}&name=B"),
    ];
    assert_eq!(setup.sources().unwrap(), sources);
    for wrong in [
        "1@2", "x", "0", "70000", "", "1:2", "1=A:2", "1=A:1=B", "1=A:2=A", "1=../x", "1=a_b",
        "::1@5",
    ] {
        let text = format!("net_port={wrong}");
        assert!(told(&mut setup, &text).starts_with("!net_port= 8 : "), "{wrong}");
    }
    assert_eq!(told(&mut setup, "net_port?"), ports);
}

#[test]
fn data_streams_select_threads_and_exclude_suffixes() {
    let mut setup = Setup::default();
    told(&mut setup, "mode=VDIF_8000-64-1-2");
    assert_eq!(told(&mut setup, "datastream=add:{thread}:*"), "!datastream= 0 ;");
    assert!(setup.sources().unwrap()[0].ends_with("&threads=split"));
    assert_eq!(told(&mut setup, "datastream?"), "!datastream? 0 : {thread} : * ;");
    assert!(told(&mut setup, "datastream=add:B:1").starts_with("!datastream= 6 : "));
    assert!(told(&mut setup, "net_port=1=A").starts_with("!net_port= 6 : "));
    assert_eq!(told(&mut setup, "datastream=remove:{thread}"), "!datastream= 0 ;");
    assert_eq!(told(&mut setup, "datastream=add:low:0-3,7"), "!datastream= 0 ;");
    assert!(setup.sources().unwrap()[0].ends_with("&threads=0-3,7&name=low"));
    told(&mut setup, "datastream=clear");
    for wrong in ["add:B:10.0.0.1/*", "add:a_b:*", "add:x", "add:{station}:*", "add:B:&x=1", "loud"]
    {
        let text = format!("datastream={wrong}");
        assert!(told(&mut setup, &text).starts_with("!datastream= 8 : "), "{wrong}");
    }
}

#[test]
fn wrong_values_change_nothing() {
    let mut setup = Setup::default();
    let before = setup.clone();
    for (text, code) in [
        ("mode=VDIF_8000-2048-12-2", 4),
        ("mode=", 8),
        ("mtu=10", 8),
        ("mtu=x", 8),
        ("net_protocol=udt", 2),
        ("net_protocol=tcp", 2),
        ("net_protocol=smoke", 8),
        ("net_protocol=udps:0", 8),
        ("net_protocol=:::99999999999", 8),
        ("ipd=a b", 8),
    ] {
        let answer = told(&mut setup, text);
        assert!(answer.contains(&format!("= {code} : ")), "{text}: {answer}");
    }
    assert_eq!(setup, before);
}

proptest! {
    #[test]
    fn endpoints_of_any_accepted_set_up_have_no_more_parameters_than_ours(
        port in "[0-9a-zA-Z@=&.:/?_-]{0,30}", name in "[a-z0-9{}&=_,]{0,12}", spec in "[0-9,*&=-]{0,10}"
    ) {
        let mut setup = Setup::default();
        told(&mut setup, "mode=VDIF_8000-64-1-2");
        told(&mut setup, &format!("net_port={port}"));
        told(&mut setup, &format!("datastream=add:{name}:{spec}"));
        for source in setup.sources().unwrap() {
            let parameters = source.split_once('?').unwrap().1;
            for parameter in parameters.split('&') {
                let key = parameter.split('=').next().unwrap();
                prop_assert!(["mode", "psn", "rcvbuf", "name", "threads"].contains(&key), "{}", source);
            }
        }
    }
}
