//! Tests of keys, peers and invitations.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use fullbore_core::hint::Hint;

use super::*;

fn own_directory() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("fullbore");
    (temporary, directory)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

const BOTH: Permissions = Permissions { send: true, fetch: true };

#[test]
fn key_is_private_and_stays_the_same() {
    let (_temporary, directory) = own_directory();
    let first = Identity::load_or_create(&directory).unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(KEY_FILE)), 0o600);
    let again = Identity::load_or_create(&directory).unwrap();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert!(!format!("{first:?}").contains("key:"), "{first:?}");
}

#[test]
fn key_that_others_can_read_is_refused() {
    let (_temporary, directory) = own_directory();
    Identity::load_or_create(&directory).unwrap();
    for (path, allowed) in [(directory.join(KEY_FILE), 0o600), (directory.clone(), 0o700)] {
        for bit in [0o040, 0o020, 0o004, 0o002, 0o001] {
            set_mode(&path, allowed | bit);
            let error = Identity::load_or_create(&directory).unwrap_err();
            assert!(error.to_string().contains("other users can access it"), "{error}");
            assert_eq!(error.hint().unwrap(), format!("chmod {allowed:o} {}", path.display()));
        }
        set_mode(&path, allowed);
    }
    Identity::load_or_create(&directory).unwrap();
}

#[test]
fn processes_that_make_the_key_at_once_end_with_the_same() {
    let (_temporary, directory) = own_directory();
    let make = || Identity::load_or_create(&directory).unwrap().fingerprint();
    let keys: HashSet<Fingerprint> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(keys.len(), 1);
}

