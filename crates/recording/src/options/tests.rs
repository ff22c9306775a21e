//! Every refusal of `resolve`, and every rule of `or`.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "hdf5")]
use fullbore_containers::SampleType;
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::completeness::Planned;
use fullbore_core::hint::Hint;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Limit, RecordingConfig, SourceConfig};
use fullbore_engine::sink::SinkConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::container::ContainerFormat;

use super::*;

/// Options from a table.
fn options(text: &str) -> RecordingOptions {
    let text = format!("[record]\n{text}");
    RecordingOptions::from_toml(&text, "record", &[]).unwrap().unwrap().options
}

/// A recording into a store, with further options.
fn into_store(more: &str) -> RecordingOptions {
    options(&format!("source = 'udp://:5000'\nstore = '/s'\nsession = 'r'\nscan = 'a'\n{more}"))
}

/// A recording to another target, with further options.
fn to(target: &str, more: &str) -> RecordingOptions {
    options(&format!("source = 'pattern:prbs31'\nto = '{target}'\n{more}"))
}

fn refusal(options: &RecordingOptions) -> String {
    options.resolve().expect_err("it is refused").to_string()
}

fn store_of(config: &RecordingConfig) -> &fullbore_engine::sink::StoreConfig {
    config.store().expect("it goes into a store")
}

#[test]
fn all_options_arrive_in_the_configuration() {
    let config = into_store(
        "scans = 2\nduration = '2s'\nbytes = '1MB'\nbuffer = '64MiB'\nchunk = '32MB'\ncapture-threads = 3\n\
         place = 'off'\npriority = 'fifo:3'\nsync = '100ms'\nredundancy = 'mirror'\nnew-member = '/s'\n\
         clock-offset = 'off'\nclock-drift = 7\n",
    );
    let config = config.resolve().unwrap();
    let names: Vec<String> = config.scans.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["r_a0001", "r_a0002"]);
    let duration = Some(Duration::from_secs(2));
    assert_eq!(config.limit, Limit { duration, bytes: Some(1_000_000), until: None });
    assert_eq!((config.buffer, config.capture_threads), (Some(ByteSize(64 << 20)), Some(3)));
    assert_eq!((config.place, config.priority), (AffinityPolicy::Off, SchedulingPolicy::Fifo(3)));
    assert_eq!(config.sync_interval, Some(Duration::from_millis(100)));
    assert_eq!((config.clock.offset, config.clock.drift_ppm), (None, Some(7)));
    let [SinkConfig::Store(store)] = config.sinks.as_slice() else { panic!("{:?}", config.sinks) };
    assert_eq!(store.members, [PathBuf::from("/s")]);
    assert_eq!((store.chunk, store.new_members.len()), (Some(ByteSize(32_000_000)), 1));
    assert_eq!(store.redundancy.unwrap().to_string(), "mirror");
}

#[test]
fn options_that_are_not_given_have_their_defaults() {
    let config = into_store("").resolve().unwrap();
    assert_eq!((config.place, config.priority), (AffinityPolicy::Auto, SchedulingPolicy::Auto));
    assert_eq!((config.limit, config.planned), (Limit::default(), Planned::default()));
    assert_eq!(config.clock, fullbore_core::clock_check::ClockLimits::default());
    let options = RecordingOptions::default();
    assert_eq!(options.lead(), Duration::from_secs(5));
    assert_eq!(options.reconnect(), Duration::from_secs(30));
    let cores = into_store("cpus = '2,3'").resolve().unwrap();
    assert_eq!(cores.place, AffinityPolicy::InTurn(vec![2, 3]));
}

#[test]
fn a_start_and_a_length_are_a_plan() {
    let config = into_store("start = '2200-01-01T00:00:00'\nduration = '40s'").resolve().unwrap();
    let start: fullbore_time::Tai = "2200-01-01T00:00:00".parse().unwrap();
    let end = Some(start.plus_ns(40_000_000_000));
    assert_eq!((config.start, config.limit.until, config.limit.duration), (Some(start), end, None));
    assert_eq!(config.planned, Planned { begin: Some(start), end });
}

