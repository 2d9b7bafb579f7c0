use std::os::unix::fs::symlink;

use super::*;

/// A folder, what was read of it, and the time.
struct Place {
    folder: tempfile::TempDir,
    files: Files,
    now: Instant,
}

impl Place {
    /// A folder with one file, which was read.
    fn with(name: &str) -> Self {
        let mut place = Self {
            folder: tempfile::tempdir().unwrap(),
            files: Files::default(),
            now: Instant::now(),
        };
        place.write(name);
        assert_eq!(place.look(), (vec![name.to_owned()], vec![]));
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("web.yaml")
    }

    /// Writes a file with one Service. Names of other lengths have other sizes: times are not exact enough.
    fn write(&self, name: &str) {
        let text = format!("kind: Service\nmetadata: {{name: {name}}}\nspec: {{}}\n");
        fs::write(self.path(), text).unwrap();
    }

    /// Looks once, some time after the last look.
    fn look_once(&mut self) -> Look {
        self.now += SETTLED;
        self.files.look(self.folder.path(), self.now)
    }

    /// The Services and the mistakes once the files have settled.
    fn look(&mut self) -> (Vec<String>, Vec<String>) {
        while self.look_once().is_settling {}
        self.state()
    }

    fn state(&self) -> (Vec<String>, Vec<String>) {
        let (all, bad) = self.files.together(self.folder.path());
        let names = all.services.keys().map(|key| key.name.clone());
        (
            names.collect(),
            bad.into_iter().map(|one| one.why).collect(),
        )
    }
}

#[test]
fn a_file_that_became_empty_keeps_what_it_had_until_it_is_deleted() {
    let mut place = Place::with("a");
    fs::write(place.path(), " \n").unwrap();
    let why = "is empty; to end what it had before, delete the file";
    let said = [why, LAST_GOOD_STAYS].map(str::to_owned).to_vec();
    assert_eq!(place.look(), (vec!["a".to_owned()], said));
    fs::write(place.path(), "# nothing here any more\n").unwrap();
    assert_eq!(place.look(), (vec![], vec![]));
    place.write("b");
    assert_eq!(place.look(), (vec!["b".to_owned()], vec![]));
    fs::write(place.path(), "").unwrap();
    place.look();
    fs::remove_file(place.path()).unwrap();
    assert_eq!(place.look(), (vec![], vec![]));
}

#[test]
fn a_file_of_which_nothing_can_be_known_keeps_its_last_good_content() {
    let mut place = Place::with("a");
    fs::remove_file(place.path()).unwrap();
    symlink(place.path(), place.path()).unwrap();
    let (names, bad) = place.look();
    assert_eq!(names, ["a"]);
    assert!(bad[0].starts_with("cannot be read: "), "{bad:?}");
    assert!(place.look_once().found.is_none(), "it is told once");
    // A link to nothing is no file.
    fs::remove_file(place.path()).unwrap();
    symlink(place.folder.path().join("nothing"), place.path()).unwrap();
    assert_eq!(place.look(), (vec![], vec![]));
}

#[test]
fn a_document_of_a_kind_that_is_not_read_keeps_no_file_as_it_was() {
    let mut place = Place::with("a");
    let others = "---\nkind: Endpoints\nmetadata: {name: bcd}\n";
    place.write("bcd");
    let text = fs::read_to_string(place.path()).unwrap() + others;
    fs::write(place.path(), text).unwrap();
    let (names, said) = place.look();
    assert_eq!(names, ["bcd"]);
    assert_eq!(
        said,
        ["line 5, column 1: Endpoints default/bcd is not read; write an EndpointSlice"]
    );
}

#[test]
fn a_file_that_never_settles_is_read_after_a_while() {
    let mut place = Place::with("a");
    let begun = place.now;
    for length in 2.. {
        let name = "a".repeat(length);
        place.write(&name);
        let look = place.look_once();
        let is_read = place.now - begun > PATIENCE;
        assert_eq!(look.is_settling, !is_read, "{length}");
        assert_eq!(place.state().0 == [name], is_read, "{length}");
        if is_read {
            break;
        }
    }
}

