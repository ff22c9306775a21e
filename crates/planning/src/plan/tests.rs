//! Published systems, and machines read from saved trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::rules::{Finding, Severity, State};
use super::*;

fn answered(text: &str) -> Answer {
    let request = Request { description: Some(("test".into(), text.into())), ..Request::default() };
    answer(&Plan::read(&request).unwrap())
}

fn example(name: &str) -> Answer {
    answered(examples::example(name).unwrap().text)
}

fn all<'a>(answer: &'a Answer, id: &str) -> Vec<&'a Finding> {
    answer.findings.iter().filter(|it| it.id == id).collect()
}

#[test]
fn every_example_is_answered() {
    for name in examples::ALL.iter().map(|example| example.name) {
        let told = screen::screen(&example(name), true);
        assert!(told.contains("R9"), "{name}: {told}");
    }
    assert!(examples::example("nothing").is_err());
}

#[test]
fn an_input_and_an_output_behind_the_switch_of_the_disks_break_the_guidelines() {
    let together = example("chassis");
    for id in ["R2", "R3", "R4"] {
        let found = all(&together, id);
        assert_eq!(found.len(), 1, "{id}");
        assert_eq!((found[0].severity, found[0].state), (Severity::Warning, State::Broken), "{id}");
    }
    // Up: 400 of the digitizer and 500 read from the disks; gen1 ×4 carries 820, of which 90 % may be used.
    let link = together.narrowest.as_ref().unwrap();
    assert_eq!((link.node.as_str(), link.rate), ("switch", 900e6));
    assert_eq!(together.verdict, Verdict::DoesNotFit);

    let apart = example("chassis-apart");
    for id in ["R2", "R3", "R4"] {
        assert!(all(&apart, id).is_empty(), "{id}");
    }
    assert_eq!(apart.verdict, Verdict::Fits, "{}", screen::screen(&apart, true));
}

#[test]
fn a_terabyte_lasts_less_than_an_hour_and_a_half_and_2_to_the_40_bytes_more() {
    let decimal = example("terabyte");
    let full = decimal.volumes[0].full_after_s.unwrap() / 3600.0;
    assert!((full - 1.389).abs() < 0.001, "{full}");
    assert!(all(&decimal, "R11")[0].refuses());
    let binary = examples::example("terabyte").unwrap().text.replace("250GB", "256GiB");
    let binary = answered(&binary);
    let full = binary.volumes[0].full_after_s.unwrap() / 3600.0;
    assert!((full - 1.527).abs() < 0.001, "{full}");
    assert_eq!(all(&binary, "R11")[0].state, State::Holds);
}

#[test]
fn the_continuous_rate_of_a_drive_counts_and_not_its_peak() {
    let peak = example("nvme-peak");
    let sustained = all(&peak, "R9")[0];
    assert!(sustained.refuses());
    let sum = sustained.have.as_ref().unwrap().sum.as_ref().unwrap();
    assert!(sum.contains("7.0 times"), "{sum}");
    // The link would carry it: 3938 MB/s in packets of 256 bytes.
    let link = peak.narrowest.as_ref().unwrap();
    assert!((3.2e9..3.6e9).contains(&link.usable), "{}", link.usable);
    let continuous = example("nvme-continuous");
    assert!(!all(&continuous, "R9")[0].refuses());
    assert!(!all(&continuous, "R11")[0].refuses(), "40 min at 400 MB/s are 960 GB");
}

#[test]
fn the_station_records_sixty_scans_and_sends_them() {
    let station = example("station");
    assert_ne!(station.verdict, Verdict::DoesNotFit, "{}", screen::screen(&station, true));
    assert_ne!(station.verdict, Verdict::NotKnown);
    let volume = &station.volumes[0];
    // 60 scans × 40 s × 2 GB/s = 4800 GB of 21.6 TB.
    let data = all(&station, "R11")[0].need.as_ref().unwrap().figure.value;
    assert_eq!(data, 4.8e12);
    assert!((volume.full_after_s.unwrap() / 3600.0 - 4.5).abs() < 0.01);
    // 4 of 8 streams on each port of 10 Gbit/s.
    let port = station.nodes.iter().find(|node| node.name == "port0").unwrap();
    assert_eq!(port.up[0].rate, 1e9);
    assert_eq!(port.up[0].flow, "4 × VDIF");
    // A third port makes room; a ninth stream makes one port fuller than allowed.
    let more = station.one_more.iter().find(|it| it.what.contains("stream")).unwrap();
    assert_eq!(more.verdict, Verdict::DoesNotFit, "{more:?}");
}

