//! A folder of manifests, as people and ConfigMaps change it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ballast_controller::observe::{BadDocument, Earlier, Key, Observed, Wanted};
use tempfile::TempDir;

use super::Watch;
use super::api::PATIENCE;

struct Folder {
    place: TempDir,
    watch: Watch,
    /// What was told last, and how often something was.
    bad: Arc<Mutex<(Vec<String>, usize)>>,
}

impl Folder {
    /// Watches a folder, once `prepare` has put something there.
    fn of(prepare: impl FnOnce(&Path), arguments: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a test that is set up");
        prepare(place.path());
        let bad: Arc<Mutex<(Vec<String>, usize)>> = Arc::default();
        let settings = super::settings(arguments);
        let said = Arc::clone(&bad);
        let watch = Watch::start(|wanted, observed| {
            let path = place.path().to_owned();
            let say = move |documents: &[BadDocument]| {
                let mut said = said.lock().expect("a test that is set up");
                said.0 = documents.iter().map(ToString::to_string).collect();
                said.1 += 1;
            };
            ballast_controller::observe::folder::watch(
                path,
                None,
                settings,
                Earlier::default(),
                wanted,
                observed,
                say,
            )
        });
        Self { place, watch, bad }
    }

    async fn names(&mut self, expected: &[&str]) -> Arc<Observed> {
        self.watch.until(|seen| names(seen) == expected).await
    }

    async fn bad(&self, is_right: impl Fn(&[String]) -> bool) {
        let is_right = || is_right(&self.bad.lock().expect("a test that is set up").0);
        let in_time = support::comes_within_async(PATIENCE, is_right).await;
        let bad = self.bad.lock().expect("a test that is set up");
        assert!(in_time, "{bad:?}");
    }

    fn times_told(&self) -> usize {
        self.bad.lock().expect("a test that is set up").1
    }
}

#[tokio::test]
async fn files_come_change_and_go() {
    let mut folder = Folder::of(|place| write(place, "a.yaml", &["one"]), &[]);
    let seen = folder.names(&["one"]).await;
    assert!(seen.leases.is_none());
    write(folder.place.path(), "b.yaml", &["two"]);
    folder.names(&["one", "two"]).await;
    write(folder.place.path(), "a.yaml", &["three", "four"]);
    folder.names(&["four", "three", "two"]).await;
    fs::remove_file(folder.place.path().join("b.yaml")).expect("a test that is set up");
    folder.names(&["four", "three"]).await;
    write(folder.place.path(), "c.txt", &["five"]);
    write(folder.place.path(), "hidden", &["six"]);
    fs::rename(
        folder.place.path().join("hidden"),
        folder.place.path().join("a.yaml"),
    )
    .expect("a test that is set up");
    folder.names(&["six"]).await;
    // Under another name, nothing is there twice.
    fs::rename(
        folder.place.path().join("a.yaml"),
        folder.place.path().join("d.yaml"),
    )
    .expect("a test that is set up");
    write(folder.place.path(), "e.yaml", &["seven"]);
    folder.names(&["seven", "six"]).await;
    assert_eq!(folder.times_told(), 0);
}

#[tokio::test]
async fn a_file_that_is_being_written_to_keeps_what_it_said() {
    let mut folder = Folder::of(|place| write(place, "a.yaml", &["one", "two"]), &[]);
    folder.names(&["one", "two"]).await;
    for round in 0..50 {
        let mut file =
            fs::File::create(folder.place.path().join("a.yaml")).expect("a test that is set up");
        file.write_all(document("one").as_bytes())
            .expect("a test that is set up");
        // Somebody else's change is seen meanwhile.
        let other = format!("w{round}");
        write(folder.place.path(), "b.yaml", &[&other]);
        let (mut written, mut longest) = (Instant::now(), Duration::ZERO);
        let seen = loop {
            file.write_all(b"# more\n").expect("a test that is set up");
            longest = longest.max(written.elapsed());
            written = Instant::now();
            support::pause_async(Duration::from_millis(20)).await;
            let seen = folder.watch.until(|_| true).await;
            if names(&seen).contains(&other) {
                break seen;
            }
        };
        file.write_all(document("four").as_bytes())
            .expect("a test that is set up");
        drop(file);
        folder.names(&["four", "one", &other]).await;
        // On a machine that slept, it may have been taken for whole.
        if longest < Duration::from_millis(100) {
            assert_eq!(names(&seen), ["one", "two", &other]);
            return;
        }
        write(folder.place.path(), "a.yaml", &["one", "two"]);
        folder.names(&["one", "two", &other]).await;
    }
    panic!("the machine sleeps");
}

