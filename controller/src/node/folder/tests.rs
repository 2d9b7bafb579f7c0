use std::os::unix::fs::{MetadataExt, PermissionsExt};

use tempfile::TempDir;

use super::*;
use crate::observe::Material;

fn table(frontend: &str) -> RoutingTable {
    let text = format!(
        r#"{{"version":1,"frontends":[{{"name":"{frontend}","bind":["127.0.0.1:80"],"protocol":"tcp","service":"s"}}],"services":[{{"name":"s"}}]}}"#
    );
    parse(text.as_bytes(), Format::Json).unwrap()
}

fn of_secret(name: &str) -> WantedFile {
    WantedFile {
        path: format!("tls/default.{name}.key"),
        from: Source::Secret(Key::new("default", name), "tls.key"),
    }
}

fn secret(name: &str, bytes: &[u8]) -> (Key, Secret) {
    let entries = BTreeMap::from([("tls.key".to_owned(), bytes.to_vec())]);
    (
        Key::new("default", name),
        Secret::Readable(Material::new(entries)),
    )
}

/// A folder, and a writer that writes to it.
struct Case {
    temp: TempDir,
    folder: Folder,
    secrets: BTreeMap<Key, Secret>,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self {
            folder: Folder::open(temp.path().join("table")).unwrap(),
            temp,
            secrets: BTreeMap::from([secret("a", b"one"), secret("b", b"two")]),
        }
    }

    /// As a process that begins anew.
    fn reopen(&mut self) {
        self.folder = Folder::open(self.path("")).unwrap();
    }

    fn write(&mut self, frontend: &str, files: &[WantedFile]) -> Wrote {
        let files = files.iter().cloned().collect();
        self.folder
            .write(
                &Arc::new(table(frontend)),
                &files,
                &self.secrets,
                &Pages::default(),
            )
            .unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("table").join(name)
    }

    fn label(&self) -> Option<u64> {
        let bytes = fs::read(self.path("table.json")).ok()?;
        parse(&bytes, Format::Json).unwrap().generation
    }
}

fn is_table(wrote: Wrote) -> bool {
    matches!(wrote, Wrote::Table { .. })
}

#[test]
fn a_table_is_written_when_it_changes_and_its_label_grows() {
    let mut case = Case::new();
    assert!(is_table(case.write("a", &[])));
    assert_eq!(case.label(), Some(1));
    assert_eq!(case.write("a", &[]), Wrote::Nothing);
    assert!(is_table(case.write("b", &[])));
    assert_eq!(case.label(), Some(2));
}

#[test]
fn a_table_that_somebody_else_damaged_or_removed_is_written_again() {
    let mut case = Case::new();
    assert!(is_table(case.write("a", &[])));
    assert_eq!(case.write("a", &[]), Wrote::Nothing);
    fs::write(case.path(TABLE), "{").unwrap();
    assert!(is_table(case.write("a", &[])));
    fs::remove_file(case.path(TABLE)).unwrap();
    assert!(is_table(case.write("a", &[])));
    assert_eq!(case.label(), Some(3));
    case.reopen();
    assert_eq!(case.write("a", &[]), Wrote::Nothing);
}

#[test]
fn a_process_that_begins_anew_writes_nothing_if_nothing_changed() {
    let mut case = Case::new();
    case.write("a", &[of_secret("a")]);
    let names = ["table.json", "tls/default.a.key"];
    let before = names.map(|name| fs::metadata(case.path(name)).unwrap().ino());
    case.reopen();
    assert_eq!(case.write("a", &[of_secret("a")]), Wrote::Nothing);
    let after = names.map(|name| fs::metadata(case.path(name)).unwrap().ino());
    assert_eq!(before, after);
    assert_eq!(case.folder.generation(), 1);
    assert!(is_table(case.write("b", &[])));
    assert_eq!(case.label(), Some(2));
}

#[test]
fn no_label_is_used_twice_even_if_the_table_is_lost() {
    let mut case = Case::new();
    case.write("a", &[]);
    let ack = r#"{"version":1,"instance":"i","served":{"generation":41,"digest":"d"},"refused":{"generation":42,"digest":"d","problems":[]},"exceptions":[]}"#;
    fs::write(case.path("ack.json"), ack).unwrap();
    for text in ["half a tab", r#"{"version":1}"#] {
        fs::write(case.path("table.json"), text).unwrap();
        case.reopen();
        assert!(is_table(case.write("a", &[])), "{text}");
        assert_eq!(case.label(), Some(43), "{text}");
    }
}

#[test]
fn a_secret_is_only_for_its_owner_and_replaced_live() {
    let mut case = Case::new();
    assert!(is_table(case.write("a", &[of_secret("a")])));
    let path = case.path("tls/default.a.key");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = fs::metadata(case.path("tls")).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
    assert_eq!(fs::read(&path).unwrap(), b"one");

    case.secrets.extend([secret("a", b"new")]);
    assert_eq!(case.write("a", &[of_secret("a")]), Wrote::Files);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(case.label(), Some(1), "the table did not change");
}

#[test]
fn a_file_goes_after_a_table_without_it_is_served() {
    let mut case = Case::new();
    case.write("a", &[of_secret("a"), of_secret("b")]);
    case.write("b", &[of_secret("b")]);
    let gone = case.path("tls/default.a.key");
    case.folder.acknowledged(None);
    case.folder.acknowledged(Some(1));
    assert!(gone.exists(), "the table that is served may name it");
    // Also where another process goes on.
    case.reopen();
    case.write("b", &[of_secret("b")]);
    case.folder.acknowledged(Some(1));
    assert!(gone.exists());
    case.folder.acknowledged(Some(2));
    assert!(!gone.exists());
    assert!(case.path("tls/default.b.key").exists());
}

