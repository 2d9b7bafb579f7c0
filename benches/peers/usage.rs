//! What processes and cores have used: CPU time and memory, read from /proc. The client asks at both ends of its window;
//! the bench asks for memory. It never starts or stops anything.

use std::fs;
use std::path::Path;

/// `root` and all processes that descend from it: nginx's worker is a child of its master.
pub(crate) fn family(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbered("/proc")
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&elder) = family.get(next) {
        family.extend(
            parents
                .iter()
                .filter(|(pid, parent)| *parent == elder && *pid != elder)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    family
}

/// CPU time of all threads of these processes in nanoseconds, as the scheduler counts it: interrupts and soft interrupts that
/// were served while they ran are part of it.
pub(crate) fn cpu_ns(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| process_ns(*pid)).sum()
}

/// The time that these cores were idle, in nanoseconds. The kernel keeps it exactly, but tells it in hundredths of a second.
pub(crate) fn idle_ns(cores: &[usize]) -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: u64 = stat
        .lines()
        .filter_map(|line| line.strip_prefix("cpu")?.split_once(' '))
        .filter(|(core, _)| core.parse().is_ok_and(|core: usize| cores.contains(&core)))
        .map(|(_, fields)| {
            fields
                .split_whitespace()
                .skip(3)
                .take(2)
                .filter_map(parsed)
                .sum::<u64>()
        })
        .sum();
    ticks * NANOS_PER_TICK
}

/// The kernel's threads that serve soft interrupts on these cores, where no process happened to run.
pub(crate) fn soft_interrupt_threads(cores: &[usize]) -> Vec<u32> {
    let names: Vec<String> = cores
        .iter()
        .map(|core| format!("ksoftirqd/{core}"))
        .collect();
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        names.iter().any(|known| known == name.trim())
    };
    numbered("/proc").into_iter().filter(is_one).collect()
}

/// CPU time of all processes but these, kernel threads left out, with what their children had used that have ended. Coarse, and
/// enough to tell whether something else ran meanwhile.
pub(crate) fn foreign_ns(ours: &[u32]) -> u64 {
    let foreign = numbered("/proc")
        .into_iter()
        .filter(|pid| !ours.contains(pid))
        .map(stat_fields);
    let foreign = foreign.filter(|fields| fields.get(1).is_some_and(|parent| parent != KERNEL));
    let ticks: u64 = foreign
        .map(|fields| {
            fields
                .iter()
                .skip(11)
                .take(4)
                .filter_map(|field| parsed(field))
                .sum::<u64>()
        })
        .sum();
    ticks * NANOS_PER_TICK
}

/// When this process was started: with its number, its identity.
pub(crate) fn start_time(pid: u32) -> Option<String> {
    stat_fields(pid).into_iter().nth(19)
}

/// Memory that belongs to these processes alone.
pub(crate) fn private_bytes(pids: &[u32]) -> u64 {
    let kib: u64 = pids
        .iter()
        .map(|pid| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default())
        .map(|text| field(&text, "Private_Clean:") + field(&text, "Private_Dirty:"))
        .sum();
    kib * 1024
}

/// All memory of these processes that is in RAM, shared pages included.
pub(crate) fn resident_bytes(pids: &[u32]) -> u64 {
    let kib: u64 = pids
        .iter()
        .map(|pid| {
            field(
                &fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
                "VmRSS:",
            )
        })
        .sum();
    kib * 1024
}

/// The most that was resident at any time so far.
pub(crate) fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "VmHWM:") * 1024
}

/// Raises the number of descriptors that this process, and each that it starts, may have; and returns it.
pub(crate) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

fn process_ns(pid: u32) -> u64 {
    let tasks = numbered(format!("/proc/{pid}/task"));
    let precise = tasks.iter().filter_map(|task| {
        let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{task}/schedstat")).ok()?;
        schedstat.split_whitespace().next().and_then(parsed)
    });
    match precise.sum() {
        0 => coarse_ns(pid),
        precise => precise,
    }
}

/// utime and stime, for a kernel that keeps no schedstat.
fn coarse_ns(pid: u32) -> u64 {
    let ticks: u64 = stat_fields(pid)
        .iter()
        .skip(11)
        .take(2)
        .filter_map(|field| parsed(field))
        .sum();
    ticks * NANOS_PER_TICK
}

fn parent(pid: u32) -> Option<u32> {
    stat_fields(pid).get(1)?.parse().ok()
}

/// The fields of /proc/PID/stat behind the name: the state first.
fn stat_fields(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat
        .rsplit_once(") ")
        .map(|(_, fields)| fields)
        .unwrap_or_default();
    behind_name.split_whitespace().map(str::to_owned).collect()
}

fn numbered(folder: impl AsRef<Path>) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.split_whitespace().next())
        .and_then(parsed)
        .unwrap_or_default()
}

fn parsed(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// /proc counts in USER_HZ, which is 100 on every Linux that Rust knows.
const NANOS_PER_TICK: u64 = 10_000_000;
/// The process id of kthreadd, parent of all kernel threads.
const KERNEL: &str = "2";
