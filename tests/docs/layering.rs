//! Which part of the workspace may use which other one, checked in sources and manifests. The core decides and does no input or
//! output; the data plane and the controller depend on the core and the log only, and the data plane on the import, which knows the
//! core alone; inside of the data plane, no room imports one above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_core_uses_no_socket_clock_task_or_random_source() {
    for (file, text) in texts("dataplane/core/src") {
        for forbidden in FORBIDDEN {
            let is_there = without_tests(&text).contains(forbidden);
            assert!(!is_there, "{}: {forbidden}", file.display());
        }
    }
}

#[test]
fn the_pools_of_the_controller_use_none_of_these_either() {
    let folder = root().join("controller/src/pools");
    let of_pools = |file: &Path| file.starts_with(&folder) || file == folder.with_extension("rs");
    let mut files = texts("controller/src")
        .filter(|(file, _)| of_pools(file))
        .peekable();
    assert!(files.peek().is_some());
    for (file, text) in files {
        for forbidden in FORBIDDEN
            .into_iter()
            .chain(["kube::", "crate::cluster", "crate::node"])
        {
            let is_there = without_tests(&text).contains(forbidden);
            assert!(!is_there, "{}: {forbidden}", file.display());
        }
    }
}

/// The announcer has no Kubernetes in it, and decides without input or output: only its shell has any.
#[test]
fn the_announcer_decides_in_one_place_and_knows_no_kubernetes() {
    let known = dependencies("controller/announce");
    for other in ["k8s-openapi", "kube", "ballast-controller", "ballast"] {
        assert!(!known.iter().any(|name| name == other), "{known:?}");
    }
    let folder = root().join("controller/announce/src");
    let is_shell = |file: &Path| file.with_extension("").starts_with(folder.join("shell"));
    for (file, text) in texts("controller/announce/src").filter(|(file, _)| !is_shell(file)) {
        for forbidden in FORBIDDEN {
            let is_there = without_tests(&text).contains(forbidden);
            assert!(!is_there, "{}: {forbidden}", file.display());
        }
    }
}

#[test]
fn the_cores_dependencies_are_these_and_no_more() {
    let dependencies = dependencies("dataplane/core");
    assert_eq!(
        dependencies,
        [
            "crc",
            "hashbrown",
            "httparse",
            "ipnet",
            "itoa",
            "memchr",
            "rustc-hash",
            "schemars",
            "serde",
            "serde-saphyr",
            "serde_json",
            "strsim",
            "thiserror"
        ]
    );
}

#[test]
fn the_data_plane_and_the_controller_know_only_the_core() {
    for (package, other, as_a_crate) in [
        ("controller", "ballast", "ballast::"),
        ("dataplane", "ballast-controller", "ballast_controller::"),
        ("dataplane/core", "ballast", "ballast::"),
        ("dataplane/import", "ballast", "ballast::"),
        (
            "dataplane/core",
            "ballast-controller",
            "ballast_controller::",
        ),
    ] {
        let known = dependencies(package);
        assert!(
            !known.iter().any(|name| name == other),
            "{package}: {known:?}"
        );
        for (file, text) in texts(&format!("{package}/src")) {
            // The binary of a package uses its library.
            let uses = text.lines().find(|line| line.contains(as_a_crate));
            assert_eq!(uses, None, "{}", file.display());
        }
    }
    assert!(
        dependencies("controller")
            .iter()
            .any(|name| name == "ballast-core")
    );
    assert_eq!(
        dependencies("dataplane/import"),
        ["ballast-core", "ipnet", "thiserror"]
    );
    let of_log = dependencies("dataplane/log");
    assert!(
        !of_log.iter().any(|name| name.starts_with("ballast")),
        "{of_log:?}"
    );
}

#[test]
fn only_system_calls_are_unsafe() {
    let may = ["dataplane/src/os/sys", "controller/announce/src/shell/sys"];
    let may = may.map(|path| root().join(path));
    let all = ["dataplane/src", "controller/src", "controller/announce/src"];
    for (file, text) in all.into_iter().flat_map(texts) {
        let module = file.with_extension("");
        if may.iter().any(|sys| module.starts_with(sys)) {
            continue;
        }
        for line in text.lines().map(str::trim) {
            let is_unsafe = UNSAFE.iter().any(|words| line.contains(words));
            assert!(!is_unsafe, "{}: {line}", file.display());
        }
    }
    for package in [
        "dataplane/core",
        "dataplane/import",
        "controller",
        "dataplane/log",
    ] {
        let text = fs::read_to_string(root().join(package).join("src/lib.rs")).expect("a library");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{package}");
    }
}

