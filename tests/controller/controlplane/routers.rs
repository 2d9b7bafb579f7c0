//! Objects that say what routers are told, MetalLB's and ours: from the API server by the announcer's file and BIRD to the tables of two
//! routers.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::announcing::{Edge, let_nodes_read};
use crate::api::documents;
use crate::backends::{Backends, service};
use crate::corner::{Corner, with_its_own_server};
use crate::plane::Host;
use crate::pools::{apply, make_kinds_of_metallb, make_the_kinds};
use crate::process::{Process, until};

/// A router that runs BIRD.
struct Router {
    host: Host,
    folder: PathBuf,
    bird: Option<Process>,
}

impl Router {
    fn new(corner: &Corner<'_>, name: &str) -> Self {
        let folder = corner.folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        Self {
            host: corner.yard.host(),
            folder,
            bird: None,
        }
    }

    /// Has it speak with a node.
    fn start(&mut self, own: u32, node: &Host, of_node: u32) {
        let address = self.host.address;
        let text = format!(
            "log stderr all;
router id {address};
protocol device {{}}
protocol bfd {{}}
protocol bgp node {{
    local {address} as {own};
    neighbor {} as {of_node};
    hold time 3;
    password \"secret\";
    bfd yes;
    ipv4 {{ import all; export none; }};
}}
",
            node.address
        );
        std::fs::write(self.folder.join("bird.conf"), text).expect("a file");
        self.bird = Some(bird(&self.host, &self.folder, &self.folder));
    }