#[tokio::test]
async fn a_file_that_an_editor_puts_aside_is_not_gone() {
    interrupted(
        |place| fs::rename(place.join("a.yaml"), place.join("a.yaml~")),
        |place| fs::write(place.join("a.yaml"), all(&["one", "two", "three"])),
    )
    .await;
}

#[tokio::test]
async fn a_file_that_is_written_in_two_steps_is_read_once() {
    interrupted(
        |place| fs::write(place.join("a.yaml"), all(&["one"])),
        |place| fs::write(place.join("a.yaml"), all(&["one", "two", "three"])),
    )
    .await;
}

/// A change of a.yaml in two steps: what is seen is the file before, or the file after.
async fn interrupted(
    first: impl Fn(&Path) -> io::Result<()>,
    second: impl Fn(&Path) -> io::Result<()>,
) {
    let mut folder = Folder::of(|place| write(place, "a.yaml", &["one", "two"]), &[]);
    folder.names(&["one", "two"]).await;
    let place = folder.place.path().to_owned();
    for _ in 0..50 {
        let before = folder.watch.sent().await;
        let begun = Instant::now();
        first(&place).expect("a test that is set up");
        support::pause_async(Duration::from_millis(50)).await;
        second(&place).expect("a test that is set up");
        let away = begun.elapsed();
        folder.names(&["one", "three", "two"]).await;
        // On a machine that slept, the first step stood for long.
        if away < Duration::from_millis(150) {
            folder.watch.sent().await;
            let sent = folder.watch.all.lock().expect("a test that is set up");
            for seen in &sent[before..] {
                assert!(names(seen).contains(&"two".to_owned()), "{seen:?}");
            }
            return;
        }
        write(&place, "a.yaml", &["one", "two"]);
        folder.names(&["one", "two"]).await;
    }
    panic!("the machine sleeps");
}

#[tokio::test]
async fn a_configmap_that_swaps_its_links_is_read_whole() {
    let prepare = |place: &Path| {
        version(place, "..1", &["one"]);
        symlink("..1", place.join("..data")).expect("a test that is set up");
        symlink("..data/a.yaml", place.join("a.yaml")).expect("a test that is set up");
    };
    let mut folder = Folder::of(prepare, &[]);
    folder.names(&["one"]).await;
    let place = folder.place.path().to_owned();
    version(&place, "..2", &["two", "three"]);
    symlink("..2", place.join("..data_tmp")).expect("a test that is set up");
    fs::rename(place.join("..data_tmp"), place.join("..data")).expect("a test that is set up");
    folder.names(&["three", "two"]).await;
}

#[tokio::test]
async fn a_bad_file_keeps_what_it_said_and_is_told_of() {
    let mut folder = Folder::of(
        |place| {
            write(place, "a.yaml", &["one"]);
            write(place, "b.yaml", &["two"]);
        },
        &[],
    );
    folder.names(&["one", "two"]).await;
    folder.bad(<[String]>::is_empty).await;
    let path = folder.place.path().join("a.yaml");
    fs::write(
        &path,
        format!("{}---\nkind: Service\n  metadata: [", document("three")),
    )
    .expect("a test that is set up");
    folder
        .bad(|bad| bad.len() == 2 && bad[0].starts_with("a.yaml, document 2: line 7, column "))
        .await;
    fs::write(&path, b"\xff\xfe").expect("a test that is set up");
    folder
        .bad(|bad| {
            bad == [
                "a.yaml: is not UTF-8; save it as UTF-8",
                "a.yaml: its last good content stays until it is mended",
            ]
        })
        .await;
    write(folder.place.path(), "b.yaml", &["four"]);
    folder.names(&["four", "one"]).await;
    write(folder.place.path(), "a.yaml", &["five"]);
    folder.names(&["five", "four"]).await;
    folder.bad(<[String]>::is_empty).await;
    // A name that is there twice is no file's fault alone.
    write(folder.place.path(), "b.yaml", &["five", "six"]);
    folder.names(&["five", "six"]).await;
    folder
        .bad(|bad| bad.len() == 1 && bad[0].contains("was there already"))
        .await;
}