/// The host's date may jump, forth and back. Whatever times out goes by the monotonic clock.
#[test]
fn the_data_plane_reads_the_date_only_to_show_it_or_to_compare_it_with_a_certificates() {
    let mut readers = BTreeSet::new();
    let programs = texts("dataplane/src").filter(|(file, _)| !file.ends_with("tests.rs"));
    for (file, text) in programs {
        let text = without_tests(&text);
        let reads = ["SystemTime::now(", "unix_seconds(", ".elapsed().ok()"];
        if reads.iter().any(|words| text.contains(words)) {
            let name = file.strip_prefix(root().join("dataplane/src"));
            readers.insert(name.expect("in it").display().to_string());
        }
    }
    let known = WALL_CLOCK.map(str::to_owned);
    assert_eq!(readers, BTreeSet::from(known));
}

#[test]
fn in_the_data_plane_only_apply_publishes_a_plan_and_no_module_uses_its_starter() {
    for (words, who) in [
        (".publish(", &["table/apply.rs"][..]),
        ("crate::table::apply", &["runtime.rs"]),
        ("crate::runtime", &["runtime/demo.rs"]),
    ] {
        let folder = root().join("dataplane/src");
        let found: Vec<String> = texts("dataplane/src")
            .filter(|(_, text)| without_tests(text).contains(words))
            .map(|(file, _)| {
                file.strip_prefix(&folder)
                    .expect("in it")
                    .display()
                    .to_string()
            })
            .collect();
        assert_eq!(found, who, "{words}");
    }
}

/// The rooms of the data plane are the folders of `dataplane/src`, each with its file, from the bottom to the top. A room imports only
/// rooms before it, so it can be read without those behind it.
#[test]
fn the_rooms_of_the_data_plane_import_only_lower_ones() {
    let folder = root().join("dataplane/src");
    let entries = fs::read_dir(&folder).expect("a folder").flatten();
    let entries: BTreeSet<PathBuf> = entries
        .map(|entry| PathBuf::from(entry.file_name()).with_extension(""))
        .collect();
    let named = ROOMS.iter().chain(&["bin", "lib"]).map(PathBuf::from);
    assert_eq!(entries, named.collect());
    let floor = |name: &str| ROOMS.iter().position(|room| *room == name);
    for (file, text) in texts("dataplane/src") {
        let path = file
            .strip_prefix(&folder)
            .expect("in it")
            .with_extension("");
        let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
        let Some(own) = floor(&names[0]) else {
            // The library's map, and the program, which uses the library only.
            continue;
        };
        let up = "super::".repeat(names.len());
        for start in [&*up, "crate::"] {
            for other in named_after(without_tests(&text), start) {
                let other_floor = floor(&other).unwrap_or_else(|| {
                    panic!("{}: {other} is in lib.rs, not in a room", path.display())
                });
                assert!(
                    other_floor <= own,
                    "{}: {other} is a room above it",
                    path.display()
                );
            }
        }
    }
}

/// Any other writer would wait for the reader of the stream. The files in the lists write the output of commands that end by
/// themselves.
#[test]
fn only_the_log_writes_to_standard_streams() {
    for (package, may) in [
        (
            "dataplane/src",
            &["bin/ballast/main.rs", "bin/ballast/out.rs"][..],
        ),
        ("dataplane/import/src", &[]),
        (
            "controller/src",
            &["main.rs", "announce.rs", "run.rs", "cluster/release.rs"],
        ),
        ("controller/announce/src", &[]),
    ] {
        let folder = root().join(package);
        for (file, text) in texts(package) {
            let name = file.strip_prefix(&folder).expect("in it").to_owned();
            let may = may.iter().any(|path| Path::new(path) == name);
            let line = without_tests(&text).lines().find(|line| {
                let streams = ["io::stdout()", "io::stderr()", "print!(", "println!("];
                streams.iter().any(|words| line.contains(words))
            });
            assert!(
                may || line.is_none(),
                "{package} {}: {line:?}",
                name.display()
            );
        }
    }
}

/// The modules of `decide` import one another without a circle, and none imports `decide.rs` itself.
#[test]
fn the_modules_of_decide_have_no_import_circle() {
    let uses = imports("controller/src/decide", "crate::decide::");
    assert!(uses.len() > 20, "{:?}", uses.keys());
    for (module, named) in &uses {
        let outside = named.iter().find(|name| !uses.contains_key(*name));
        assert_eq!(outside, None, "{module} names what is in decide.rs");
    }
    assert_eq!(circles(uses), BTreeMap::new());
}

/// The modules of the core import one another without a circle. A service, its endpoints, its queue and the choice among them are one
/// thing in four modules.
#[test]
fn the_modules_of_the_core_have_no_import_circle() {
    let one = |name: String| {
        let is_one = ["endpoint", "pick", "queue"].contains(&&*name);
        if is_one { "service".into() } else { name }
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, named) in imports("dataplane/core/src", "crate::") {
        let module = one(module);
        let named = named.into_iter().map(one).filter(|name| *name != module);
        uses.entry(module.clone()).or_default().extend(named);
    }
    assert!(uses.len() > 30, "{:?}", uses.keys());
    assert_eq!(circles(uses), BTreeMap::new());
}