#[test]
fn a_panda_at_sixty_megabytes_fits_its_link() {
    let panda = example("panda");
    assert_eq!(panda.verdict, Verdict::Fits, "{}", screen::screen(&panda, true));
    let link = panda.narrowest.as_ref().unwrap();
    assert_eq!(link.node, "network");
    assert!((0.45..0.55).contains(&link.fill), "{}", link.fill);
    // 300 TB at 60 MB/s: 58 days of recording.
    assert!((panda.volumes[0].worn_after_days.unwrap() - 57.87).abs() < 0.01);
}

#[test]
fn small_flows_make_advice_of_warnings() {
    let small = examples::example("chassis").unwrap().text;
    let small = small
        .replace("PXIe-5122", "PXIe-8234")
        .replace("duration = \"30min\"", "duration = \"1min\"");
    let small = format!("{small}\n[settings]\nsmall-flows = \"1GB/s\"\n");
    let told = answered(&small);
    assert!(all(&told, "R3").iter().all(|it| it.severity == Severity::Info));
}

#[test]
fn what_is_not_known_is_never_passed() {
    let told =
        answered("[machine]\ncores = 4\n[[stream]]\nrate = \"1GB/s\"\n[run]\nduration = \"1h\"");
    assert_eq!(told.verdict, Verdict::NotKnown);
    for id in ["R1", "R8", "R9", "R10"] {
        let found = all(&told, id);
        assert!(!found.is_empty(), "{id}");
        assert!(found.iter().all(|it| it.state == State::NotKnown && it.advice.is_some()), "{id}");
    }
}

#[test]
fn disks_that_are_too_slow_in_a_scan_may_write_in_the_pause() {
    let text = |memory: &str, pause: &str| {
        format!(
            "[machine]\nmemory = \"{memory}\"\ncores = 8\nnuma-nodes = 1\n\
             [[node]]\nname = \"net\"\nkind = \"network\"\nlink = \"100GbE\"\n\
             [[node]]\nname = \"d\"\nkind = \"disk\"\nlink = \"gen4 x4\"\n\
             [[disks]]\nname = \"d\"\nat = [\"d\"]\nwrite = \"1.5GB/s\"\nstall = \"50ms\"\ncapacity = \"90TB\"\n\
             [[stream]]\nrate = \"2GB/s\"\nat = [\"net\"]\n\
             [run]\nrecord = \"40s\"\npause = \"{pause}\"\nscans = 60\n"
        )
    };
    let state = |memory, pause| all(&answered(&text(memory, pause)), "R9")[0].state;
    // 0.5 GB/s × 40 s = 20 GB wait; a pause of 20 s writes 30 GB.
    assert_eq!(state("64GB", "20s"), State::Tight);
    assert_eq!(state("16GB", "20s"), State::Broken);
    assert_eq!(state("64GB", "5s"), State::Broken, "it does not drain");
    let budget = answered(&text("64GB", "20s")).memory.unwrap();
    assert_eq!(budget.backlog.unwrap().bytes, 20_000_000_000);
}

#[test]
fn peers_do_not_load_the_link_to_memory() {
    let text = examples::example("chassis").unwrap().text.replacen(
        "[[stream]]\nat = [\"slot2\"]",
        "[[stream]]\nat = [\"slot2\"]\npeer = true",
        1,
    );
    let told = answered(&text);
    let switch = told.nodes.iter().find(|node| node.name == "switch").unwrap();
    assert!(switch.up.iter().all(|share| !share.flow.contains("5122")), "{switch:?}");
    let raid = told.nodes.iter().find(|node| node.name == "raid").unwrap();
    assert!(raid.down.iter().any(|share| share.flow.contains("5122")), "{raid:?}");
}

