use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Returns a machine with this many sockets and cores each, numbered as Linux does: first hardware threads first.
fn machine(sockets: usize, cores: usize, threads: usize) -> Machine {
    let all = sockets * cores;
    let cpus = (0..all * threads).map(|number| {
        let core = number % all;
        Cpu {
            number,
            core: core as u32,
            cache: (core / cores * cores) as u32,
            node: Some((core / cores) as u32),
            isolated: false,
        }
    });
    Machine { cpus: cpus.collect(), quota: None }
}

fn card(name: &str, node: u32, interrupts: impl IntoIterator<Item = usize>) -> NicTopology {
    NicTopology {
        cards: vec![name.to_owned()],
        node: Some(node),
        interrupts: interrupts.into_iter().collect(),
    }
}

fn disk(node: u32) -> DiskTopology {
    DiskTopology { node: Some(node) }
}

fn auto(machine: &Machine, nics: &[NicTopology], disks: &[DiskTopology]) -> Placement {
    Placement::plan(machine, nics, disks, &AffinityPolicy::Auto)
}

#[test]
fn two_cores_are_left_to_the_scheduler_and_it_is_said_why() {
    let placed = auto(&machine(1, 2, 1), &[NicTopology::default()], &[DiskTopology::default()]);
    assert!(!placed.pinned && placed.captures[0].cpus.is_empty());
    assert!(placed.why.contains("has 2 whole cores, and pinning needs 3"), "{}", placed.why);
    // Hardware threads do not add whole cores.
    assert!(!auto(&machine(1, 2, 2), &[NicTopology::default()], &[DiskTopology::default()]).pinned);
    let placed = auto(&machine(1, 1, 1), &[NicTopology::default()], &[DiskTopology::default()]);
    assert!(placed.why.contains("1 whole core,"), "{}", placed.why);
}

#[test]
fn a_quota_counts_as_cores_that_are_not_there() {
    let limited = Machine { quota: Some(2), ..machine(1, 16, 2) };
    let placed = auto(&limited, &[NicTopology::default()], &[DiskTopology::default()]);
    assert!(!placed.pinned && placed.why.contains("quota"), "{}", placed.why);
}

#[test]
fn sixteen_cores_give_capture_threads_their_own_and_writers_the_rest() {
    let machine = machine(1, 16, 2);
    let placed = auto(&machine, &[card("eth0", 0, 0..4), card("eth0", 0, 0..4)], &vec![disk(0); 6]);
    let cpus: Vec<usize> = placed.captures.iter().map(|assignment| assignment.cpus[0]).collect();
    assert_eq!(cpus, [4, 5]);
    assert!(placed.captures[0].why.contains("away from the interrupts of eth0 (on cores 0-3)"));
    // Neither the cores of capture threads, nor their siblings, nor those that take interrupts.
    let shared: Vec<usize> = (6..16).chain(22..32).collect();
    assert!(
        placed.writers.iter().all(|assignment| assignment.cpus == shared),
        "{:?}",
        placed.writers[0]
    );
    assert_eq!(placed.captures[0].node, None, "one node is no choice");
}

#[test]
fn on_two_sockets_threads_and_memory_are_where_card_and_disk_are() {
    let machine = machine(2, 8, 2);
    let nics = [card("ens1", 1, [8, 9]), card("ens0", 0, [0, 1])];
    let placed = auto(&machine, &nics, &[disk(0), disk(1)]);
    let assignments: Vec<(usize, Option<u32>)> =
        placed.captures.iter().map(|assignment| (assignment.cpus[0], assignment.node)).collect();
    assert_eq!(assignments, [(10, Some(1)), (2, Some(0))]);
    assert!(placed.captures[0].why.contains("on node 1 as ens1"), "{}", placed.captures[0].why);
    assert_eq!(placed.writers[0].cpus, [3, 4, 5, 6, 7, 19, 20, 21, 22, 23]);
    assert_eq!(placed.writers[1].cpus, [11, 12, 13, 14, 15, 27, 28, 29, 30, 31]);
}

#[test]
fn a_node_without_room_sends_a_thread_to_the_other_and_says_so() {
    let machine = machine(2, 2, 1);
    let nics = [card("ens1", 1, []), card("ens1", 1, [])];
    let mut few = machine.clone();
    few.cpus.retain(|cpu| cpu.number != 3);
    let placed = auto(&few, &nics, &[]);
    assert_eq!(placed.captures[0].cpus, [2]);
    assert_eq!(placed.captures[1].cpus, [1]);
    let why = &placed.captures[1].why;
    assert!(why.contains("on node 0: node 1, where ens1 is, has no free core"), "{why}");
}