#[tokio::test]
async fn a_folder_that_goes_away_keeps_what_it_said() {
    let root = tempfile::tempdir().expect("a test that is set up");
    let place = root.path().join("manifests");
    let bad = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&bad);
    let (path, settings) = (place.clone(), super::settings(&[]));
    let mut watch = Watch::start(|wanted, observed| {
        let say = move |documents: &[BadDocument]| {
            *said.lock().expect("a test that is set up") = documents
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>();
        };
        ballast_controller::observe::folder::watch(
            path,
            None,
            settings,
            Earlier::default(),
            wanted,
            observed,
            say,
        )
    });
    let is_told = || !bad.lock().expect("a test that is set up").is_empty();
    support::until_async("it is told", is_told).await;
    assert!(watch.is_silent());
    fs::create_dir(&place).expect("a test that is set up");
    write(&place, "a.yaml", &["one"]);
    watch.until(|seen| names(seen) == ["one"]).await;
    fs::rename(&place, root.path().join("elsewhere")).expect("a test that is set up");
    let is_told = || !bad.lock().expect("a test that is set up").is_empty();
    support::until_async("it is told", is_told).await;
    let seen = watch.until(|_| true).await;
    assert_eq!(names(&seen), ["one"]);
    fs::create_dir(&place).expect("a test that is set up");
    write(&place, "a.yaml", &["two"]);
    watch.until(|seen| names(seen) == ["two"]).await;
}

#[tokio::test]
async fn what_is_wanted_is_found_without_a_cluster() {
    let mut folder = Folder::of(
        |place| {
            let secret = "kind: Secret\nmetadata: {name: tls}\nstringData: {tls.crt: x}\n";
            fs::write(place.join("a.yaml"), secret).expect("a test that is set up");
        },
        &["--namespace=default"],
    );
    let mut wanted = Wanted::default();
    wanted.secrets.insert(Key::new("default", "tls"));
    wanted.names.insert("192.0.2.7".to_owned());
    folder.watch.wanted.send_replace(wanted.clone());
    let seen = folder
        .watch
        .until(|seen| {
            let looked_up = &seen.looked_up;
            looked_up.secrets == wanted.secrets && looked_up.names == wanted.names
        })
        .await;
    assert_eq!(seen.secrets.len(), 1);
    assert_eq!(seen.resolved["192.0.2.7"].len(), 1);
    write(folder.place.path(), "b.yaml", &["one"]);
    let elsewhere = document("two").replace("name: two", "name: two, namespace: other");
    fs::write(folder.place.path().join("c.yaml"), elsewhere).expect("a test that is set up");
    folder.names(&["one"]).await;
}

fn names(seen: &Observed) -> Vec<String> {
    seen.services.keys().map(|key| key.name.clone()).collect()
}

fn document(name: &str) -> String {
    format!("---\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n")
}

fn write(place: &Path, file: &str, services: &[&str]) {
    fs::write(place.join(file), all(services)).expect("a test that is set up");
}

fn all(services: &[&str]) -> String {
    services.iter().map(|name| document(name)).collect()
}

fn version(place: &Path, name: &str, services: &[&str]) {
    fs::create_dir(place.join(name)).expect("a test that is set up");
    write(&place.join(name), "a.yaml", services);
}