#[test]
fn mistakes_in_a_description_are_named() {
    let refused = |text: &str| {
        let request =
            Request { description: Some(("m.toml".into(), text.into())), ..Request::default() };
        Plan::read(&request).unwrap_err().to_string()
    };
    let machine = "[machine]\ncores = 4\n";
    let cases = [
        ("[[stream]]\nrate = \"fast\"", "does not begin with a number"),
        ("[[stream]]\nrate = \"1GB/s\"\nat = [\"x\"]", "no place `x`"),
        ("[[stream]]\ninstrument = \"x\"", "no instrument `x`"),
        ("[[node]]\nname = \"a\"\nparent = \"b\"", "not described before"),
        ("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"", "another node"),
        ("[[node]]\nname = \"a\"\nlink = \"gen9 x4\"", "is no link"),
        ("[[disks]]\nname = \"d\"\ncount = 1\nraid = \"5\"", "too few for RAID 5"),
        ("[[disks]]\nname = \"d\"\ncount = 0", "1 to 4096 disks"),
        ("[[stream]]\nrate = \"1GB/s\"\ncount = 0", "count is 1 to"),
        ("[[stream]]\nrate = \"1GB/s\"\n[run]\nscans = 3", "need record"),
        ("[[stream]]\nrate = \"1GB/s\"\n[settings]\nheadroom = 2.0", "share from 0"),
        ("[[strem]]\nrate = \"1GB/s\"", "unknown field"),
        ("", "no stream is given"),
    ];
    for (text, why) in cases {
        let told = refused(&format!("{machine}{text}"));
        assert!(told.contains(why), "{text}: {told}");
    }
}

/// A machine as Linux shows it: an NVMe drive and a card below a switch, two ports of a card below a root port, and a
/// function on the root bus.
fn saved(root: &Path) {
    let put = |path: &str, files: &[(&str, &str)]| {
        for (name, text) in files {
            let path = root.join("sys/devices").join(path).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    };
    let link = |speed, width, most, most_width| {
        [
            ("current_link_speed", speed),
            ("current_link_width", width),
            ("max_link_speed", most),
            ("max_link_width", most_width),
        ]
    };
    let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
    let devices = [
        ("pci0000:00/0000:00:01.0", "0x060400", link("8.0 GT/s PCIe", "8", "8.0 GT/s PCIe", "16")),
        (switch, "0x060400", link("8.0 GT/s PCIe", "8", "16.0 GT/s PCIe", "8")),
        (&format!("{switch}/0000:02:00.0"), "0x060400", link("8 GT/s", "4", "8 GT/s", "8")),
        (&format!("{switch}/0000:02:01.0"), "0x060400", link("2.5 GT/s", "4", "8 GT/s", "8")),
        (
            &format!("{switch}/0000:02:00.0/0000:03:00.0"),
            "0x010802",
            link("8 GT/s", "4", "8 GT/s", "4"),
        ),
        (
            &format!("{switch}/0000:02:01.0/0000:04:00.0"),
            "0x020000",
            link("2.5 GT/s", "4", "8 GT/s", "8"),
        ),
        ("pci0000:80/0000:80:02.0", "0x060400", link("8 GT/s", "8", "8 GT/s", "8")),
        ("pci0000:80/0000:80:02.0/0000:81:00.0", "0x020000", link("8 GT/s", "8", "8 GT/s", "8")),
        ("pci0000:80/0000:80:02.0/0000:81:00.1", "0x020000", link("8 GT/s", "8", "8 GT/s", "8")),
        ("pci0000:00/0000:00:1f.2", "0x010601", link("5 GT/s", "2", "5 GT/s", "2")),
    ];
    for (path, class, link) in &devices {
        put(path, &[("class", class), ("numa_node", if path.contains(":80") { "1" } else { "0" })]);
        put(path, link);
    }
    let nvme = format!("{switch}/0000:02:00.0/0000:03:00.0/nvme/nvme0/nvme0n1");
    put(&nvme, &[("size", "1")]);
    for (card, name, speed) in [
        (format!("{switch}/0000:02:01.0/0000:04:00.0"), "ens1", "10000"),
        ("pci0000:80/0000:80:02.0/0000:81:00.0".into(), "ens2f0", "40000"),
        ("pci0000:80/0000:80:02.0/0000:81:00.1".into(), "ens2f1", "-1"),
    ] {
        put(&format!("{card}/net/{name}"), &[("speed", speed), ("mtu", "9000")]);
        let net = root.join("sys/class/net");
        fs::create_dir_all(&net).unwrap();
        let device = root.join("sys/devices").join(&card);
        symlink(device.join("net").join(name), net.join(name)).unwrap();
        symlink(&device, device.join("net").join(name).join("device")).unwrap();
    }
    for (path, ..) in &devices {
        let bus = root.join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let name = path.rsplit('/').next().unwrap();
        symlink(root.join("sys/devices").join(path), bus.join(name)).unwrap();
    }
    fs::create_dir_all(root.join("sys/block")).unwrap();
    symlink(root.join("sys/devices").join(&nvme), root.join("sys/block/nvme0n1")).unwrap();
    for node in ["node0", "node1"] {
        fs::create_dir_all(root.join("sys/devices/system/node").join(node)).unwrap();
    }
    fs::create_dir_all(root.join("sys/devices/system/cpu")).unwrap();
    fs::write(root.join("sys/devices/system/cpu/online"), "0-15\n").unwrap();
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/meminfo"), "MemAvailable:   67108864 kB\n").unwrap();
}

fn planned_on(root: &Path, streams: &[&str], text: &str) -> Answer {
    let request = Request {
        sysfs_root: Some(root.to_owned()),
        streams: streams.iter().map(|it| (*it).to_owned()).collect(),
        description: Some(("m.toml".into(), text.into())),
        ..Request::default()
    };
    answer(&Plan::read(&request).unwrap())
}

const DISKS: &str =
    "[[disks]]\nname = \"d\"\nat = [\"nvme0n1\"]\nwrite = \"1.5GB/s\"\nstall = \"50ms\"\n";

#[test]
fn the_tree_of_a_saved_machine_names_the_shared_link() {
    let saved_tree = tempfile::tempdir().unwrap();
    saved(saved_tree.path());
    let told = planned_on(saved_tree.path(), &["4x2Gbit/s@ens1"], DISKS);
    // The card and the drive share the link of the switch, 8 GT/s ×8; the card's own runs at 2.5 GT/s.
    let switch = told.nodes.iter().find(|node| node.name == "0000:01:00.0").unwrap();
    assert_eq!(switch.link.as_deref(), Some("PCIe gen3 x8"));
    assert_eq!((switch.up[0].rate, switch.down[0].rate), (1e9, 1e9));
    for port in ["0000:00:01.0", "0000:02:00.0", "0000:02:01.0"] {
        assert!(told.nodes.iter().find(|node| node.name == port).unwrap().internal, "{port}");
    }
    let card = all(&told, "R1").into_iter().find(|it| it.subject.contains("0000:04:00.0")).unwrap();
    assert!(card.refuses(), "1 GB/s over 2.5 GT/s ×4, which carries 820 MB/s");
    let low: Vec<_> = all(&told, "R7").into_iter().filter(|it| it.state == State::Broken).collect();
    assert_eq!(low.len(), 1);
    assert!(low[0].subject.contains("0000:04:00.0"), "{low:?}");
    let full = all(&told, "R7").into_iter().find(|it| it.subject.contains("0000:03:00.0")).unwrap();
    assert_eq!(full.state, State::Holds, "an ×8 port with an ×4 drive is in order");
    assert_eq!(all(&told, "R3").len(), 1, "the card is behind the switch of the drive");
    assert_eq!(all(&told, "R8")[0].state, State::Holds);
}

#[test]
fn functions_of_a_card_share_its_link_and_another_node_is_a_warning() {
    let saved_tree = tempfile::tempdir().unwrap();
    saved(saved_tree.path());
    let told = planned_on(saved_tree.path(), &["a=2GB/s@ens2f0", "b=2GB/s@ens2f1"], DISKS);
    let port = told.nodes.iter().find(|node| node.name == "0000:80:02.0").unwrap();
    assert_eq!((port.internal, port.up.iter().map(|it| it.rate).sum::<f64>()), (false, 4e9));
    assert!(all(&told, "R2").is_empty(), "two ports of one card are one device");
    assert_eq!(all(&told, "R8")[0].state, State::Broken, "the drive is on node 0");
    let unknown = all(&told, "R1").into_iter().find(|it| it.state == State::NotKnown).unwrap();
    assert!(unknown.because.as_ref().unwrap().contains("ens2f1"), "its speed is -1");
}

#[test]
fn a_tree_without_pci_devices_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(sysfs::roots(empty.path()), Err(Error::NoSysfs { .. })));
}