#[test]
fn what_somebody_else_put_there_stays() {
    let mut case = Case::new();
    fs::create_dir_all(case.path("tls")).unwrap();
    let theirs = case.path("tls/their.own.key");
    fs::write(&theirs, "theirs").unwrap();
    case.write("a", &[of_secret("a")]);
    case.write("b", &[]);
    case.folder.acknowledged(Some(2));
    assert!(theirs.exists());
    assert!(!case.path("tls/default.a.key").exists());
}

#[test]
fn a_secret_that_may_not_be_read_any_more_leaves_nothing_behind() {
    let mut case = Case::new();
    case.write("a", &[of_secret("a")]);
    case.secrets
        .insert(Key::new("default", "a"), Secret::Forbidden);
    assert_eq!(case.write("a", &[of_secret("a")]), Wrote::Files);
    assert!(!case.path("tls/default.a.key").exists());
}

#[test]
fn a_flags_file_is_copied_and_kept_when_it_is_gone() {
    let mut case = Case::new();
    let from = case.temp.path().join("cert.pem");
    fs::write(&from, "first").unwrap();
    let wanted = WantedFile {
        path: "tls/default.pem".to_owned(),
        from: Source::File(from.clone()),
    };
    assert!(is_table(case.write("a", std::slice::from_ref(&wanted))));
    fs::write(&from, "second").unwrap();
    assert_eq!(case.write("a", std::slice::from_ref(&wanted)), Wrote::Files);
    fs::remove_file(&from).unwrap();
    assert_eq!(case.write("a", &[wanted]), Wrote::Nothing);
    assert_eq!(fs::read(case.path("tls/default.pem")).unwrap(), b"second");
}

#[test]
fn a_page_that_did_not_come_yet_has_a_stand_in_so_that_the_port_opens() {
    let mut case = Case::new();
    let wanted = WantedFile {
        path: "errors/default.html".to_owned(),
        from: Source::Url("http://127.0.0.1:1/".to_owned()),
    };
    assert!(is_table(case.write("a", std::slice::from_ref(&wanted))));
    assert_eq!(
        fs::read(case.path("errors/default.html")).unwrap(),
        STAND_IN
    );
    fs::write(
        case.path("errors/default.html"),
        "fetched by an earlier process",
    )
    .unwrap();
    case.reopen();
    assert_eq!(case.write("a", &[wanted]), Wrote::Nothing);
}

#[test]
fn a_folder_with_a_table_of_somebody_elses_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("table.yaml"), "version: 1\n").unwrap();
    let error = Folder::open(temp.path().into()).unwrap_err();
    assert!(error.to_string().contains("table.yaml"), "{error}");
}

#[test]
fn no_name_leads_out_of_the_folder() {
    for name in ["", "../x", "/etc/x", "a/../../x", "."] {
        assert!(inside(Path::new("/f"), name).is_err(), "{name}");
    }
    assert_eq!(inside(Path::new("/f"), "a/b").unwrap(), Path::new("/f/a/b"));
}

#[test]
fn a_file_that_cannot_be_written_holds_up_neither_the_table_nor_other_files() {
    let mut case = Case::new();
    let long = "x".repeat(300);
    case.secrets.extend([secret(&long, b"three")]);
    let files = [of_secret(&long), of_secret("a")];
    assert!(is_table(case.write("a", &files)));
    assert_eq!(case.folder.failing(), 1);
    assert_eq!(fs::read(case.path("tls/default.a.key")).unwrap(), b"one");
    // It is tried again, and what does not change is not written again.
    let record = |case: &Case| fs::metadata(case.path(RECORD)).unwrap().ino();
    let before = record(&case);
    assert!(is_table(case.write("b", &files)));
    assert_eq!(case.folder.failing(), 1);
    assert_eq!(record(&case), before);
    assert_eq!(case.write("b", &[of_secret("a")]), Wrote::Nothing);
    assert_eq!(case.folder.failing(), 0);
}

#[test]
fn what_stands_in_the_way_of_a_file_closes_nothing_else_and_a_new_version_that_cannot_be_written_keeps_the_old()
 {
    let mut case = Case::new();
    // A folder where the file should be.
    fs::create_dir_all(case.path("tls/default.a.key/theirs")).unwrap();
    assert!(is_table(case.write("a", &[of_secret("a"), of_secret("b")])));
    assert_eq!(case.folder.failing(), 1);
    assert!(case.path("tls/default.b.key").exists());
    fs::remove_dir_all(case.path("tls/default.a.key")).unwrap();
    assert_eq!(
        case.write("a", &[of_secret("a"), of_secret("b")]),
        Wrote::Files
    );
    assert_eq!(case.folder.failing(), 0);

    fs::create_dir_all(case.path("tls/default.b.key.draft/theirs")).unwrap();
    case.secrets.extend([secret("b", b"new")]);
    assert_eq!(
        case.write("a", &[of_secret("a"), of_secret("b")]),
        Wrote::Nothing
    );
    assert_eq!(case.folder.failing(), 1);
    assert_eq!(fs::read(case.path("tls/default.b.key")).unwrap(), b"two");
}