#[test]
fn pandas_are_armed_and_reconnected_as_requested() {
    let text = "source = ['panda://a', 'panda://b']\nstore = '/s'\nsession = 'r'\nscan = 'a'\n";
    let config = options(&format!("{text}arm = true\nreconnect = '3s'")).resolve().unwrap();
    for source in &config.sources {
        let SourceConfig::Panda(panda) = source else { panic!("{source:?}") };
        assert!(panda.arm && panda.reconnect == Duration::from_secs(3));
    }
    assert_eq!(config.sources[1].name().as_str(), "panda2");
}

#[test]
fn targets_become_sinks() {
    let sink = |target: &str, more: &str| to(target, more).resolve().unwrap();
    assert!(matches!(sink("file:/x.raw", "").sinks[..], [SinkConfig::File(_)]));
    let standard = sink("-", "session = 's'");
    assert!(matches!(standard.sinks[..], [SinkConfig::File(_)]));
    assert_eq!(standard.scans[0].to_string(), "s_stdout");
    let bare = sink("device:/dev/x", "bytes = '1MB'");
    assert_eq!(
        (bare.scans[0].to_string().as_str(), bare.limit.bytes),
        ("bare_chunks", Some(1_000_000))
    );
    let two =
        sink("device:/dev/x,device:/dev/y", "bytes = '1MB'\noverwrite = '/dev/y'\nflush = true");
    assert_eq!(two.limit.bytes, Some(2_000_000), "the limit is that of each device");
    let [SinkConfig::Device(devices)] = &two.sinks[..] else { panic!("{:?}", two.sinks) };
    let overwrite: Vec<bool> = devices.devices.iter().map(|it| it.overwrite.is_some()).collect();
    assert_eq!(overwrite, [false, true]);
}

/// The kind of each sink, in order.
fn kinds(config: &RecordingConfig) -> Vec<&'static str> {
    let kind = |sink: &SinkConfig| match sink {
        SinkConfig::Store(_) => "store",
        SinkConfig::File(_) => "file",
        SinkConfig::Device(_) => "device",
        SinkConfig::Discard => "nothing",
        #[cfg(feature = "hdf5")]
        SinkConfig::Container(_) => "container",
    };
    config.sinks.iter().map(kind).collect()
}

#[test]
fn several_targets_are_several_sinks_the_store_first_and_devices_last() {
    let to = ["device:/a", "file:/x", "Store:/t,/u", "-"];
    let config = into_store("chunk = '32MB'").with_targets(&to).resolve().unwrap();
    assert_eq!(kinds(&config), ["store", "file", "store", "file", "device"]);
    assert_eq!(config.members(), [PathBuf::from("/s")]);
    assert_eq!(config.scans[0].to_string(), "r_a");
    let stores: Vec<_> = config.sinks.iter().filter_map(SinkConfig::store).collect();
    assert_eq!(stores[1].members, ["/t", "/u"].map(PathBuf::from));
    assert!(stores.iter().all(|store| store.chunk == Some(ByteSize(32_000_000))));
}

#[test]
fn a_new_member_is_one_of_its_own_store() {
    let config = into_store("new-member = '/t'").with_targets(&["store:/t,/u"]).resolve().unwrap();
    let stores: Vec<_> = config.sinks.iter().filter_map(SinkConfig::store).collect();
    assert_eq!((stores[0].new_members.len(), stores[1].new_members.len()), (0, 1));
}

