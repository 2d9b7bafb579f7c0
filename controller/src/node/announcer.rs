//! Writes the announcer's file on this node when it changes. Called by [`super::table`], which knows the decision, the tables that were
//! written and the acks of the data plane.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use ballast_announce::ack as announcer;
use ballast_announce::file::{Announce, parse};
use ballast_core::ack::Ack;
use ballast_core::table::RoutingTable;

use super::announcement::{Target, file, is_giving_away, open, staying};
use super::folder::Folder;
use crate::decide::Announced;
use crate::reconcile::Decision;
use crate::replace::{create, draft, replace};

/// The announcer's file, and what it depends on.
#[derive(Debug)]
pub(crate) struct Announcer {
    path: PathBuf,
    target: Target,
    /// The tables that the data plane may serve, by generation: the one that it serves, and newer ones.
    tables: VecDeque<(u64, Arc<RoutingTable>)>,
    /// The ack that an earlier process has left, until there is one of this process.
    earlier: Option<Arc<Ack>>,
    /// The addresses at which the data plane listened when that was known last.
    open: BTreeSet<IpAddr>,
    /// What the file says.
    written: Option<Content>,
    /// The addresses that it leaves on this node. `None` until this process has written it.
    staying: Option<BTreeSet<IpAddr>>,
    /// For how long tables wait for addresses that this node gives away.
    patience: Patience,
    /// The reason for which it could not be written, as it was logged.
    failing: Option<String>,
}

/// Everything on which the file depends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    announced: Arc<Announced>,
    open: BTreeSet<IpAddr>,
    leaves: bool,
}

impl Announcer {
    /// Continues where an earlier process ended: the start of this one moves no address.
    ///
    /// # Errors
    /// The folder of the file is not there, or cannot be written to.
    pub(crate) fn begin(path: PathBuf, target: Target, folder: &Folder) -> io::Result<Self> {
        let earlier = fs::read(&path).ok().and_then(|bytes| parse(&bytes).ok());
        let ready = earlier.into_iter().flat_map(|file| file.addresses);
        let ready = ready.filter(|one| one.ready).map(|one| one.address);
        let ack = fs::read(folder.ack()).ok();
        let probe = draft(&path);
        create(&probe, MODE).and_then(|_| fs::remove_file(&probe))?;
        Ok(Self {
            path,
            target,
            tables: folder.table().into_iter().collect(),
            earlier: ack.and_then(|ack| serde_json::from_slice(&ack).ok()),
            open: ready.collect(),
            written: None,
            staying: None,
            patience: Patience::default(),
            failing: None,
        })
    }

    /// The path of the announcer's acks, unless another one is named.
    pub(crate) fn ack(&self) -> PathBuf {
        self.path.with_file_name("announce-ack.json")
    }

    /// Notes that a table was written, if it is a new one.
    pub(super) fn wrote(&mut self, generation: u64, table: &Arc<RoutingTable>) {
        if self
            .tables
            .back()
            .is_none_or(|(known, _)| *known != generation)
        {
            // The first one may be what the data plane serves, since it refuses all others.
            if self.tables.len() == REMEMBERED {
                self.tables.remove(1);
            }
            self.tables.push_back((generation, Arc::clone(table)));
        }
    }