#[test]
fn cores_that_are_kept_apart_are_for_capture_threads() {
    let mut machine = machine(1, 8, 1);
    machine.cpus[6].isolated = true;
    machine.cpus[7].isolated = true;
    let placed = auto(
        &machine,
        &[NicTopology::default(), NicTopology::default()],
        &[DiskTopology::default()],
    );
    let cpus: Vec<usize> = placed.captures.iter().map(|assignment| assignment.cpus[0]).collect();
    assert_eq!(cpus, [6, 7]);
    assert!(placed.captures[0].why.contains("isolated") && placed.apart);
    assert_eq!(placed.writers[0].cpus, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn interrupts_on_every_core_are_told() {
    let placed = auto(&machine(1, 8, 1), &[card("eth0", 0, 0..8)], &[disk(0)]);
    assert!(placed.pinned && placed.why.contains("every core takes interrupts"), "{}", placed.why);
}

#[test]
fn a_thread_is_put_under_the_cache_that_the_interrupts_fill() {
    // Two groups of four cores with one cache each, as in some processors with one node.
    let mut machine = machine(1, 8, 1);
    machine.cpus.iter_mut().for_each(|cpu| cpu.cache = cpu.core / 4 * 4);
    let placed = auto(&machine, &[card("eth0", 0, [4])], &[disk(0)]);
    assert_eq!(placed.captures[0].cpus, [5]);
}

#[test]
fn what_is_asked_is_done_whatever_the_plan_would_be() {
    let machine = machine(1, 2, 1);
    let (two, three) = (vec![NicTopology::default(); 2], vec![DiskTopology::default(); 3]);
    let cpus = |assignments: &[CpuAssignment]| {
        assignments.iter().map(|assignment| assignment.cpus.clone()).collect::<Vec<_>>()
    };
    let placed = Placement::plan(&machine, &two, &three, &AffinityPolicy::InTurn(vec![1, 0, 1]));
    assert_eq!(cpus(&placed.captures), [[1], [0]]);
    assert_eq!(cpus(&placed.writers), [[1], [1], [1]]);
    let policy = "capture=1,writers=0-1".parse().unwrap();
    let placed = Placement::plan(&machine, &two, &three, &policy);
    assert_eq!(cpus(&placed.captures), [[1], [1]]);
    assert_eq!(cpus(&placed.writers), [[0, 1], [0, 1], [0, 1]]);
    assert!(placed.pinned && !placed.apart);
    let placed = Placement::plan(&machine, &two, &three, &AffinityPolicy::Off);
    assert!(!placed.pinned && placed.captures.len() == 2 && placed.writers.len() == 3);
}

#[test]
fn cores_that_are_asked_for_are_apart_only_if_nobody_else_is_put_on_them() {
    let machine = machine(1, 8, 2);
    let apart = |policy: &str| {
        let (two, three) = (vec![NicTopology::default(); 2], vec![DiskTopology::default(); 3]);
        Placement::plan(&machine, &two, &three, &policy.parse().unwrap()).apart
    };
    assert!(apart("capture=2-3,writers=4-7"));
    // A hardware thread of the same core is not another core.
    assert!(!apart("capture=2-3,writers=4-7,10"));
    assert!(!apart("capture=2,10,writers=4-7"));
    assert!(!apart("capture=2,writers=4-7"));
    assert!(!apart("capture=2-3"));
}

#[test]
fn ports_of_a_node_go_to_the_threads_of_that_node() {
    assert_eq!(group(&[None; 5], 2), [0, 1, 0, 1, 0]);
    assert_eq!(group(&[], 1), [0; 0]);
    let (one, two) = (Some(0), Some(1));
    assert_eq!(group(&[one, two, one, two], 2), [0, 1, 0, 1]);
    assert_eq!(group(&[one, one, two, two], 2), [0, 0, 1, 1]);
    assert_eq!(group(&[one, one, one, two], 3), [0, 1, 0, 2]);
    assert_eq!(group(&[one, two], 1), [0, 0]);
}

/// Typical machines: sockets, cores, hardware threads, caches; some cores isolated, some not allowed, nodes not
/// reported.
fn any_machine() -> impl Strategy<Value = Machine> {
    let shape = (1usize..=2, 1usize..=16, 1usize..=2, 1usize..=8);
    let limits = (any::<u64>(), any::<u64>(), prop::option::of(1usize..=40), any::<bool>());
    let masks = (0u8..4, 0u8..4);
    (shape, limits, masks).prop_map(|(shape, limits, masks)| {
        let (sockets, cores, threads, under) = shape;
        let (isolated, missing, quota, told) = limits;
        let mut machine = machine(sockets, cores, threads);
        for cpu in &mut machine.cpus {
            let core = cpu.core as usize;
            cpu.cache = (core / cores * cores + core % cores / under * under) as u32;
            cpu.node = cpu.node.filter(|_| told);
            cpu.isolated = masks.0 == 0 && isolated >> (cpu.number % 64) & 1 == 1;
        }
        machine.cpus.retain(|cpu| masks.1 != 0 || missing >> (cpu.number % 64) & 1 == 0);
        if machine.cpus.is_empty() {
            let (core, cache) = (0, 0);
            machine.cpus.push(Cpu { number: 0, core, cache, node: None, isolated: false });
        }
        machine.quota = quota.filter(|_| masks.1 == 1);
        machine
    })
}

fn any_inlet() -> impl Strategy<Value = NicTopology> {
    let interrupts = prop::collection::btree_set(0usize..70, 0..12);
    (prop::option::of(0u32..3), interrupts).prop_map(|(node, interrupts)| NicTopology {
        cards: vec!["eth0".to_owned()],
        node,
        interrupts,
    })
}

fn any_outlet() -> impl Strategy<Value = DiskTopology> {
    prop::option::of(0u32..3).prop_map(|node| DiskTopology { node })
}

proptest! {
    #[test]
    fn on_any_machine_no_two_capture_threads_share_a_core_and_no_writer_joins_them(
        machine in any_machine(),
        nics in prop::collection::vec(any_inlet(), 0..9),
        disks in prop::collection::vec(any_outlet(), 0..17),
    ) {
        let placed = auto(&machine, &nics, &disks);
        prop_assert_eq!(placed.captures.len(), nics.len());
        prop_assert_eq!(placed.writers.len(), disks.len());
        prop_assert_eq!(&placed, &auto(&machine, &nics, &disks));
        let allowed: BTreeSet<usize> = machine.cpus.iter().map(|cpu| cpu.number).collect();
        let core_of = |number: usize| machine.cpus.iter().find(|cpu| cpu.number == number).unwrap().core;
        let cores = machine.cores().len();
        let have = machine.quota.map_or(cores, |quota| quota.min(cores));
        let enough = have > nics.len() + disks.len().div_ceil(4);
        prop_assert_eq!(placed.pinned, enough, "{}", &placed.why);
        let mut assignments = placed.captures.iter().chain(&placed.writers);
        prop_assert_eq!(placed.apart, enough);
        if !enough {
            prop_assert!(assignments.all(|assignment| assignment.cpus.is_empty() && assignment.node.is_none()));
            prop_assert!(placed.why.contains("threads are not pinned"));
            return Ok(());
        }
        for assignment in assignments {
            prop_assert!(!assignment.cpus.is_empty() && !assignment.why.is_empty());
            prop_assert!(assignment.cpus.iter().all(|cpu| allowed.contains(cpu)), "{:?}", assignment);
        }
        let mut taken = BTreeSet::new();
        for assignment in &placed.captures {
            prop_assert_eq!(assignment.cpus.len(), 1);
            prop_assert!(taken.insert(core_of(assignment.cpus[0])), "a core was given twice");
        }
        for assignment in &placed.writers {
            prop_assert!(assignment.cpus.iter().all(|&cpu| !taken.contains(&core_of(cpu))));
            let apart = |cpu: &&usize| machine.cpus.iter().any(|it| it.number == **cpu && it.isolated);
            // The scheduler does not move tasks between isolated cores.
            prop_assert!(assignment.cpus.len() == 1 || machine.cores().iter().any(|core| !core.isolated));
            if assignment.cpus.len() > 1 {
                let half = |cpu: &usize| machine.cores().iter().any(|it| !it.isolated && it.cpus.contains(cpu));
                prop_assert!(assignment.cpus.iter().filter(apart).all(half));
            }
        }
    }

    #[test]
    fn on_any_machine_interrupts_are_avoided_where_the_node_has_another_core(
        machine in any_machine(),
        nics in prop::collection::vec(any_inlet(), 1..9),
    ) {
        let placed = auto(&machine, &nics, &[]);
        if !placed.pinned {
            return Ok(());
        }
        let interrupted: BTreeSet<usize> = nics.iter().flat_map(|it| it.interrupts.iter().copied()).collect();
        let taken: BTreeSet<usize> = placed.captures.iter().flat_map(|assignment| assignment.cpus.iter().copied()).collect();
        let cores = machine.cores();
        let free: Vec<&Core> = cores.iter().filter(|core| !core.has_any(&taken)).collect();
        let common = free.iter().filter(|core| !core.isolated).count();
        for (nic, assignment) in nics.iter().zip(&placed.captures) {
            let core = cores.iter().find(|core| core.cpus.contains(&assignment.cpus[0])).unwrap();
            if !core.has_any(&interrupted) {
                continue;
            }
            let near = |core: &&&Core| nic.node.is_none_or(|node| core.node == Some(node));
            let better = free.iter().filter(near).filter(|core| !core.has_any(&interrupted));
            // The last common core is for all other tasks.
            let better = better.filter(|core| core.isolated || common > 1).count();
            prop_assert!(better == 0 || nic.node.is_some_and(|node| core.node != Some(node)), "{:?}", placed);
        }
    }

    #[test]
    fn every_port_has_a_thread_and_no_thread_lacks_ports(
        nodes in prop::collection::vec(prop::option::of(0u32..3), 1..80),
        threads in 1usize..9,
    ) {
        let threads = threads.min(nodes.len());
        let threads_of = group(&nodes, threads);
        prop_assert_eq!(threads_of.len(), nodes.len());
        prop_assert!(threads_of.iter().all(|&thread| thread < threads));
        let used: BTreeSet<usize> = threads_of.iter().copied().collect();
        prop_assert_eq!(used.len(), threads, "{:?}", threads_of);
    }
}