#[test]
fn devices_beside_other_sinks_are_one_with_the_limit_of_each() {
    let two =
        "source = ['pattern:prbs31', 'pattern:prbs31']\nstore = '/s'\nsession = 'r'\nscan = 'a'\n";
    let two = options(&format!("{two}bytes = '1MB'\nflush = true\noverwrite = '/b'"));
    let config = two.with_targets(&["device:/a", "device:/b"]).resolve().unwrap();
    assert_eq!(kinds(&config), ["store", "device"]);
    assert_eq!(config.limit.bytes, Some(2_000_000), "the limit is that of each device");
    let names: Vec<&str> = config.sources.iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, ["pattern1", "pattern2"], "each stream has its device, and its name");
    let one = to("file:/x", "bytes = '1MB'").with_targets(&["file:/x", "device:/a"]);
    assert_eq!(one.resolve().unwrap().limit.bytes, Some(1_000_000));
}

#[test]
fn the_scan_that_a_device_names_is_that_of_the_other_sinks() {
    let named = |to: &[&str]| options("source = '-'").with_targets(to).resolve().unwrap();
    let config = named(&["file:/x.raw", "device:/a?scan=r_b"]);
    assert_eq!(config.scans[0].to_string(), "r_b");
    assert_eq!(named(&["file:/x.raw", "device:/a"]).scans[0].to_string(), "live_x");
}

#[cfg(feature = "hdf5")]
#[test]
fn an_option_is_refused_only_if_no_target_takes_it() {
    let config = into_store("sync = '1s'").with_targets(&["hdf5:/x.h5"]).resolve().unwrap();
    assert_eq!(kinds(&config), ["store", "container"]);
    let told = refusal(&to("-", "sync = '1s'").with_targets(&["hdf5:/x.h5", "hdf5:/y.h5"]));
    assert!(told.contains("--sync: no target is synced"), "{told}");
}

#[cfg(feature = "hdf5")]
#[test]
fn a_container_has_the_options_of_its_endpoint() {
    let config = to("hdf5:run-%d.h5?rate=1e6", "").resolve().unwrap();
    assert_eq!(config.scans[0].to_string(), "live_run");
    let [SinkConfig::Container(container)] = &config.sinks[..] else {
        panic!("{:?}", config.sinks)
    };
    let ContainerFormat::Hdf5(options) = &container.format else { panic!("{container:?}") };
    assert_eq!(options.rows_per_second, Some(1e6));
}

#[cfg(feature = "hdf5")]
#[test]
fn a_file_of_samples_has_the_options_of_its_target_and_takes_what_has_samples() {
    let described = "udp://:1?format=raw&samples=ri16_le";
    let of = |source: &str, target: &str| {
        options(&format!("source = '{source}'")).with_targets(&[target])
    };
    let config = of(described, "npy:run.npy?as=i16&flush=200ms").resolve().unwrap();
    assert_eq!(config.scans[0].to_string(), "live_run");
    let [SinkConfig::Container(container)] = &config.sinks[..] else {
        panic!("{:?}", config.sinks)
    };
    let ContainerFormat::Samples { options: written, flush } = &container.format else {
        panic!("{container:?}")
    };
    assert_eq!(written.values, Some(SampleType::I16));
    assert_eq!(*flush, Duration::from_millis(200));
    for (source, target, said) in [
        ("udp://:1?format=raw", "npy:x", "did not describe its samples"),
        ("udp://:1?format=rtp", "npy:x", "packets of RTP"),
        ("panda://a", "npy:x", "columns"),
        (described, "npy:x?as=i8", "do not fit i8"),
        (described, "npy:x?as=i64", "it is i8, i16, i32 or f32"),
    ] {
        let told = refusal(&of(source, target));
        assert!(told.contains(said), "{source} into {target}: {told}");
    }
    assert!(of("udp://:1?format=vdif", "npy:x").resolve().is_ok());
    let two = options(&format!("source = '{described}'\nscans = 2\nbytes = 9"));
    assert!(refusal(&two.with_targets(&["npy:x"])).contains("takes one scan"));
}

#[cfg(not(feature = "hdf5"))]
#[test]
fn a_build_without_hdf5_says_so() {
    assert!(refusal(&to("hdf5:x.h5", "")).contains("without HDF5"));
}