const TOPOLOGY: &str = r#"<?xml version="1.0"?>
<topology version="2.0">
 <object type="Machine" os_index="0" nodeset="0x00000003">
  <object type="Package" nodeset="0x00000001">
   <object type="NUMANode" os_index="0" nodeset="0x00000001" local_memory="68719476736"/>
   <object type="Core"><object type="PU" os_index="0"/></object>
   <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
    <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.0" pci_type="0604 [8086:6f02]" pci_link_speed="15.753846">
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:01:00.0" pci_type="0604 [10b5:9797]" pci_link_speed="15.753846">
      <object type="Bridge" bridge_type="1-1" pci_busid="0000:02:00.0" pci_type="0604 [10b5:9797]" pci_link_speed="15.753846">
       <object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0207 [15b3:1013]" pci_link_speed="15.753846">
        <object type="OSDev" name="ib0" osdev_type="2"/>
       </object>
      </object>
      <object type="Bridge" bridge_type="1-1" pci_busid="0000:02:01.0" pci_type="0604 [10b5:9797]" pci_link_speed="3.938462">
       <object type="PCIDev" pci_busid="0000:04:00.0" pci_type="0108 [144d:a804]" pci_link_speed="3.938462">
        <object type="OSDev" name="nvme0n1" osdev_type="0"/>
       </object>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" nodeset="0x00000002">
   <object type="NUMANode" os_index="1" nodeset="0x00000002" local_memory="68719476736"/>
   <object type="Core"><object type="PU" os_index="1"/></object>
  </object>
 </object>