#[test]
fn damaged_key_is_refused_and_kept() {
    let (_temporary, directory) = own_directory();
    Identity::load_or_create(&directory).unwrap();
    let path = directory.join(KEY_FILE);
    let pem = std::fs::read(&path).unwrap();
    for damaged in [Vec::new(), b"nonsense".to_vec(), pem[..pem.len() / 2].to_vec()] {
        std::fs::write(&path, &damaged).unwrap();
        let error = Identity::load_or_create(&directory).unwrap_err();
        assert!(matches!(error, IdentityError::BadKey { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn directory_follows_the_environment() {
    let with = |pairs: &'static [(&str, &str)]| {
        let value = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into());
        directory_of(value).map(|path| path.to_string_lossy().into_owned())
    };
    let all = &[("FULLBORE_CONFIG", "/f"), ("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
    assert_eq!(with(all).unwrap(), "/f");
    assert_eq!(with(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/fullbore");
    assert_eq!(with(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]).unwrap(), "/h/.config/fullbore");
    assert_eq!(with(&[]), None);
}

#[test]
fn fingerprint_survives_being_typed() {
    let fingerprint = Fingerprint(std::array::from_fn(|n| (n * 37) as u8));
    let shown = fingerprint.to_string();
    assert_eq!(shown.len(), 52 + 12);
    let bare = shown.replace('-', "");
    for typed in
        [&shown, &shown.to_uppercase(), &bare, &shown.replace('-', " "), &shown.replace('-', ":")]
    {
        assert_eq!(typed.parse(), Ok(fingerprint), "{typed}");
    }
    let long = FingerprintError::Length { characters: 53 };
    assert_eq!(format!("{bare}a").parse::<Fingerprint>(), Err(long));
    let sign = FingerprintError::Sign { sign: '1' };
    assert_eq!(format!("1{}", &bare[1..]).parse::<Fingerprint>(), Err(sign));
    // The last character has bits beyond the last byte, which must be zero: one text for one key.
    assert!(format!("{}b", &bare[..51]).parse::<Fingerprint>().is_err());
    assert!("ä".repeat(52).parse::<Fingerprint>().is_err());
    assert!("".parse::<Fingerprint>().is_err());
}

fn invitation() -> Invitation {
    Invitation {
        address: "station.example:4780".into(),
        key: Fingerprint(std::array::from_fn(|n| (n * 7) as u8)),
        secret: std::array::from_fn(|n| (n * 11) as u8),
    }
}

#[test]
fn invitation_is_one_word_that_can_be_pasted() {
    let text = invitation().to_string();
    let special = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, ':' | '/' | '.');
    assert!(!text.contains(special), "{text}");
    assert_eq!(text.parse(), Ok(invitation()));
    assert_eq!(format!("  {}\n", text.to_uppercase()).parse(), Ok(invitation()));
    let destination: Destination = text.parse().unwrap();
    assert_eq!(
        destination.to_string(),
        "fullbore://station.example:4780",
        "the secret is not shown"
    );
    assert!(!format!("{destination:?}").contains(&text[40..60]));
}

#[test]
fn mistyped_invitation_is_recognised() {
    let text = invitation().to_string();
    let code = text.rfind('/').unwrap() + 1;
    for at in code..text.len() {
        for replacement in ["a", "7"] {
            let mut typed = text.clone();
            typed.replace_range(at..=at, replacement);
            let result = typed.parse::<Invitation>();
            assert_eq!(result == Ok(invitation()), typed == text, "{typed}");
        }
        assert!(text[..at].parse::<Invitation>().is_err());
    }
    let mut swapped = text.clone().into_bytes();
    swapped.swap(code + 3, code + 4);
    let swapped = String::from_utf8(swapped).unwrap();
    assert_eq!(swapped.parse::<Invitation>(), Err(AddressError::Checksum));
    assert!(matches!(
        format!("{}!", &text[..text.len() - 1]).parse::<Invitation>(),
        Err(AddressError::CodeSign { sign: '!' })
    ));
    assert_eq!("fullbore://a".parse::<Invitation>(), Err(AddressError::NoCode));
}

#[test]
fn destination_has_a_host_and_a_port() {
    let address = |text: &str| text.parse::<Destination>().map(|it| it.address);
    assert_eq!(address("fullbore://a.example").unwrap(), "a.example:4780");
    assert_eq!(address("fullbore://a.example/").unwrap(), "a.example:4780");
    assert_eq!(address("FULLBORE://A.Example:99").unwrap(), "a.example:99");
    assert_eq!(address("fullbore://10.0.0.1").unwrap(), "10.0.0.1:4780");
    assert_eq!(address("fullbore://[2001:DB8::1]").unwrap(), "[2001:db8::1]:4780");
    assert_eq!(address("fullbore://[fe80::1%eth0]:5").unwrap(), "[fe80::1%eth0]:5");
    for host in
        ["", "2001:db8::1", "[::1", "::1]", "[host]", "a b", "-a", "a\u{1b}[31m", "u@h", "ä", "[]"]
    {
        let result = address(&format!("fullbore://{host}"));
        assert!(matches!(result, Err(AddressError::Host { .. })), "{host}: {result:?}");
    }
    for port in ["", "0", "65536", "+5", "1e3", "-1"] {
        let result = address(&format!("fullbore://a:{port}"));
        assert!(matches!(result, Err(AddressError::Port { .. })), "{port}: {result:?}");
    }
    for text in ["", "a", "http://a", "fullbore:/a", "fullböre://a"] {
        assert!(matches!(address(text), Err(AddressError::Scheme { .. })), "{text}");
    }
    let long = format!("fullbore://{}", "a".repeat(300));
    assert!(address(&long).unwrap_err().to_string().len() < 150);
}

fn peer(number: u8) -> Peer {
    Peer {
        name: format!("peer {number}"),
        fingerprint: Fingerprint([number; 32]),
        added: fullbore_time::Tai(1_700_000_000_000_000_000),
        address: None,
        may: Permissions { send: true, fetch: false },
    }
}

#[test]
fn peers_added_at_once_are_all_kept() {
    let (_temporary, directory) = own_directory();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let directory = &directory;
            scope.spawn(move || add(directory, peer(number)).unwrap());
        }
    });
    let peers = Peers::load(&directory).unwrap();
    assert_eq!(peers.iter().count(), 16);
    for number in 0..16 {
        assert_eq!(peers.find(&Fingerprint([number; 32])), Some(&peer(number)));
    }
    assert_eq!(mode(&directory.join("peers.toml")), 0o600);
    assert_eq!(remove(&directory, "peer 3").unwrap(), peer(3));
    assert_eq!(remove(&directory, &Fingerprint([4; 32]).to_string()).unwrap(), peer(4));
    assert!(matches!(remove(&directory, "peer 3"), Err(IdentityError::NoSuchPeer { .. })));
    assert_eq!(Peers::load(&directory).unwrap().iter().count(), 14);
}

#[test]
fn one_name_and_one_address_belong_to_one_key() {
    let (_temporary, directory) = own_directory();
    let at = |number| Peer { address: Some("Host:4780".into()), ..peer(number) };
    add(&directory, at(1)).unwrap();
    let error = add(&directory, Peer { name: "peer 1".into(), ..peer(2) }).unwrap_err();
    assert!(matches!(error, IdentityError::NameTaken { .. }), "{error}");
    let before = Peers::load(&directory).unwrap();
    assert_eq!(before.at("host:4780").unwrap().fingerprint, Fingerprint([1; 32]));
    add(&directory, at(2)).unwrap();
    let peers = Peers::load(&directory).unwrap();
    assert_eq!(peers.at("host:4780").unwrap().fingerprint, Fingerprint([2; 32]));
    assert_eq!(peers.named("peer 1").unwrap().address, None);
    let renamed = Peer { name: "bonn".into(), ..at(2) };
    add(&directory, renamed.clone()).unwrap();
    assert_eq!(Peers::load(&directory).unwrap().find(&Fingerprint([2; 32])), Some(&renamed));
}

#[test]
fn host_that_was_reached_is_remembered_without_rights() {
    let (_temporary, directory) = own_directory();
    let (first, second) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
    remember(&directory, first, "bonn", "host:4780").unwrap();
    remember(&directory, first, "other", "host:4780").unwrap();
    let peers = Peers::load(&directory).unwrap();
    let known = peers.at("host:4780").unwrap();
    assert_eq!((known.name.as_str(), known.may), ("bonn", Permissions::default()));
    add(&directory, peer(2)).unwrap();
    remember(&directory, second, "x", "host:4780").unwrap();
    let peers = Peers::load(&directory).unwrap();
    let known = peers.at("host:4780").unwrap();
    assert_eq!((known.fingerprint, known.may), (second, peer(2).may), "the host has a new key");
    assert_eq!(peers.find(&first).unwrap().address, None);
}

#[test]
fn list_with_an_error_is_named_with_its_line() {
    let (_temporary, directory) = own_directory();
    add(&directory, peer(1)).unwrap();
    let path = directory.join("peers.toml");
    std::fs::write(&path, "[[peer]]\nname = \"a\"\nfingerprint = \"abc\"\n").unwrap();
    let error = Peers::load(&directory).unwrap_err();
    assert!(error.to_string().contains("line 3"), "{error}");
    assert!(add(&directory, peer(2)).is_err(), "a list that cannot be read is not replaced");
    std::fs::write(&path, vec![b'#'; 5 << 20]).unwrap();
    assert!(matches!(Peers::load(&directory), Err(IdentityError::Large { .. })));
}

#[test]
fn names_from_elsewhere_are_safe_to_print() {
    assert_eq!(clean_name("  a\u{1b}[31m\nb\u{202e}\u{7} ").unwrap(), "a[31mb");
    assert_eq!(clean_name("\u{0}\t\u{feff}"), None);
    assert_eq!(clean_name(&"ö".repeat(1000)).unwrap().chars().count(), LONGEST_NAME);
}

#[test]
fn invitation_is_redeemed_once_under_concurrency() {
    let (_temporary, directory) = own_directory();
    let host = Identity::load_or_create(&directory).unwrap();
    let invitation =
        invite(&directory, "a.example", host.fingerprint(), BOTH, DEFAULT_LIFETIME, None).unwrap();
    let results: Vec<_> = std::thread::scope(|scope| {
        let try_it = |number: u8| {
            let (directory, secret) = (&directory, &invitation.secret);
            scope.spawn(move || redeem(directory, secret, Fingerprint([number; 32]), "x"))
        };
        let threads: Vec<_> = (0..8).map(try_it).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let admitted: Vec<&Peer> = results.iter().flatten().collect();
    assert_eq!(admitted.len(), 1);
    assert!(results.iter().flatten().all(|peer| peer.may == BOTH));
    let refused = results.iter().filter(|it| matches!(it, Err(IdentityError::NotInvited))).count();
    assert_eq!(refused, 7);
    let peers = Peers::load(&directory).unwrap();
    assert_eq!(peers.iter().collect::<Vec<_>>(), admitted);
}

#[test]
fn secret_is_not_on_the_disk() {
    let (_temporary, directory) = own_directory();
    let key = Identity::load_or_create(&directory).unwrap().fingerprint();
    let invitation = invite(&directory, "a", key, BOTH, DEFAULT_LIFETIME, None).unwrap();
    let stored = std::fs::read_to_string(directory.join("invitations.toml")).unwrap();
    let hex = data_encoding::HEXLOWER.encode(&invitation.secret);
    let code = invitation.to_string();
    assert!(!stored.contains(&hex) && !stored.contains(&code[code.len() - 28..]));
}

#[test]
fn invitations_end_and_are_withdrawn() {
    let (_temporary, directory) = own_directory();
    let key = Fingerprint([1; 32]);
    let fetch = Permissions { send: false, fetch: true };
    let over = invite(&directory, "a", key, BOTH, Duration::ZERO, None).unwrap();
    let taken = invite(&directory, "a", key, BOTH, DEFAULT_LIFETIME, None).unwrap();
    let kept = invite(&directory, "a", key, fetch, Duration::MAX, None).unwrap();
    let open = open_invitations(&directory).unwrap();
    assert_eq!(open.len(), 2, "{open:?}");
    assert_eq!((open[1].may, open[1].address.as_str()), (fetch, "a:4780"));
    assert!(withdraw(&directory, &open[0].id).unwrap());
    assert!(!withdraw(&directory, &open[0].id).unwrap());
    let redeem = |it: &Invitation| redeem(&directory, &it.secret, key, "b");
    assert!(matches!(redeem(&over), Err(IdentityError::Expired { .. })));
    assert!(matches!(redeem(&taken), Err(IdentityError::NotInvited)));
    assert_eq!(redeem(&kept).unwrap().may, fetch);
}

#[test]
fn invited_peer_gets_no_name_that_is_taken_and_loses_no_right() {
    let (_temporary, directory) = own_directory();
    add(&directory, peer(1)).unwrap();
    let fetch = Permissions { send: false, fetch: true };
    let invited =
        || invite(&directory, "a", Fingerprint([9; 32]), fetch, DEFAULT_LIFETIME, None).unwrap();
    let other =
        redeem(&directory, &invited().secret, Fingerprint([2; 32]), "peer 1\u{1b}").unwrap();
    assert_eq!(other.name, "peer 1-2");
    let known = redeem(&directory, &invited().secret, Fingerprint([1; 32]), "someone").unwrap();
    assert_eq!((known.name.as_str(), known.may), ("peer 1", BOTH));
}