    fn shown(&self, words: &str) -> String {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(self.folder.join("bird.ctl"));
        let output = command.args(words.split(' ')).output().expect("birdc");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn knows(&self, network: &str) -> bool {
        self.shown("show route").contains(&format!("{network} "))
    }
}

/// A BIRD on a host, with its files in a folder.
fn bird(host: &Host, folder: &Path, logs: &Path) -> Process {
    let mut command = Command::new("bird");
    command.arg("-f").arg("-c").arg(folder.join("bird.conf"));
    command.arg("-s").arg(folder.join("bird.ctl"));
    let log = logs.join("bird.log");
    let start = || Process::start(&mut command, &log);
    host.network.within(start)
}

fn make(corner: &Corner<'_>, manifests: &str) {
    for object in documents(manifests) {
        apply(corner.yard, corner.plane, &object, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn what_objects_of_metallb_and_of_ballast_say_of_routers_is_what_routers_learn() {
    if let Err(error) = Command::new("bird").arg("--version").output() {
        return support::skip::skip(&format!("bird: {error} (apt-get install bird2)"));
    }
    with_its_own_server("routers", |corner| {
        make_the_kinds(corner.plane);
        make_kinds_of_metallb(corner, KINDS);
        let_nodes_read(corner);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metallb-system"}});
        make(corner, &namespace.to_string());
        corner.let_nodes_read_secrets("metallb-system");
        let pods = Backends::start(corner, 1);
        let mut edge = Edge::prepare(corner, "a");
        let [mut tor, mut spine] = ["tor", "spine"].map(|name| Router::new(corner, name));
        make(corner, &metallbs(&tor));
        make(corner, &ours(&spine));
        tor.start(64501, &edge.node.host, 64500);
        spine.start(64513, &edge.node.host, 64512);

        corner.be_published(&[]);
        edge.node.start_controller_alone();
        edge.start_announcer();
        edge.start_dataplane();
        for (name, pool) in [("theirs", "bgp-pool"), ("own", "edge")] {
            let named = format!("{{name: {name}}}");
            let asks =
                format!("{{name: {name}, annotations: {{metallb.io/address-pool: {pool}}}}}");
            corner.apply(&service(name, 80, "").replace(&named, &asks));
            corner.apply(&pods.slice(name, &[0]));
        }
        let config = edge.folder.join("bird.conf");
        until("the announcer wants routers to know", || config.exists());
        let _bird = bird(&edge.node.host, &edge.folder, corner.folder.path());
        let given = ["theirs", "own"].map(|name| {
            until("it has an address", || corner.published(name).len() == 1);
            format!("{}/32", corner.published(name)[0])
        });
        let [theirs, own] = &given;
        until("the routers know both", || {
            tor.knows(theirs) && spine.knows(own)
        });
        assert!(!tor.knows(own) && !spine.knows(theirs));

        // Two advertisements of one pool: each address with communities, and the whole network without.
        until("the network is known", || tor.knows("198.51.100.0/24"));
        let all = tor.shown("show route all");
        for words in ["(65535,65282)", "(1234,1)", "(123, 456, 7890)"] {
            assert_eq!(all.matches(words).count(), 1, "{words}: {all}");
        }
        let all = spine.shown("show route all");
        assert!(all.contains("(64512,7)"), "{all}");
        until("BFD is up", || {
            tor.shown("show bfd sessions").contains(" Up ")
        });

        // A warning names the object, the field and the remedy of a setting that is not supported; the other settings hold.
        let controller = edge.node.controller.as_ref().expect("it runs");
        for words in ["echo: spec.echoMode", "unnumbered: spec.peerAddress"] {
            until(words, || controller.log().contains(words));
        }

        // An advertisement that goes, and one that changes.
        let gone = [
            "delete",
            "bgpadvertisement",
            "external",
            "-n",
            "metallb-system",
        ];
        corner.yard.kubectl(corner.plane, &gone).expect("it goes");
        until("the network is withdrawn", || !tor.knows("198.51.100.0/24"));
        assert!(tor.knows(theirs));
        make(corner, &ours(&spine).replace("64512:7", "64512:8"));
        until("the community is another one", || {
            spine.shown("show route all").contains("(64512,8)")
        });

        // Nothing listens any more: nothing leads there.
        edge.node.dataplane.take().expect("it runs").crash();
        until("both are withdrawn", || {
            !tor.knows(theirs) && !spine.knows(own)
        });
    });
}

/// MetalLB's documentation, "Advanced BGP configuration" and "BGP with BFD", with the addresses of this place.
fn metallbs(router: &Router) -> String {
    let address = router.host.address;
    let of = |kind: &str, name: &str, more: &str| {
        let version = if kind == "BGPPeer" {
            "v1beta2"
        } else {
            "v1beta1"
        };
        format!(
            "---
apiVersion: metallb.io/{version}
kind: {kind}
metadata: {{name: {name}, namespace: metallb-system}}
spec: {more}
"
        )
    };
    [
        "apiVersion: v1
kind: Secret
metadata: {name: bgp-password, namespace: metallb-system}
type: kubernetes.io/basic-auth
stringData: {username: '', password: secret}
"
        .to_owned(),
        of("IPAddressPool", "bgp-pool", "{addresses: [198.51.100.0/24], autoAssign: false}"),
        of("BGPPeer", "sample", &format!("{{myASN: 64500, peerASN: 64501, peerAddress: {address}, holdTime: 3s, keepaliveTime: 1s, connectTime: 1s, bfdProfile: testbfdprofile, passwordSecret: {{name: bgp-password, namespace: metallb-system}}}}")),
        of("BGPPeer", "unnumbered", "{myASN: 64500, peerASN: 64501, interface: eth9}"),
        of("BFDProfile", "testbfdprofile", "{receiveInterval: 380, transmitInterval: 270}"),
        of("BFDProfile", "echo", "{echoMode: true}"),
        of("Community", "communities", "{communities: [{name: vpn-only, value: '1234:1'}, {name: NO_ADVERTISE, value: '65535:65282'}]}"),
        of("BGPAdvertisement", "local", "{ipAddressPools: [bgp-pool], aggregationLength: 32, localPref: 100, communities: [vpn-only, NO_ADVERTISE, 'large:123:456:7890'], peers: [sample]}"),
        of("BGPAdvertisement", "external", "{ipAddressPools: [bgp-pool], aggregationLength: 24}"),
    ]
    .concat()
}

fn ours(router: &Router) -> String {
    format!(
        "apiVersion: ballast.dev/v1
kind: AddressPool
metadata: {{name: edge}}
spec: {{addresses: [203.0.113.0/28], autoAssign: false, announce: {{mode: bgp}}}}
---
apiVersion: ballast.dev/v1
kind: Announcement
metadata: {{name: rack-one}}
spec:
  pools: [edge]
  bgp:
    myASN: 64512
    peers:
    - {{name: spine, peerASN: 64513, peerAddress: {}, holdTime: 3s, connectTime: 1s, password: secret, bfd: {{receiveInterval: 300, transmitInterval: 300}}}}
    advertisements:
    - {{communities: [\"64512:7\"], peers: [spine]}}
",
        router.host.address
    )
}

tests![what_objects_of_metallb_and_of_ballast_say_of_routers_is_what_routers_learn];

/// Each kind, its plural, and its version.
const KINDS: &[(&str, &str, &str)] = &[
    ("IPAddressPool", "ipaddresspools", "v1beta1"),
    ("L2Advertisement", "l2advertisements", "v1beta1"),
    ("BGPAdvertisement", "bgpadvertisements", "v1beta1"),
    ("BGPPeer", "bgppeers", "v1beta2"),
    ("Community", "communities", "v1beta1"),
    ("BFDProfile", "bfdprofiles", "v1beta1"),
];