#[test]
fn options_that_cannot_be_are_refused_by_their_names() {
    let panda = |more: &str| {
        let text = "source = 'panda://a'\nstore = '/s'\nsession = 'r'\nscan = 'a'\n";
        options(&format!("{text}{more}"))
    };
    for (options, said) in [
        (options(""), "--session <NAME>, --scan <NAME>, <SOURCE>..."),
        (options("source = 'udp://:1'\nstore = '/s'\nsession = 'r'"), "not given: --scan <NAME>"),
        (options("source = 'udp://:1'\nsession = 'r'\nscan = 'a'"), "--store"),
        (into_store("schedule = 'x.csv'"), "--scan cannot be used with --schedule"),
        (into_store("cpus = 1\nplace = 'off'"), "--place cannot be used with --cpus"),
        (to("-", "keep = '2d'"), "--keep: it is for a store, and the recording goes into none"),
        (to("-", "chunk = '1GB'"), "--chunk: it is for a store"),
        (to("-", "redundancy = 'mirror'"), "--redundancy: it is for a store"),
        (to("-", "new-member = '/a'"), "--new-member: it is for a store"),
        (
            to("-", "keep = '2d'").with_targets(&["-", "file:/x", "device:/y"]),
            "--keep: it is for a store",
        ),
        (
            into_store("keep = '2d'").with_targets(&["store:/t"]),
            "--keep: it removes scans of one store, and the recording goes into several",
        ),
        (into_store("new-member = '/u'").with_targets(&["store:/t"]), "--new-member /u is not"),
        (into_store("").with_targets(&["store:,"]), "store:,: give a directory"),
        (into_store("").with_targets(&["store:/t,/t"]), "/t is given twice"),
        (to("store:/s", "session = 'r'"), "not given: --scan <NAME>"),
        (to("file:/x", "store = '/s'"), "not given: --session <NAME>, --scan <NAME>"),
        (into_store("flush = true\nto = 'file:/x'"), "--flush: it is for a device"),
        (into_store("overwrite = '/y'\nto = 'store:/t'"), "--overwrite: it is for a device"),
        (into_store("scans = 2\nbytes = 9\nto = 'file:/x'"), "--scans 2: a file takes one scan"),
        (into_store("scans = 2\nbytes = 9\nto = 'device:/x'"), "--scans is for a store"),
        (
            options("source = 'udp://:1'\nschedule = 'x.csv'\nsession = 'r'"),
            "--schedule: its scans",
        ),
        (into_store("lead = '3s'"), "--lead: it is for --schedule"),
        (into_store("station = 'Wz'"), "--station: it is for --schedule"),
        (into_store("arm = true"), "--arm: it is for a PandA"),
        (into_store("reconnect = '3s'"), "--reconnect: it is for a PandA"),
        (into_store("overwrite = '/dev/x'"), "--overwrite: it is for a device"),
        (into_store("flush = true"), "--flush: it is for a device"),
        (into_store("bytes = 0"), "--bytes is zero"),
        (into_store("buffer = 0"), "--buffer is zero"),
        (into_store("chunk = 0"), "--chunk is zero"),
        (into_store("duration = '0s'"), "--duration is zero"),
        (into_store("capture-threads = 0"), "--capture-threads is zero: nothing would listen"),
        (into_store("sync = '0s'"), "--sync 0s cannot be: it is 1ms to 1h"),
        (into_store("sync = '2h'"), "--sync 2h cannot be: it is 1ms to 1h"),
        (into_store("scans = 0"), "--scans is zero"),
        (into_store("scans = 86401"), "--scans 86401 are more than 86400"),
        (into_store("scans = 2"), "--scans needs --duration or --bytes"),
        (into_store("scans = 2\nduration = '399ms'"), "--duration 399ms is too short"),
        (
            into_store("scans = 2\nbytes = 9\nuntil = '2200-01-01T00:00:00'"),
            "--until ends all scans",
        ),
        (into_store("start = '2020-01-01T00:00:00'"), "--start 2020-01-01T00:00:00.0Z is past"),
        (
            into_store("start = '2200-01-01T00:00:01'\nuntil = '2200-01-01T00:00:00'"),
            "--until is before --start",
        ),
        (panda("start = '2200-01-01T00:00:00'"), "--start: a PandA's acquisitions"),
        (into_store("new-member = '/t'"), "--new-member /t is not a member in --store"),
        (
            RecordingOptions { store: vec!["/s".into(), "/s".into()], ..into_store("") },
            "given twice",
        ),
        (RecordingOptions { session: Some("a_b".into()), ..into_store("") }, "--session: "),
        (RecordingOptions { scan: Some("../x".into()), ..into_store("") }, "--scan: `../x`"),
        (RecordingOptions { source: vec!["hello".into()], ..into_store("") }, "hello: "),
        (to("file:a", "overwrite = '/x'"), "--overwrite cannot be used with a file as --to"),
        (to("file:a", "flush = true"), "--flush cannot be used with a file as --to"),
        (to("file:a", "scans = 2"), "--scans 2: a file takes one scan"),
        (to("file:a?exist=append", ""), "file:a?exist=append: "),
        (to("device:/a", "scans = 2"), "--scans is for a store"),
        (
            to("device:/a", "overwrite = '/b'").with_targets(&["device:/a", "device:/c"]),
            "no --to names it",
        ),
        (to("device:/a", "session = 'r'"), "--session and --scan go together"),
        (
            to("device:/a?scan=r_b", "session = 'r'\nscan = 'a'"),
            "say r_a, and the endpoint another",
        ),
        (
            RecordingOptions { source: vec!["udp://:1".into()], ..to("device:/a", "flush = true") },
            "--flush: datagrams have no rest",
        ),
    ] {
        let told = refusal(&options);
        assert!(told.contains(said), "{said}: {told}");
    }
}

