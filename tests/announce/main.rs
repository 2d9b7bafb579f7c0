//! The announcer of `ballast-controller`, on hosts that are network namespaces of the test's own, joined by a bridge.
//!
//! This program is the announcer as well: `announce FILE`.

mod bird;
mod drains;
mod figures;
mod frr;
mod hosts;
mod interfaces;
mod kernel;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ballast_announce::shell::{Options, run};
use hosts::{Host, Place, until};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, file] = &arguments[..]
        && word == "announce"
    {
        let options = Options {
            file: Path::new(file).to_owned(),
            ack: None,
            admin: None,
            has_metallb_names: false,
        };
        return match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let trial_of = |hosts, name, test: fn(&mut Place)| {
        Trial::test(name, move || match Place::build(hosts) {
            Ok(mut place) => {
                test(&mut place);
                Ok(())
            }
            Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
                Err(Failed::from(format!("CI=true, and this cannot run: {why}")))
            }
            Err(why) => {
                eprintln!("SKIP: {name}: {why}");
                Ok(())
            }
        })
    };
    let trial = |name, test| trial_of(2, name, test);
    let mut tests = vec![
        trial(
            "a_host_that_loses_its_power_loses_its_addresses_to_the_other",
            power,
        ),
        trial("an_announcer_that_starts_again_interrupts_nobody", again),
        trial("what_is_told_to_end_hands_over", ends),
        trial("a_data_plane_that_ends_moves_its_addresses", data_plane),
        trial(
            "a_frozen_announcer_keeps_what_its_kernel_answers_for",
            frozen,
        ),
        trial("an_address_of_a_foreign_host_is_not_taken", foreign),
        trial(
            "one_that_may_not_change_addresses_leaves_them_to_the_other",
            without_rights,
        ),
        trial(
            "a_second_announcer_on_a_host_waits_for_the_end_of_the_first",
            second,
        ),
        trial("forged_datagrams_are_dropped_and_nothing_moves", forged),
        trial(
            "a_router_knows_an_address_exactly_while_it_is_served",
            bird::routes,
        ),
        trial(
            "an_address_is_held_until_bird_has_withdrawn_it",
            bird::withdrawal,
        ),
        trial(
            "what_an_earlier_announcer_told_routers_is_held_until_bird_has_withdrawn_it",
            bird::left,
        ),
        trial(
            "an_address_that_something_else_put_on_lo_serves_and_stays",
            bird::on_lo_before,
        ),
        trial(
            "a_thousand_addresses_are_held_again_by_a_bird_that_was_killed",
            bird::many,
        ),
        trial(
            "what_somebody_does_to_bird_by_hand_does_not_stay",
            bird::by_hand,
        ),
        trial(
            "a_router_of_frr_shares_out_over_both_hosts_that_serve",
            frr::routes,
        ),
        trial("a_bad_file_is_refused_whole_and_a_good_one_is_taken", files),
        trial(
            "an_interface_that_was_down_has_no_address_of_another_node",
            kernel::down,
        ),
        trial(
            "a_node_whose_cable_is_pulled_holds_nothing",
            kernel::carrier,
        ),
        trial(
            "an_address_that_something_else_removes_is_taken_again",
            kernel::removed,
        ),
        trial(
            "clients_learn_another_hardware_address_of_an_interface",
            kernel::another_mac,
        ),
        trial(
            "no_address_is_refused_while_very_many_routes_change",
            kernel::routes_change,
        ),
        trial("an_address_that_is_there_already_is_held", kernel::by_hand),
        trial("an_address_of_the_host_itself_stays", kernel::own),
        trial(
            "addresses_of_a_host_whose_programs_all_ended_go_to_the_other",
            kernel::expires,
        ),
        trial(
            "an_address_on_a_vlan_moves_and_leaves_an_interface_that_vanishes",
            interfaces::vlan,
        ),
        trial(
            "an_address_on_a_bridge_over_a_vlan_moves",
            interfaces::bridge_over_vlan,
        ),
        trial(
            "an_address_on_an_interface_over_another_moves_and_leaves_one_that_vanishes",
            interfaces::macvlan,
        ),
        trial(
            "an_address_on_a_bridge_over_a_tunnel_moves",
            interfaces::bridge_over_vxlan,
        ),
        trial(
            "clients_do_not_notice_that_a_node_is_emptied",
            drains::hand_over,
        ),
        trial_of(
            3,
            "nothing_moves_where_packets_are_lost_and_a_node_is_busy",
            figures::loss,
        ),
        trial(
            "an_ipv6_address_is_announced_when_it_is_served",
            kernel::announced_when_served,
        ),
        trial("what_a_crash_left_is_found", kernel::left),
        trial(
            "the_only_node_keeps_an_address_until_it_is_not_served",
            kernel::alone,
        ),
        trial(
            "a_file_with_a_socket_that_cannot_be_opened_is_refused",
            kernel::bad_bind,
        ),
        trial("a_disk_that_stalls_moves_nothing", kernel::stalled),
        trial("a_node_that_names_no_peer_is_found", kernel::no_peers),
    ];
    if std::env::var_os("FIGURES").is_some() {
        tests.extend([
            trial("figures_of_kills", figures::kills),
            trial_of(8, "figures_of_kills_of_eight", figures::kills),
            trial("figures_of_a_data_plane_that_ends", figures::data_plane),
            trial("figures_of_a_thousand_addresses", figures::thousand),
            trial_of(10, "figures_at_rest", figures::at_rest),
            trial("figures_of_a_router", bird::figures),
            trial("figures_of_hand_overs", drains::hand_over),
            trial_of(3, "figures_of_loss", figures::loss),
        ]);
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// The one that holds both addresses, and the other one.
fn settle(place: &mut Place) -> (usize, usize) {
    place.start(0);
    place.start(1);
    until("each address is held", || {
        place.holders(V4).len() == 1 && place.holders(V6).len() == 1
    });
    let one = place.holders(V4)[0];
    (one, 1 - one)
}

fn power(place: &mut Place) {
    let (one, other) = settle(place);
    assert!(place.client.reaches(V4) && place.client.reaches(V6));
    until("the client knows the place", || {
        place.client.neighbour(V4) == place.hosts[one].mac()
    });
    place.hosts[one].power_off();
    let at = Instant::now();
    until("the other has both", || {
        place.holds(other, V4) && place.holds(other, V6)
    });
    println!("taken after {:?}", at.elapsed());
    // The announcement changes what the client knows, without a question.
    until("the client knows the new place", || {
        place.client.neighbour(V4) == place.hosts[other].mac()
    });
    assert!(place.client.reaches(V4) && place.client.reaches(V6));
}

fn again(place: &mut Place) {
    let (one, _) = settle(place);
    place.hosts[one].kill();
    assert!(place.holds(one, V4), "a crash leaves the address");
    place.start(one);
    // It knows the others a second later, and gives the address to one that is settled.
    let (begun, mut away) = (Instant::now(), Duration::ZERO);
    let mut last = begun;
    while begun.elapsed() < Duration::from_secs(4) {
        match place.holders(V4).is_empty() {
            true => away = away.max(last.elapsed()),
            false => last = Instant::now(),
        }
        hosts::pause(Duration::from_millis(5));
    }
    println!("nobody had it for {away:?} at most");
    assert!(away < Duration::from_millis(200), "{away:?}");
    until("one has it", || place.holders(V4).len() == 1);
    assert!(place.client.reaches(V4));
}

fn ends(place: &mut Place) {
    let (one, other) = settle(place);
    place.hosts[one].signal("TERM");
    until("it ended", || place.hosts[one].has_ended());
    assert!(!place.holds(one, V4) && !place.holds(one, V6));
    until("the other has both", || {
        place.holds(other, V4) && place.holds(other, V6)
    });
    assert!(place.client.reaches(V4));
    // The last one takes its addresses away when it ends.
    place.hosts[other].signal("TERM");
    until("it ended", || place.hosts[other].has_ended());
    assert_eq!(place.holders(V4), Vec::<usize>::new());
}

fn data_plane(place: &mut Place) {
    let (one, other) = settle(place);
    place.hosts[one].end_data_plane();
    let at = Instant::now();
    until("the other has both", || {
        place.holds(other, V4) && place.holds(other, V6)
    });
    println!("taken after {:?}", at.elapsed());
    assert!(!place.holds(one, V4));
    until("the ack says why", || {
        place.hosts[one]
            .ack()
            .contains("the data plane is not ready")
    });
    assert!(place.client.reaches(V4));
}

fn frozen(place: &mut Place) {
    let (one, other) = settle(place);
    place.hosts[one].signal("STOP");
    until("the other says why it does not take it", || {
        place.hosts[other]
            .ack()
            .contains("answers for it, but not to datagrams")
    });
    assert_eq!(place.holders(V4), [one]);
    assert!(place.client.reaches(V4));
    place.hosts[one].signal("CONT");
    until("all is as it was, or moved", || {
        place.holders(V4).len() == 1 && place.holders(V6).len() == 1
    });
}

fn foreign(place: &mut Place) {
    place.client.ip(&format!("address add {V4}/32 dev eth0"));
    place.start(0);
    let mac = place.client.mac().unwrap_or_default();
    until("the conflict is told", || {
        let ack = place.hosts[0].ack();
        ack.contains("\"state\":\"conflict\"") && ack.contains(&mac)
    });
    assert_eq!(place.holders(V4), Vec::<usize>::new());
    until("the other address is held", || place.holders(V6) == [0]);
    place.client.ip(&format!("address del {V4}/32 dev eth0"));
    until("it is taken", || place.holders(V4) == [0]);
}

fn without_rights(place: &mut Place) {
    place.hosts[0].without = Some("net_admin");
    place.start(0);
    until("the ack says what is missing", || {
        let ack = place.hosts[0].ack();
        ack.contains("the system refused it: ") && ack.contains("CAP_NET_ADMIN")
    });
    place.start(1);
    until("the other has both", || {
        place.holders(V4) == [1] && place.holders(V6) == [1]
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(place.holders(V4), [1]);
        hosts::pause(Duration::from_millis(20));
    }
}

fn second(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    let host = &place.hosts[0];
    let other = host.path("other.yaml");
    let none = "10.77.0.99";
    std::fs::write(&other, host.file().replace(V4, none)).expect("a file");
    let mut second = host.program(&std::env::current_exe().expect("a path").to_string_lossy());
    let second = second
        .arg("announce")
        .arg(&other)
        .stderr(std::process::Stdio::piped());
    let mut second = second.spawn().expect("a process");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(place.holders(V4), [0]);
        assert_eq!(place.holders(none), Vec::<usize>::new());
        hosts::pause(Duration::from_millis(5));
    }
    place.hosts[0].kill();
    until(
        "the second one has its own, and nothing else is left",
        || place.holders(none) == [0] && place.holders(V4).is_empty(),
    );
    second.kill().expect("it runs");
    second.wait().expect("it ends");
}

/// As many as a host without the key can send, up to some ten thousand a second.
fn forged(place: &mut Place) {
    let (one, _) = settle(place);
    let client = place.client.holder();
    let sender = std::thread::spawn(move || {
        hosts::enter(client);
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let forged = [&b"BA\x01"[..], &[7; 200]].concat();
        let begun = Instant::now();
        let mut sent = 0_u64;
        while begun.elapsed() < Duration::from_secs(3) {
            for to in ["10.77.0.1:7956", "10.77.0.2:7956"] {
                sent += u64::from(socket.send_to(&forged, to).is_ok());
            }
            if sent.is_multiple_of(40) {
                hosts::pause(Duration::from_millis(1));
            }
        }
        sent
    });
    while !sender.is_finished() {
        assert_eq!(place.holders(V4), [one]);
        hosts::pause(Duration::from_millis(20));
    }
    println!("{} forged datagrams", sender.join().expect("no panic"));
    assert_eq!(place.holders(V4), [one]);
    assert!(place.client.reaches(V4));
}

fn files(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    let host: &Host = &place.hosts[0];
    let good = host.file();
    host.write(&good.replace("mode: l2", "mode: l3"));
    until("the ack has the mistakes", || {
        host.ack().contains("did you mean l2?")
    });
    assert_eq!(place.holders(V4), [0]);
    let edge2 = good.replace("[edge1, edge2], ready: true", "[edge2], ready: true");
    assert_ne!(edge2, good);
    host.write(&edge2);
    until("what this node may not hold is given up", || {
        place.holders(V4).is_empty()
    });
    host.write(&good);
    until("it is held again", || place.holders(V4) == [0]);
    // An address that is not in the file any more goes at once.
    let lines = good.lines().filter(|line| !line.contains(V6));
    host.write(&lines.collect::<Vec<_>>().join("\n"));
    until("it is gone", || place.holders(V6).is_empty());
    assert_eq!(place.holders(V4), [0]);
}

const V4: &str = "10.77.0.100";
const V6: &str = "fd77::100";
