//! Network cards and the kernel's path of packets.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use fullbore_core::affinity::in_words;
use fullbore_engine::topology::{NetworkPath, nic_topology};
use fullbore_linux::sys::ethtool::{Cards, Coalescing};
use fullbore_survey::bench::environment::{Roots, text};

use super::fix::Setting;
use super::{Finding, Grade, Host, proc_number};

/// The most interfaces that are looked at.
const MOST_INTERFACES: usize = 256;

/// The MTU of jumbo frames.
const JUMBO: u64 = 9000;

/// Coalescing that gives batches, and that a ring of a few hundred descriptors holds: 50 to 100 µs.
const USECS: std::ops::RangeInclusive<u32> = 50..=100;

/// Checks each interface that receives.
pub fn check(host: &Host, cards: Option<&Cards>) -> Vec<Finding> {
    let interfaces = interfaces(host);
    if interfaces.is_empty() {
        let why = "no network card is up; name one with --interface";
        return vec![Finding::unknown("interface", "network", why)];
    }
    interfaces.iter().flat_map(|name| of_interface(host, cards, name)).collect()
}

/// The named interfaces, or all cards that are up.
fn interfaces(host: &Host) -> Vec<String> {
    if !host.interfaces.is_empty() {
        return host.interfaces.clone();
    }
    let Ok(entries) = fs::read_dir(host.roots.sysfs.join("class/net")) else { return vec![] };
    let mut names: Vec<String> = entries
        .take(MOST_INTERFACES)
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter(|entry| text(&entry.path().join("operstate")).is_none_or(|state| state == "up"))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn of_interface(host: &Host, cards: Option<&Cards>, name: &str) -> Vec<Finding> {
    let place = host.roots.sysfs.join("class/net").join(name);
    if name.contains('/') || !place.exists() {
        return vec![Finding::new("interface", name, Grade::Problem, "there is no such interface")];
    }
    let number = |file: &str| text(&place.join(file)).and_then(|text| text.parse::<u64>().ok());
    let mut findings = vec![mtu(name, number("mtu"))];
    findings.extend([ring(cards, name), lro(cards, name), gro(cards, name)]);
    findings.extend([coalescing(cards, name), pause(cards, name), channels(cards, name)]);
    findings.push(deferral(name, number("gro_flush_timeout"), number("napi_defer_hard_irqs")));
    findings.push(interrupts(host, name));
    findings
}

fn mtu(name: &str, mtu: Option<u64>) -> Finding {
    match mtu {
        None => Finding::unknown("mtu", name, "the MTU cannot be read"),
        Some(mtu) if mtu >= JUMBO => Finding::new("mtu", name, Grade::Good, format!("MTU {mtu}")),
        Some(mtu) => Finding::new("mtu", name, Grade::Advice, format!("MTU {mtu}"))
            .cost("packets of 8000 bytes arrive in fragments, or not at all; packets of 1312 bytes are six times as many")
            .command(format!("ip link set {name} mtu {JUMBO}, on every switch and sender as well")),
    }
}

/// The answer of a card, judged, or why there is none.
fn asked<T>(
    cards: Option<&Cards>,
    id: &'static str,
    name: &str,
    ask: impl FnOnce(&Cards) -> std::io::Result<T>,
    judge: impl FnOnce(T) -> Finding,
) -> Finding {
    let unknown = |why: String| Finding::unknown(id, name, why);
    match cards.map(ask) {
        None => unknown("only the host itself can tell".to_owned()),
        Some(Err(error)) => unknown(format!("the driver does not tell: {error}")),
        Some(Ok(answer)) => judge(answer),
    }
}

fn ring(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "rx-ring",
        name,
        |cards| cards.ring(name),
        |ring| {
            let found = format!("receive ring of {} of {} descriptors", ring.now, ring.most);
            let grade = if ring.now >= ring.most { Grade::Good } else { Grade::Problem };
            Finding::new("rx-ring", name, grade, found)
            .cost("a burst that the processor does not take in time is dropped by the card, before any counter of a socket")
            .fix(vec![Setting::RxRing { card: name.to_owned(), descriptors: ring.most }])
        },
    )
}