/// The modules in a folder, and which of the others each one imports. `start` begins the paths of the folder's modules.
fn imports(folder: &str, start: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in texts(folder) {
        let path = file
            .strip_prefix(root().join(folder))
            .expect("in it")
            .with_extension("");
        let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
        if names[0] == "lib" {
            continue;
        }
        // A file in a subfolder needs one `super` more for each folder.
        let up = "super::".repeat(names.len());
        let named = [&*up, start].map(|start| named_after(without_tests(&text), start));
        let named = named.into_iter().flatten().filter(|name| names[0] != *name);
        uses.entry(names[0].to_string()).or_default().extend(named);
    }
    uses
}

/// What is left without the modules that are part of no circle: those that import none of the others, or are imported by none.
fn circles(mut uses: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let before = uses.len();
        let named: BTreeSet<String> = uses.values().flatten().cloned().collect();
        uses.retain(|module, others| !others.is_empty() && named.contains(module));
        let left: BTreeSet<String> = uses.keys().cloned().collect();
        for others in uses.values_mut() {
            others.retain(|other| left.contains(other));
        }
        if uses.len() == before {
            return uses;
        }
    }
}

/// The names that follow `start`, in paths and in the braces of `use`.
fn named_after(text: &str, start: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join(" ");
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(start) {
        let before = code.get(..at).unwrap_or_default();
        if before.ends_with("super::") {
            continue;
        }
        let after = code.get(at + start.len()..).unwrap_or_default();
        let first = |path: &str| {
            let path = path.trim_start();
            let end = path.find(|one: char| !one.is_alphanumeric() && one != '_');
            path.get(..end.unwrap_or(path.len()))
                .unwrap_or_default()
                .to_owned()
        };
        let Some(list) = after.strip_prefix('{') else {
            let name = first(after);
            if name != "super" && !name.is_empty() {
                names.insert(name);
            }
            continue;
        };
        let mut depth = 1;
        let mut path = String::new();
        for one in list.chars() {
            match one {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && one == ',') {
                names.extend(Some(first(&path)).filter(|name| !name.is_empty()));
                path.clear();
            } else {
                path.push(one);
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

/// The names of the dependencies of a package.
fn dependencies(package: &str) -> Vec<String> {
    let manifest = root().join(package).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(['.', ' ']).next())
        .map(str::to_owned)
        .collect()
}

/// Every source file of a folder with its text.
pub(crate) fn texts(folder: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let files = sources(&root().join(folder));
    assert!(files.len() > 20, "{folder}: only {} files", files.len());
    files.into_iter().map(|file| {
        let text = fs::read_to_string(&file).expect("a source file");
        (file, text)
    })
}

/// The text before the module with tests, which are free to use more.
pub(crate) fn without_tests(text: &str) -> &str {
    let openings = ["", "pub(super) ", "pub(crate) "];
    let starts = openings.map(|public| text.find(&format!("#[cfg(test)]\n{public}mod tests {{")));
    let end = starts.into_iter().flatten().min();
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All source files, without those that have tests only.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if TESTS_ONLY.contains(&name.to_string_lossy().as_ref()) {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

const ROOMS: [&str; 14] = [
    "os", "net", "process", "access", "worker", "connect", "http", "tcp", "udp", "probe", "stats",
    "operator", "table", "runtime",
];
const FORBIDDEN: [&str; 12] = [
    "tokio",
    "socket2",
    "std::net::Tcp",
    "std::net::Udp",
    "TcpStream",
    "UdpSocket",
    "Instant",
    "SystemTime",
    "std::fs",
    "std::thread",
    "RandomState",
    "thread_rng",
];
const UNSAFE: [&str; 6] = [
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
    "unsafe extern",
    "allow(unsafe_code",
    "expect(unsafe_code",
];
/// Where the date is read: for lines, pages and answers, and for what ends at a date. `table/intake.rs` compares a file's time with
/// it, to see whether the file is being written, for two seconds of the monotonic clock at most. `announced.rs` shows the age of a file.
const WALL_CLOCK: [&str; 14] = [
    "access/sink.rs",
    "net/tls/failures.rs",
    "operator/admin/announced.rs",
    "operator/admin/page/cells.rs",
    "operator/console/act.rs",
    "operator/show.rs",
    "os/clock.rs",
    "stats.rs",
    "table/apply.rs",
    "table/intake.rs",
    "table/intake/check.rs",
    "worker/bad_request.rs",
    "worker/lines.rs",
    "worker/status.rs",
];

const TESTS_ONLY: [&str; 8] = [
    "tests",
    "tests.rs",
    "properties.rs",
    "vectors.rs",
    "oracle.rs",
    "simulation",
    "simulation.rs",
    "fixture.rs",
];
