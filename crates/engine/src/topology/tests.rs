use std::os::unix::fs::symlink;

use fullbore_core::affinity::{AffinityPolicy, NicTopology, Placement};
use fullbore_core::endpoint::UdpSource;

use super::*;

/// A tree of an invented machine, in a directory of its own.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(self.root().join(to)).unwrap();
        symlink(self.root().join(to), path).unwrap();
    }

    /// A machine with two sockets of eight cores with two threads each, a card on each, NVMe on the second.
    fn server() -> Self {
        let tree = Self::new();
        let cpu = |number: usize, file: &str| format!("sys/devices/system/cpu/cpu{number}/{file}");
        for number in 0..32 {
            let (core, socket) = (number % 16, number % 16 / 8);
            let package = format!(
                "{}-{},{}-{}",
                socket * 8,
                socket * 8 + 7,
                socket * 8 + 16,
                socket * 8 + 23
            );
            tree.put(
                &cpu(number, "topology/thread_siblings_list"),
                &format!("{core},{}", core + 16),
            );
            tree.put(&cpu(number, "topology/core_siblings_list"), &package);
            for level in 1..=3 {
                let index = |file: &str| cpu(number, &format!("cache/index{level}/{file}"));
                tree.put(&index("level"), &level.to_string());
                let own = format!("{core},{}", core + 16);
                tree.put(&index("shared_cpu_list"), if level == 3 { &package } else { &own });
            }
        }
        tree.put("sys/devices/system/cpu/isolated", "");
        tree.put("sys/devices/system/node/node0/cpulist", "0-7,16-23");
        tree.put("sys/devices/system/node/node1/cpulist", "8-15,24-31");
        tree.put("sys/devices/system/node/online", "0-1");
        tree.put("proc/self/cgroup", "0::/system.slice/fullbore.service");
        tree.put("sys/fs/cgroup/system.slice/fullbore.service/cpu.max", "max 100000");
        for (node, name) in ["ens0", "ens1"].iter().enumerate() {
            let pci = format!("sys/devices/pci0000:{node}0/0000:{node}0:02.0/0000:{node}1:00.0");
            tree.put(&format!("{pci}/numa_node"), &node.to_string());
            for queue in 0..2 {
                let irq = 100 * (node + 1) + queue;
                tree.put(&format!("{pci}/msi_irqs/{irq}"), "msix");
                let cpu = node * 8 + queue;
                tree.put(&format!("proc/irq/{irq}/effective_affinity_list"), &cpu.to_string());
                tree.put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-31");
            }
            tree.put(&format!("sys/class/net/{name}/operstate"), "up");
            tree.put(&format!("sys/class/net/{name}/queues/rx-0/rps_cpus"), "00000000");
            tree.link(&format!("sys/class/net/{name}/device"), &pci);
        }
        tree.put("sys/class/net/lo/operstate", "unknown");
        let disk = "sys/devices/pci0000:80/0000:81:00.0/nvme/nvme0/nvme0n1/nvme0n1p1";
        tree.put("sys/devices/pci0000:80/0000:81:00.0/numa_node", "1");
        tree.link("sys/dev/block/259:1", disk);
        tree.link("sys/dev/block/253:0", "sys/devices/virtual/block/dm-0");
        tree.link("sys/devices/virtual/block/dm-0/slaves/nvme0n1p1", disk);
        let row = |name: &str, network: [u8; 4], mask: [u8; 4]| {
            let hex = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
            format!("{name}\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0", hex(network), hex(mask))
        };
        let routes = [
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"
                .to_owned(),
            row("ens0", [10, 0, 0, 0], [255, 255, 0, 0]),
            row("ens1", [10, 0, 7, 0], [255, 255, 255, 0]),
        ];
        tree.put("proc/net/route", &routes.join("\n"));
        tree.put("proc/net/if_inet6", "fd000000000000000000000000000001 03 40 00 80     ens1");
        tree
    }

    fn nic_topology(&self, source: &str) -> NicTopology {
        let sources = UdpSource::parse(source).unwrap();
        let path = |source: &'_ UdpSource| (source.address.ip(), source.interface.clone());
        let paths: Vec<_> = sources.iter().map(path).collect();
        let paths = paths
            .iter()
            .map(|(address, name)| NetworkPath { address: *address, interface: name.as_deref() });
        nic_topology(self.root(), paths)
    }
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

#[test]
fn the_link_of_a_connection_and_its_rate_are_found() {
    let tree = Tree::server();
    tree.put("sys/class/net/ens1/speed", "1000\n");
    tree.put("sys/class/net/ens0/speed", "-1\n");
    let found = |address: &str| {
        let link = link(tree.root(), address.parse().unwrap())?;
        Some((link.interface, link.megabits))
    };
    assert_eq!(found("10.0.7.3"), Some(("ens1".to_owned(), Some(1000))));
    assert_eq!(found("::ffff:10.0.7.3"), found("10.0.7.3"));
    assert_eq!(found("fd00::1"), found("10.0.7.3"));
    assert_eq!(found("10.0.9.3"), Some(("ens0".to_owned(), None)));
    assert_eq!(found("127.0.0.1"), Some(("lo".to_owned(), None)));
    assert_eq!(found("172.16.0.1"), None);
}