    /// Writes the file, if it is another one by this decision and ack. Returns whether it says what it is to say.
    pub(super) fn write(&mut self, decision: &Decision, ack: Option<&Arc<Ack>>) -> bool {
        let ack = ack.or(self.earlier.as_ref()).cloned();
        let newest = decision.desired.table.as_ref();
        self.open = match (newest, ack.as_deref()) {
            (Some(newest), Some(ack)) => self.open(newest, ack),
            _ => BTreeSet::new(),
        };
        let content = Content {
            announced: Arc::clone(&decision.desired.announced),
            open: self.open.clone(),
            leaves: decision.is_leaving,
        };
        if self.written.as_ref() == Some(&content) {
            return true;
        }
        // What an earlier process wrote stays until passwords are known: a router that is left out ends its session.
        if self.written.is_none() && content.announced.lacks_passwords {
            return true;
        }
        let bytes = file(
            &self.target,
            &content.announced,
            &content.open,
            content.leaves,
        );
        let bytes = format!("{bytes}\n").into_bytes();
        let written = tokio::task::block_in_place(|| self.replace(&bytes));
        let file = match written {
            Ok(file) => file,
            Err(why) => {
                if self.failing.as_ref() != Some(&why) {
                    let path = self.path.display();
                    tracing::error!(
                        "cannot write the announcer's file {path}, and what it said stays: {why}"
                    );
                    self.failing = Some(why);
                }
                return false;
            }
        };
        self.failing = None;
        let addresses = content.announced.addresses.len();
        let ready = file.addresses.iter().filter(|one| one.ready).count();
        tracing::info!(addresses, ready, "wrote the announcer's file");
        self.staying = Some(staying(&file));
        self.written = Some(content);
        true
    }

    /// How long the next table waits at most, since clients of an address that this node gives away still come here. `ack`: the newest one
    /// of the announcer.
    pub(super) fn wait(&mut self, ack: Option<&announcer::Ack>, now: Instant) -> Duration {
        let staying = self.staying.as_ref();
        let is_giving_away = ack
            .zip(staying)
            .is_some_and(|(ack, staying)| is_giving_away(ack, staying));
        self.patience.left(is_giving_away, now)
    }

    /// The addresses at which the data plane listens.
    fn open(&mut self, newest: &Arc<RoutingTable>, ack: &Ack) -> BTreeSet<IpAddr> {
        let Some(served) = &ack.served else {
            return BTreeSet::new();
        };
        let mut tables = self.tables.iter();
        let is_served = |(generation, _): &(u64, _)| Some(*generation) == served.generation;
        let Some(place) = tables.position(is_served) else {
            // It refuses the newest table since before this process began. What was known then stays.
            return self.open.clone();
        };
        self.tables.drain(..place);
        let served = self.tables.front();
        served.map_or_else(BTreeSet::new, |(_, served)| open(newest, served, ack))
    }

    /// Replaces the file, if the announcer takes it and it is another one. Returns what it says.
    fn replace(&self, bytes: &[u8]) -> Result<Announce, String> {
        let file = parse(bytes).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        })?;
        if fs::read(&self.path).is_ok_and(|there| there == bytes) {
            return Ok(file);
        }
        // With a password in it, it is for its owner alone.
        let has_password = bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD);
        let mode = if has_password { 0o600 } else { MODE };
        let written = replace(&self.path, mode, |file| io::Write::write_all(file, bytes));
        written.map_err(|error| error.to_string())?;
        Ok(file)
    }
}

/// Everybody may read the file.
const MODE: u32 = 0o644;
/// How a password stands in the file.
const PASSWORD: &[u8] = b"\"password\":";
/// The data plane is rarely more than one table behind.
const REMEMBERED: usize = 8;
/// Another node takes an address within a fraction of a second. An announcer that hangs, or an address that no other node can take,
/// delays no table for longer.
const MOST_PATIENCE: Duration = Duration::from_secs(2);
/// One second of patience comes back within so many seconds: an owner whose Service is scaled to zero and back all the time delays
/// the tables of others by a fifteenth of the time at most.
const COMES_BACK: u32 = 15;

/// For how long a table may still wait for addresses that this node gives away.
#[derive(Debug, Default)]
struct Patience {
    /// When the present wait began, and for how long it may last.
    wait: Option<(Instant, Duration)>,
    /// What was left at the end of the last wait, and when that was; `None`: there has been none.
    before: Option<(Instant, Duration)>,
}