fn lro(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "lro",
        name,
        |cards| cards.lro(name),
        |on| {
            let (grade, found) = match on {
                true => (Grade::Problem, "LRO is on"),
                false => (Grade::Good, "LRO is off"),
            };
            Finding::new("lro", name, grade, found)
                .cost("the card merges packets and their borders are lost: frames cannot be found")
                .fix(vec![Setting::Lro { card: name.to_owned(), on: false }])
        },
    )
}

fn gro(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "gro",
        name,
        |cards| cards.gro(name),
        |on| {
            let (grade, found) = match on {
                true => (Grade::Good, "GRO is on"),
                false => (Grade::Advice, "GRO is off"),
            };
            Finding::new("gro", name, grade, found)
            .cost("receiving costs a quarter more CPU time (measured: 0.244 instead of 0.196 s/GB over loopback)")
            .fix(vec![Setting::Gro { card: name.to_owned(), on: true }])
        },
    )
}

fn coalescing(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "coalescing",
        name,
        |cards| cards.coalescing(name),
        |now| {
            let Coalescing { rx_usecs, adaptive } = now;
            let good = !adaptive && USECS.contains(&rx_usecs);
            let found = match adaptive {
                true => format!("interrupts wait {rx_usecs} µs, changed by the driver"),
                false => format!("interrupts wait {rx_usecs} µs"),
            };
            let wanted = Setting::Coalescing {
                card: name.to_owned(),
                rx_usecs: *USECS.start(),
                adaptive: false,
            };
            Finding::new("coalescing", name, if good { Grade::Good } else { Grade::Advice }, found)
                .cost(
                    "too short, each packet interrupts; too long or changing, bursts fill the ring",
                )
                .fix(vec![wanted])
        },
    )
}

fn pause(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "pause",
        name,
        |cards| cards.pause(name),
        |pause| {
            let switch = |on: bool| if on { "on" } else { "off" };
            let found =
                format!("pause frames: receive {}, send {}", switch(pause.rx), switch(pause.tx));
            let grade = if pause.rx || pause.tx { Grade::Advice } else { Grade::Good };
            Finding::new("pause", name, grade, found)
            .cost("an overloaded host stops the sender, so frames are lost there and no counter here shows it")
            .command(format!("ethtool -A {name} autoneg off rx off tx off (the link goes down for a moment)"))
        },
    )
}

fn channels(cards: Option<&Cards>, name: &str) -> Finding {
    asked(
        cards,
        "queues",
        name,
        |cards| cards.channels(name),
        |channels| {
            let found = format!("{} of {} receive queues", channels.now, channels.most);
            let grade =
                if channels.now > 1 || channels.most < 2 { Grade::Good } else { Grade::Advice };
            Finding::new("queues", name, grade, found)
                .cost("one core handles all packets of the card")
                .command(format!(
                    "ethtool -L {name} combined {}, then ethtool -N {name} rx-flow-hash udp4 sdfn",
                    channels.most
                ))
        },
    )
}

fn deferral(name: &str, timeout: Option<u64>, defer: Option<u64>) -> Finding {
    let (Some(timeout), Some(defer)) = (timeout, defer) else {
        return Finding::unknown("gro-batching", name, "gro_flush_timeout cannot be read");
    };
    let file = |file: &str, value: u32| Setting::sys(&format!("class/net/{name}/{file}"), value);
    let good = timeout > 0 && defer > 0;
    let found = format!("gro_flush_timeout {timeout} ns, napi_defer_hard_irqs {defer}");
    Finding::new("gro-batching", name, if good { Grade::Good } else { Grade::Advice }, found)
        .cost("the kernel merges fewer packets of 8000 bytes per call, and each call costs")
        .fix(vec![file("gro_flush_timeout", 100_000), file("napi_defer_hard_irqs", 2)])
}

/// The cores that take the interrupts of a card: none is free for capture threads if it is all.
fn interrupts(host: &Host, name: &str) -> Finding {
    let path = NetworkPath { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), interface: Some(name) };
    let root = match host.roots.sysfs.parent() {
        Some(root) if host.roots.sysfs.ends_with("sys") => root,
        _ => return Finding::unknown("interrupts", name, "only a root with sys and proc can tell"),
    };
    let cores = nic_topology(root, [path]).interrupts;
    let online = host.roots.sys("devices/system/cpu/online");
    let online = online.and_then(|list| fullbore_core::affinity::parse(&list));
    let (false, Some(online)) = (cores.is_empty(), online) else {
        return Finding::unknown("interrupts", name, "its interrupts cannot be read");
    };
    let all = online.iter().all(|core| cores.contains(core));
    let found = format!("interrupts on {}", in_words(cores.iter().copied()));
    Finding::new("interrupts", name, if all { Grade::Advice } else { Grade::Good }, found)
        .cost("no core is free of them for a capture thread, which loses its time to packets of others")
        .command(format!(
            "for irq in /sys/class/net/{name}/device/msi_irqs/*; do echo 0 > /proc/irq/${{irq##*/}}/smp_affinity_list; done"
        ))
}