</topology>
"#;

#[test]
fn a_topology_of_hwloc_gives_links_and_memory_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("machine.xml");
    fs::write(&path, TOPOLOGY).unwrap();
    let request = Request {
        hwloc: Some(path),
        streams: vec!["4GB/s@ib0".into()],
        description: Some(("m.toml".into(), DISKS.into())),
        ..Request::default()
    };
    let plan = Plan::read(&request).unwrap();
    assert_eq!(plan.machine.cores.as_ref().unwrap().value, 2.0);
    assert_eq!(plan.machine.memory.as_ref().unwrap().value, 137_438_953_472.0);
    let told = answer(&plan);
    let drive = told.nodes.iter().find(|node| node.name == "0000:04:00.0").unwrap();
    assert_eq!(drive.link.as_deref(), Some("PCIe gen3 x4"));
    assert!(all(&told, "R1").iter().any(|it| it.refuses() && it.subject.contains("0000:04:00.0")));
    assert_eq!(all(&told, "R8")[0].state, State::Holds, "both are on node 0");
    assert!(all(&told, "R7").iter().all(|it| it.state == State::NotKnown));
}

#[test]
fn broken_topologies_are_refused_at_every_cut() {
    let path = Path::new("cut.xml");
    for end in 0..TOPOLOGY.len() {
        // No cut may panic; a cut that leaves whole tags is a smaller topology.
        let _ = hwloc::machine(path, &TOPOLOGY[..end]);
    }
    assert!(matches!(hwloc::machine(path, "<a/>"), Err(Error::NoTopology { .. })));
    let deep = "<object type=\"Machine\">".repeat(100);
    assert!(matches!(hwloc::machine(path, &deep), Err(Error::NoTopology { .. })));
}