impl RecordingOptions {
    fn with_targets(self, to: &[&str]) -> Self {
        Self { to: to.iter().map(|&text| text.to_owned()).collect(), ..self }
    }
}

#[cfg(feature = "hdf5")]
#[test]
fn options_that_a_container_does_not_take_are_refused() {
    for (options, said) in [
        (to("x.h5", "sync = '1s'"), "--sync cannot be used with a container as --to"),
        (to("x.h5", "overwrite = '/x'"), "--overwrite cannot be used with a container as --to"),
        (to("x.h5", "scans = 2"), "--scans 2: a container takes one scan, except of PandAs"),
        (to("x.tdms", ""), "x.tdms"),
    ] {
        let told = refusal(&options);
        assert!(told.contains(said), "{said}: {told}");
    }
}

#[test]
fn an_error_of_an_endpoint_has_its_advice() {
    let error = RecordingOptions { source: vec!["rtp://a".into()], ..into_store("") }.resolve();
    assert!(error.unwrap_err().hint().is_some_and(|hint| hint.contains("for example")));
}

#[test]
fn options_given_above_replace_those_below_and_complete_them() {
    let below = into_store("duration = '1s'\nbuffer = '1GB'\ncpus = [1, 2]");
    let above = options("source = ['udp://:2', 'udp://:3']\nduration = '2s'\ncpus = 5");
    let both = above.clone().or(below.clone());
    assert_eq!(both.source, above.source, "a list is replaced as a whole");
    assert_eq!((both.duration, both.buffer), (above.duration, below.buffer));
    assert_eq!((both.cpus, both.session), (vec![5], below.session.clone()));
    assert_eq!(RecordingOptions::default().or(below.clone()), below);
    assert_eq!(below.clone().or(RecordingOptions::default()), below);
}