impl Patience {
    /// For how long a table may wait from `now` on; zero, if it has no reason to wait.
    fn left(&mut self, has_reason: bool, now: Instant) -> Duration {
        if !has_reason {
            if let Some((since, most)) = self.wait.take() {
                let waited = now.saturating_duration_since(since).min(most);
                self.before = Some((since + waited, most - waited));
            }
            return Duration::ZERO;
        }
        let before = self.before;
        let (since, most) = *self.wait.get_or_insert_with(|| {
            let most = before.map_or(MOST_PATIENCE, |(at, left)| {
                let back = now.saturating_duration_since(at) / COMES_BACK;
                MOST_PATIENCE.min(left + back)
            });
            (now, most)
        });
        (since + most).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::decide;
    use crate::node::fetch::Pages;
    use crate::observe::Observed;
    use crate::settings::Settings;
    use ballast_announce::file::Return;

    const NODE: &str = "kind: Node
metadata: {name: edge1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}
---
kind: AddressPool
apiVersion: ballast.dev/v1
metadata: {name: edge}
spec: {addresses: [192.0.2.0/30]}
---
";

    struct Place {
        folder: tempfile::TempDir,
        table: Folder,
        announcer: Announcer,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            Self::begin(folder)
        }

        /// As a process begins.
        fn begin(folder: tempfile::TempDir) -> Self {
            let table = Folder::open(folder.path().into()).expect("a folder");
            let target = Target {
                node: "edge1".to_owned(),
                port: 7956,
                key: "members.key".into(),
                socket: None,
                bird: PathBuf::new(),
                dataplane: ([127, 0, 0, 1], 1936).into(),
                comes_back: Return::Delayed,
            };
            let path = folder.path().join("announce.yaml");
            Self {
                announcer: Announcer::begin(path, target, &table).expect("a folder"),
                table,
                folder,
            }
        }

        fn again(self) -> Self {
            Self::begin(self.folder)
        }

        /// Writes as the table's writer does; then the data plane acknowledges.
        fn write(&mut self, decision: &Decision) {
            let ack = fs::read(self.table.ack()).ok();
            let ack = ack.map(|ack| Arc::new(serde_json::from_slice(&ack).expect("an ack")));
            assert!(self.announcer.write(decision, ack.as_ref()));
            let table = decision.desired.table.as_ref().expect("a table");
            let wrote = self.table.write(
                table,
                &decision.desired.files,
                &decision.observed.secrets,
                &Pages::default(),
            );
            wrote.expect("a table");
            self.announcer.wrote(self.table.generation(), table);
        }

        fn acknowledge(&self, generation: u64) {
            let ack = json!({"version": 1, "instance": "i", "served": {"generation": generation, "digest": "d"}, "refused": null, "exceptions": []});
            fs::write(self.table.ack(), ack.to_string()).expect("an ack");
        }

        /// The addresses, `-` before those that are not ready.
        fn addresses(&self) -> Vec<String> {
            let bytes = fs::read(&self.announcer.path).expect("a file");
            let file: Value = serde_json::from_slice(&bytes).expect("JSON");
            let addresses = file["addresses"].as_array().cloned().unwrap_or_default();
            let words = addresses.iter().map(|one| {
                let ready = if one["ready"] == true { "" } else { "-" };
                format!("{ready}{}", one["address"].as_str().unwrap_or_default())
            });
            words.collect()
        }
    }