#[test]
fn a_file_that_never_settles_is_not_forgotten_while_it_is_away() {
    let mut place = Place::with("a");
    for length in 2..20 {
        place.write(&"a".repeat(length));
        place.look_once();
        fs::remove_file(place.path()).unwrap();
        place.look_once();
        assert_eq!(place.state().0.len(), 1, "{length}");
    }
}

#[test]
fn what_changes_while_it_is_read_is_not_used() {
    let mut place = Place::with("a");
    place.write("bb");
    assert!(place.look_once().is_settling);
    let there = stamps(place.folder.path()).unwrap();
    place.write("ccc");
    let taken = place.files.take(there, place.now + SETTLED);
    assert!(taken.is_settling && !taken.changed);
    assert_eq!(place.state().0, ["a"]);
    assert_eq!(place.look(), (vec!["ccc".to_owned()], vec![]));
}

#[test]
fn nothing_is_sent_before_each_file_was_read_as_it_is() {
    let mut place = Place::with("a");
    place.files = Files::default();
    let there = stamps(place.folder.path()).unwrap();
    place.write("bb");
    let taken = place.files.take(there.clone(), place.now);
    assert!(taken.is_settling);
    // Such a file does not hold up the others for ever.
    let taken = place.files.take(there, place.now + PATIENCE);
    assert!(!taken.is_settling);
    let (names, bad) = place.state();
    assert_eq!(names.len(), 0);
    assert!(bad[0].starts_with("changes whenever"), "{bad:?}");
}

#[test]
fn a_file_that_is_broken_when_a_process_begins_keeps_what_the_process_before_has_read() {
    let mut place = Place::with("a");
    let table = tempfile::tempdir().unwrap();
    let begin = |place: &mut Place| {
        place.files = Files {
            kept: Some(Kept::beside(table.path())),
            ..Files::default()
        };
        place.look()
    };
    assert_eq!(begin(&mut place), (vec!["a".to_owned()], vec![]));
    let broken = |place: &Place| fs::write(place.path(), "kind: Service\n  metadata: [").unwrap();
    broken(&place);
    let (names, said) = begin(&mut place);
    assert_eq!(names, ["a"], "the broken file costs nothing");
    assert!(said[0].starts_with("line 2, column "), "{said:?}");
    assert_eq!(said[1], LAST_GOOD_STAYS);
    // As long as it is broken, however often a process begins.
    assert_eq!(begin(&mut place).0, ["a"]);
    fs::write(place.path(), "").unwrap();
    assert_eq!(begin(&mut place).0, ["a"]);
    place.write("bcd");
    assert_eq!(place.look(), (vec!["bcd".to_owned()], vec![]));
    broken(&place);
    assert_eq!(begin(&mut place).0, ["bcd"]);
    // A file that went away while no process ran is gone, and so is its copy.
    fs::remove_file(place.path()).unwrap();
    assert_eq!(begin(&mut place), (vec![], vec![]));
    broken(&place);
    let (names, said) = begin(&mut place);
    assert!(names.is_empty());
    assert_eq!(said[1], NEVER_GOOD);
}

#[test]
fn nobody_else_can_read_a_copy_and_none_is_taken_for_that_of_another_folder() {
    let mut place = Place::with("a");
    let table = tempfile::tempdir().unwrap();
    place.files = Files {
        kept: Some(Kept::beside(table.path())),
        ..Files::default()
    };
    place.look();
    let copy = table.path().join(".manifests/web.yaml");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&copy), mode(copy.parent().unwrap())), (0o600, 0o700));
    let kept = Kept::beside(table.path());
    let text = fs::read_to_string(place.path()).unwrap();
    assert_eq!(kept.read(&place.path()), Some(text));
    assert_eq!(kept.read(Path::new("/elsewhere/web.yaml")), None);
    fs::remove_file(place.path()).unwrap();
    place.look();
    assert!(!copy.exists());
}