#[test]
fn an_option_replaces_those_that_it_excludes() {
    let stored =
        "store = '/s'\nchunk = '1GB'\nkeep = '2d'\nredundancy = 'mirror'\nnew-member = '/s'\n";
    let device = "to = 'device:/a'\noverwrite = '/a'\nflush = true\n";
    let scheduled = "schedule = 'x'\nstation = 'Wz'\nlead = '1s'\n";
    let single =
        "scan = 'a'\nscans = 2\nduration = '1s'\nbytes = 9\nuntil = '2200-01-01T00:00:00'\n";
    let always = "session = 'r'\nbuffer = '1GB'\n";
    for (above, below, left) in [
        ("to = '-'", stored, vec!["to"]),
        ("to = '-'", device, vec!["to"]),
        ("to = '-'", scheduled, vec!["to"]),
        ("store = '/t'", device, vec!["store"]),
        ("store = '/t'", stored, vec!["store", "chunk", "keep", "redundancy", "new-member"]),
        ("keep = '1d'", device, vec!["keep"]),
        ("keep = '1d'", "store = '/s'\nto = '-'\n", vec!["store", "to", "keep"]),
        ("keep = '1d'", "to = ['-', 'store:/s']\n", vec!["to", "keep"]),
        ("to = '-'", "store = '/s'\nto = 'file:/x'\n", vec!["to"]),
        ("schedule = 'y'", single, vec!["schedule"]),
        ("schedule = 'y'", device, vec!["schedule"]),
        ("schedule = 'y'", scheduled, vec!["schedule", "station", "lead"]),
        ("scan = 'b'", scheduled, vec!["scan"]),
        ("start = '2200-01-01T00:00:00'", scheduled, vec!["start"]),
        ("overwrite = '/b'", device, vec!["to", "overwrite", "flush"]),
        ("cpus = 1", "place = 'off'\n", vec!["cpus"]),
        ("place = 'off'", "cpus = 1\n", vec!["place"]),
    ] {
        let both = options(above).or(options(&format!("{always}{below}")));
        let mut given = both.given();
        given.retain(|key| !["session", "buffer"].contains(key));
        let mut left = left;
        left.sort_by_key(|key| RecordingOptions::KEYS.iter().position(|it| it == key));
        assert_eq!(given, left, "{above} over {below}");
        assert!(both.session.is_some() && both.buffer.is_some());
    }
}

/// The keys in the table of options on the reference page, between its marks.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/reference/cli.md");
    let (_, rest) = page.split_once("### Keys of `[record]`").expect("the page has the section");
    let table = rest.split("\n#").next().unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells.flat_map(|cell| cell.split(", ")).map(|key| key.trim_matches('`').to_owned()).collect()
}

#[test]
fn the_reference_page_has_every_key_and_no_other() {
    let mut documented = documented();
    // These are the command's own: they change what is shown.
    documented.retain(|key| !["quiet", "json", "log"].contains(&key.as_str()));
    let mut known: Vec<String> = RecordingOptions::KEYS.iter().map(|&key| key.to_owned()).collect();
    documented.sort();
    known.sort();
    assert_eq!(documented, known);
}

#[test]
fn every_key_is_a_field() {
    for key in RecordingOptions::KEYS {
        // An empty table is a value of no option: the key is known, and its value is refused.
        let error = RecordingOptions::from_toml(&format!("[record]\n{key} = {{}}"), "record", &[]);
        let told = error.expect_err(key).to_string();
        assert!(told.contains(key) && !told.contains("unknown field"), "{told}");
    }
    let more = RecordingOptions::deserialize(toml::toml! { nosuch = 1 }).unwrap_err().to_string();
    let fields = more.split('`').skip(3).step_by(2).count();
    assert_eq!(fields, RecordingOptions::KEYS.len(), "{more}");
}

#[test]
fn a_store_that_stands_below_a_target_is_not_opened() {
    let config = options("to = 'file:/x'").or(into_store("keep = '1d'")).resolve().unwrap();
    assert!(config.members().is_empty());
    assert_eq!(store_of(&into_store("").resolve().unwrap()).members.len(), 1);
}