    fn decision(services: &[&str]) -> Decision {
        let mut manifests = NODE.to_owned();
        for name in services {
            manifests.push_str(&format!(
                "kind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: 80}}]}}\n---\n"
            ));
        }
        let mut settings = Settings::without_flags();
        settings.flags.node_name = Some("edge1".to_owned());
        let observed = Observed::of(&manifests);
        Decision {
            desired: Arc::new(decide(&observed, &settings)),
            observed: Arc::new(observed),
            is_leaving: false,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_address_is_ready_once_its_port_is_acknowledged_and_leaves_with_its_service() {
        let mut place = Place::new();
        let (one, two) = (decision(&["a"]), decision(&["a", "b"]));
        place.write(&one);
        assert_eq!(place.addresses(), ["-192.0.2.0"]);
        place.acknowledge(1);
        place.write(&one);
        assert_eq!(place.addresses(), ["192.0.2.0"]);

        place.write(&two);
        assert_eq!(place.addresses(), ["192.0.2.0", "-192.0.2.1"]);
        place.write(&two);
        assert_eq!(place.addresses(), ["192.0.2.0", "-192.0.2.1"], "no ack yet");
        place.acknowledge(2);
        place.write(&two);
        assert_eq!(place.addresses(), ["192.0.2.0", "192.0.2.1"]);

        // It leaves with the decision, and not after the ack.
        place.write(&one);
        assert_eq!(place.addresses(), ["192.0.2.0"]);
        let leaves = Decision {
            is_leaving: true,
            ..one
        };
        place.acknowledge(3);
        place.write(&leaves);
        assert_eq!(place.addresses(), ["-192.0.2.0"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_table_waits_for_an_address_that_this_node_gives_away_but_not_for_long() {
        let mut place = Place::new();
        let one = decision(&["a"]);
        place.write(&one);
        place.acknowledge(1);
        place.write(&one);
        let held = json!({"address": "192.0.2.0", "state": "held", "owner": "edge2", "since": 1, "detail": ""});
        let held = json!({"version": 1, "file-digest": "d", "refused": null, "addresses": [held]});
        let held: announcer::Ack = serde_json::from_value(held).expect("an ack");
        let begin = Instant::now();
        let rest = |place: &mut Place, ack: Option<&announcer::Ack>, millis: u64| {
            let now = begin + Duration::from_millis(millis);
            place.announcer.wait(ack, now).as_millis()
        };
        assert_eq!(rest(&mut place, Some(&held), 0), 0, "nothing is given away");
        place.write(&decision(&[]));
        for (millis, left) in [(0, 2_000), (1_500, 500), (2_000, 0), (9_000, 0)] {
            assert_eq!(rest(&mut place, Some(&held), millis), left);
        }
        assert_eq!(rest(&mut place, None, 9_001), 0, "no announcer has run");
        // Of the patience that was used up at 2,000 a fifteenth of the time since has come back.
        assert_eq!(rest(&mut place, Some(&held), 9_500), 500);
        assert_eq!(
            rest(&mut place, None, 9_600),
            0,
            "it was given away quickly"
        );
        assert_eq!(rest(&mut place, Some(&held), 9_615), 401);
        assert_eq!(rest(&mut place, None, 60_000), 0);
        assert_eq!(rest(&mut place, Some(&held), 60_000), 2_000, "all of it");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_restart_moves_no_address_whatever_the_data_plane_has_taken() {
        let mut place = Place::new();
        let (one, two) = (decision(&["a"]), decision(&["a", "b"]));
        place.write(&one);
        place.acknowledge(1);
        place.write(&one);
        let mut place = place.again();
        place.write(&one);
        assert_eq!(place.addresses(), ["192.0.2.0"]);
        // The data plane serves the first table, and refuses the second one.
        place.write(&two);
        let mut place = place.again();
        place.write(&two);
        assert_eq!(place.addresses(), ["192.0.2.0", "-192.0.2.1"]);
        // It refuses so many that the table which it serves would be forgotten.
        for _ in 0..REMEMBERED {
            place.write(&one);
            place.write(&two);
        }
        assert_eq!(place.addresses(), ["192.0.2.0", "-192.0.2.1"]);
        place.acknowledge(place.table.generation());
        place.write(&two);
        assert_eq!(place.addresses(), ["192.0.2.0", "192.0.2.1"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_file_is_written_on_change_only_and_again_when_that_failed() {
        let mut place = Place::new();
        let one = decision(&["a"]);
        place.write(&one);
        let path = place.announcer.path.clone();
        let modified = || {
            fs::metadata(&path)
                .and_then(|meta| meta.modified())
                .expect("a time")
        };
        let before = modified();
        place.write(&one);
        assert_eq!(modified(), before);
        // A folder in place of the draft cannot be removed as a file.
        fs::create_dir(draft(&path)).expect("a folder");
        let two = decision(&["a", "b"]);
        assert!(!place.announcer.write(&two, None));
        assert_eq!(place.addresses(), ["-192.0.2.0"]);
        fs::remove_dir(draft(&path)).expect("an empty folder");
        assert!(place.announcer.write(&two, None));
        assert_eq!(place.addresses().len(), 2);
    }
}