#[test]
fn cores_caches_and_nodes_are_read() {
    let tree = Tree::server();
    let machine = machine(tree.root(), &all(32));
    assert_eq!(machine.cores().len(), 16);
    assert_eq!((machine.nodes(), machine.quota), (2, None));
    let cpu = &machine.cpus[27];
    assert_eq!((cpu.core, cpu.cache, cpu.node, cpu.isolated), (11, 8, Some(1), false));
}

#[test]
fn a_machine_that_tells_nothing_has_a_core_for_each_processor() {
    let machine = machine(Tree::new().root(), &[0, 3, 5]);
    assert_eq!((machine.cores().len(), machine.nodes(), machine.quota), (3, 0, None));
    assert!(machine.cpus.iter().all(|cpu| cpu.node.is_none() && cpu.core == cpu.number as u32));
}

#[test]
fn isolated_cores_and_quotas_of_both_kinds_of_cgroup_are_seen() {
    let tree = Tree::server();
    tree.put("sys/devices/system/cpu/isolated", "6-7");
    tree.put("sys/fs/cgroup/system.slice/cpu.max", "650000 100000");
    let found = machine(tree.root(), &all(8));
    let isolated: Vec<usize> =
        found.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.number).collect();
    assert_eq!((isolated, found.quota), (vec![6, 7], Some(6)));
    tree.put("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/jobs\n");
    tree.put("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "50000");
    tree.put("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000");
    assert_eq!(machine(tree.root(), &all(8)).quota, Some(1));
    tree.put("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "-1");
    assert_eq!(machine(tree.root(), &all(8)).quota, None);
}

#[test]
fn a_socket_is_fed_by_the_card_that_has_its_address_or_is_named() {
    let tree = Tree::server();
    let found = tree.nic_topology("udp://10.0.7.9:46220?format=vdif");
    assert_eq!((found.cards, found.node), (vec!["ens1".to_owned()], Some(1)));
    assert_eq!(found.interrupts.into_iter().collect::<Vec<_>>(), [8, 9]);
    assert_eq!(tree.nic_topology("udp://10.0.1.1:5000?format=vdif").cards, ["ens0"]);
    assert_eq!(tree.nic_topology("udp://[fd00::1]:5000?format=vdif").cards, ["ens1"]);
    assert_eq!(tree.nic_topology("udp://239.1.1.1:5000?interface=ens0").cards, ["ens0"]);
    assert_eq!(tree.nic_topology("udp://127.0.0.1:5000?format=vdif"), NicTopology::default());
}

#[test]
fn a_socket_that_listens_everywhere_may_be_fed_by_every_card_that_is_up() {
    let tree = Tree::server();
    let found = tree.nic_topology("udp://0.0.0.0:46220?format=vdif");
    assert_eq!((found.cards.len(), found.node, found.interrupts.len()), (2, None, 4));
    tree.put("sys/class/net/ens0/operstate", "down");
    let found = tree.nic_topology("udp://0.0.0.0:46220?format=vdif");
    assert_eq!((found.cards, found.node), (vec!["ens1".to_owned()], Some(1)));
}

#[test]
fn packets_that_are_steered_elsewhere_interrupt_there_too() {
    let tree = Tree::server();
    tree.put("sys/class/net/ens1/queues/rx-0/rps_cpus", "00001000");
    let found = tree.nic_topology("udp://10.0.7.9:46220?format=vdif");
    assert_eq!(found.interrupts.into_iter().collect::<Vec<_>>(), [8, 9, 12]);
}

#[test]
fn a_vlan_is_fed_by_the_card_below_it() {
    let tree = Tree::server();
    tree.put("sys/class/net/vlan7/operstate", "up");
    tree.link("sys/class/net/vlan7/lower_ens1", "sys/class/net/ens1");
    let found = tree.nic_topology("udp://239.1.1.1:5000?interface=vlan7");
    assert_eq!((found.cards, found.node), (vec!["ens1".to_owned()], Some(1)));
}

#[test]
fn a_disk_is_on_the_node_of_its_controller_also_below_a_volume() {
    let tree = Tree::server();
    assert_eq!(disk_topology(tree.root(), (259, 1)), DiskTopology { node: Some(1) });
    assert_eq!(disk_topology(tree.root(), (253, 0)), DiskTopology { node: Some(1) });
    assert_eq!(disk_topology(tree.root(), (8, 0)), DiskTopology { node: None });
}

#[test]
fn what_the_files_say_becomes_a_plan() {
    let tree = Tree::server();
    let machine = machine(tree.root(), &all(32));
    let nics = [tree.nic_topology("udp://10.0.7.9:46220?format=vdif")];
    let disks = [disk_topology(tree.root(), (259, 1))];
    let placed = Placement::plan(&machine, &nics, &disks, &AffinityPolicy::Auto);
    assert_eq!((placed.captures[0].cpus.as_slice(), placed.captures[0].node), (&[10][..], Some(1)));
    assert_eq!(placed.writers[0].cpus, [11, 12, 13, 14, 15, 27, 28, 29, 30, 31]);
}

#[test]
fn this_machine_is_read_without_complaint() {
    let allowed = fullbore_linux::sys::sched::allowed().unwrap();
    let machine = machine(Path::new("/"), &allowed);
    assert_eq!(machine.cpus.len(), allowed.len());
    assert!(!machine.cores().is_empty());
}