/// Checks the settings of the kernel for all interfaces.
pub fn kernel(roots: &Roots) -> Vec<Finding> {
    let number = |id, path: &str, wanted, grade, cost| {
        proc_number(roots, id, path, wanted, grade).cost(cost)
    };
    vec![
        number(
            "rmem-max",
            "sys/net/core/rmem_max",
            256 << 20,
            Grade::Problem,
            "a socket buffer holds less than 50 ms of a stream, so a busy core loses packets; 256 MiB hold half a second of 2 Gbit/s",
        ),
        number(
            "backlog",
            "sys/net/core/netdev_max_backlog",
            30_000,
            Grade::Advice,
            "packets that are steered to another core (RPS) are dropped when this queue is full",
        ),
        number(
            "budget",
            "sys/net/core/netdev_budget",
            600,
            Grade::Advice,
            "the kernel leaves a card's packets after this number, and comes back later (time_squeeze)",
        ),
        busy_poll(roots),
        conntrack(roots),
        irqbalance(roots),
    ]
}

fn busy_poll(roots: &Roots) -> Finding {
    match roots.proc("sys/net/core/busy_read").and_then(|text| text.parse::<u64>().ok()) {
        None => Finding::unknown("busy-poll", "kernel", "net.core.busy_read cannot be read"),
        Some(0) => Finding::new("busy-poll", "kernel", Grade::Good, "sockets do not poll cards"),
        Some(usecs) => {
            let found = format!("each read polls the card for up to {usecs} µs");
            Finding::new("busy-poll", "kernel", Grade::Advice, found)
                .cost("a capture thread spends its time on polling, instead of on other sockets")
                .fix(vec![Setting::proc("sys/net/core/busy_read", 0)])
        }
    }
}

/// Connection tracking of datagrams: its table fills, and then packets are dropped.
fn conntrack(roots: &Roots) -> Finding {
    let number = |name: &str| roots.proc(format!("sys/net/netfilter/{name}"))?.parse::<u64>().ok();
    let Some(count) = number("nf_conntrack_count") else {
        let exists = roots.proc("sys/net/core/rmem_max").is_some();
        return match exists {
            true => Finding::new("conntrack", "kernel", Grade::Good, "connections are not tracked"),
            false => Finding::unknown("conntrack", "kernel", "/proc/sys/net cannot be read"),
        };
    };
    let most = number("nf_conntrack_max").unwrap_or(u64::MAX);
    let full = count.saturating_mul(10) >= most.saturating_mul(9);
    let found = format!("connection tracking is loaded, with {count} of {most} entries");
    Finding::new("conntrack", "kernel", if full { Grade::Problem } else { Grade::Advice }, found)
        .cost("every packet is looked up; when the table is full, packets of new senders are dropped")
        .command("nft add rule ip raw prerouting udp dport PORTS notrack, with the table: nft add table ip raw; nft 'add chain ip raw prerouting { type filter hook prerouting priority raw; }'")
}

fn irqbalance(roots: &Roots) -> Finding {
    let Ok(entries) = fs::read_dir(&roots.procfs) else {
        return Finding::unknown("irqbalance", "kernel", "processes cannot be read");
    };
    let is_process = |name: &std::ffi::OsString| {
        name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let runs = entries
        .take(1 << 20)
        .flatten()
        .filter(|entry| is_process(&entry.file_name()))
        .any(|entry| text(&entry.path().join("comm")).as_deref() == Some("irqbalance"));
    let (grade, found) = match runs {
        true => (Grade::Advice, "irqbalance runs"),
        false => (Grade::Good, "irqbalance does not run"),
    };
    Finding::new("irqbalance", "kernel", grade, found)
        .cost("it moves interrupts to the cores of capture threads, at any time")
        .command("systemctl stop irqbalance")
}
