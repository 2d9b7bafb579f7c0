//! The limits of the process that runs (`ulimit`): the next one begins with them, not with those of a shell.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::out::say;

/// Gives this command the limits of another process, which the process that it starts inherits.
pub(super) fn follow(pid: u32) {
    // What cannot be read is as in the caller.
    let Ok(theirs) = fs::read_to_string(format!("/proc/{pid}/limits")) else {
        return;
    };
    for (name, resource) in FOLLOWED {
        let Some(limit) = limit_of(&theirs, name) else {
            continue;
        };
        if limit != getrlimit(resource)
            && let Err(error) = setrlimit(resource, limit)
        {
            say(&format!(
                "ballast: the next process has another limit of {name} than the process with pid {pid}, which has {}: {error}; raise it here (ulimit), or run this command as root",
                words(limit.current)
            ));
        }
    }
}

/// A limit as `/proc/PID/limits` has it: its name, the soft one, the hard one, the unit.
fn limit_of(text: &str, name: &str) -> Option<Rlimit> {
    let line = text.lines().find_map(|line| {
        let (limit, rest) = line.split_at_checked(NAME)?;
        (limit.trim_end() == format!("Max {name}")).then_some(rest)
    });
    let mut words = line?.split_whitespace();
    let mut number = || match words.next()? {
        "unlimited" => Some(None),
        word => word.parse().ok().map(Some),
    };
    Some(Rlimit {
        current: number()?,
        maximum: number()?,
    })
}

fn words(limit: Option<u64>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}

/// By their names in `/proc/PID/limits`.
const FOLLOWED: [(&str, Resource); 5] = [
    ("open files", Resource::Nofile),
    ("locked memory", Resource::Memlock),
    ("address space", Resource::As),
    ("processes", Resource::Nproc),
    ("core file size", Resource::Core),
];
/// The width of the column of names.
const NAME: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max core file size        0                    unlimited            bytes     \n\
            Max processes             95880                95880                processes \n\
            Max open files            1024                 1048576              files     \n";
        let limit = |current, maximum| Some(Rlimit { current, maximum });
        for (name, expected) in [
            ("open files", limit(Some(1024), Some(1_048_576))),
            ("core file size", limit(Some(0), None)),
            ("processes", limit(Some(95_880), Some(95_880))),
            ("files", None),
            ("address space", None),
        ] {
            assert_eq!(limit_of(text, name), expected, "{name}");
        }
        let own = fs::read_to_string("/proc/self/limits").unwrap();
        for (name, resource) in FOLLOWED {
            assert_eq!(limit_of(&own, name), Some(getrlimit(resource)), "{name}");
        }
    }
}
