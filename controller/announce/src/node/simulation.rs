//! Whole announcers on a network of the test's own: with loss, delay and reordering, partitions, pauses, restarts, clocks that go
//! back, and hundreds of addresses. The seed of a failure is printed; `SEED=N` runs it alone.

mod moves;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use super::Connections;
use world::{Fault, World};

const MS: fn(u64) -> std::time::Duration = std::time::Duration::from_millis;

/// Runs the story with many seeds: 256 in CI, fewer in a debug build elsewhere.
fn with_seeds(ci: u64, debug: u64, story: impl Fn(u64)) {
    let one = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let count = match std::env::var_os("CI").is_some() {
        true => ci,
        false => debug,
    };
    let (first, count) = one.map_or((1, count), |seed| (seed, 1));
    let begun = Instant::now();
    for seed in first..first + count {
        let guard = Told(seed);
        story(seed);
        std::mem::forget(guard);
    }
    println!("{count} seeds in {:?}", begun.elapsed());
}

/// Says the seed of a story that panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("SEED={} plays it again", self.0);
    }
}

#[test]
fn each_address_has_one_owner_soon_after_the_start() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 5, 100);
        world.run(MS(3_000));
        world.all_are_held();
        let shares = world.shares();
        assert!(shares.values().all(|share| *share >= 8), "{shares:?}");
    });
}

#[test]
fn exactly_the_addresses_of_a_dead_node_move_and_soon() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 7), 200);
        world.run(MS(3_000 + seed % 100));
        let before = world.owners();
        world.all_are_held();
        world.moves.clear();
        let dead = world.random(world.count());
        world.fault(Fault::Kill(dead));
        let at = world.now();
        world.run(MS(2_000));
        let of_dead: BTreeMap<_, _> = before.iter().filter(|(_, owner)| **owner == dead).collect();
        assert_eq!(world.moves.len(), of_dead.len());
        // Of many members none may probe the dead one for a while: each chooses whom it probes by itself.
        let limit = if world.count() == 2 { MS(470) } else { MS(650) };
        for (when, address, _) in &world.moves {
            assert!(of_dead.contains_key(address));
            let took = *when - at;
            assert!(took <= limit, "{took:?} of {}", world.count());
        }
        world.all_are_held();
    });
}

#[test]
fn a_data_plane_that_ends_moves_its_addresses_within_300_ms_and_they_return_after_30_s() {
    with_seeds(32, 4, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 100);
        world.run(MS(3_000));
        let before = world.owners();
        world.moves.clear();
        world.fault(Fault::DataPlane(0, false));
        let at = world.now();
        world.run(MS(1_000));
        let last = world.moves.iter().map(|(when, ..)| *when - at).max();
        // The node that gives an address up offers it to the next owner, which takes it without a probe.
        assert!(last.is_some_and(|last| last <= MS(20)), "{last:?}");
        world.all_are_held();
        world.moves.clear();
        world.fault(Fault::DataPlane(0, true));
        world.run(MS(29_000));
        assert_eq!(world.moves, []);
        world.run(MS(2_500));
        assert_eq!(world.owners(), before);
        world.all_are_held();
    });
}

#[test]
fn an_address_that_comes_back_and_that_nobody_else_has_is_held_at_once() {
    with_seeds(32, 4, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 60);
        world.run(MS(3_000));
        let before = world.owners();
        world.fault(Fault::Serves(0, 60));
        world.run(MS(1_000));
        world.fault(Fault::Serves(0, 0));
        world.run(MS(1_000));
        assert!(!world.owners().values().any(|owner| *owner == 0));
        for other in 1..world.count() {
            world.fault(Fault::Serves(other, 60));
        }
        world.run(MS(300));
        world.all_are_held();
        assert_eq!(world.shares().len(), 1);
        // What no node could serve comes to all at nearly the same time, and each has its share at once.
        world.fault(Fault::Serves(0, 60));
        world.run(MS(500));
        for number in 0..world.count() {
            world.fault(Fault::Serves(number, 0));
            world.run(MS(100));
        }
        world.run(MS(1_000));
        assert_eq!(world.owners(), before);
    });
}

#[test]
fn many_refusals_are_one_decision() {
    let mut world = World::new(7, 2, 400);
    world.run(MS(3_000));
    let mut sent = |faults: &[Fault]| {
        let before = world.datagrams();
        for fault in faults {
            world.fault(*fault);
        }
        world.run(MS(200));
        world.datagrams() - before
    };
    let usual = sent(&[]);
    let then = sent(&[Fault::RefuseAll(0)]);
    // Each decision is told to the others at once.
    assert!(then < usual + 20, "{then}, usually {usual}");
    world.all_are_held();
    assert_eq!(world.shares().len(), 1);
}

#[test]
fn nothing_moves_while_one_in_twenty_packets_is_lost() {
    with_seeds(16, 2, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 50);
        world.run(MS(5_000));
        world.fault(Fault::Loss(5));
        world.moves.clear();
        world.run(MS(120_000));
        assert_eq!(world.moves, [], "{}", world.told.join("\n"));
        world.all_are_held();
    });
}

#[test]
fn whatever_happens_there_is_at_most_one_owner_among_those_who_see_each_other_and_one_in_the_end() {
    with_seeds(256, 12, |seed| {
        let nodes = 2 + world::below(seed, 5);
        let mut world = World::new(seed, nodes, 30);
        world.run(MS(2_000));
        for _ in 0..12 {
            let fault = world.any_fault();
            world.fault(fault);
            let wait = 50 + world.random(2_500);
            world.run(MS(wait as u64));
        }
        world.heal();
        world.run(MS(6_000));
        world.all_are_held();
    });
}

#[test]
fn after_all_is_healed_every_node_has_its_share_again_and_nothing_moves() {
    with_seeds(16, 2, |seed| {
        let mut world = World::new(seed, 4, 60);
        world.run(MS(3_000));
        let before = world.owners();
        for fault in [Fault::Kill(1), Fault::Cut(2), Fault::Pause(3, MS(4_000))] {
            world.fault(fault);
            world.run(MS(3_000));
        }
        world.heal();
        // 80 s for flaps at most, then 30 s of good health.
        world.run(MS(115_000));
        assert_eq!(world.owners(), before);
        world.moves.clear();
        world.run(MS(20_000));
        assert_eq!(world.moves, []);
    });
}

#[test]
fn a_foreign_host_keeps_its_address_until_it_goes() {
    let mut world = World::new(7, 2, 4);
    let address = world.addresses[0];
    world.foreign = Some(address);
    world.run(MS(5_000));
    assert!(!world.owners().contains_key(&address));
    assert!(
        world
            .told
            .iter()
            .any(|line| line.contains("is no member; take it from that host"))
    );
    world.foreign = None;
    world.run(MS(10_000));
    world.all_are_held();
}

#[test]
fn a_node_that_leaves_gives_up_at_once_and_the_last_one_keeps_its_addresses_to_the_end() {
    let mut world = World::new(7, 2, 20);
    world.run(MS(3_000));
    world.fault(Fault::Leave(0));
    world.run(MS(300));
    world.all_are_held();
    assert_eq!(world.shares().len(), 1);
    world.fault(Fault::Leave(1));
    world.run(MS(300));
    world.all_are_held();
    world.fault(Fault::End(1));
    assert_eq!(world.owners().len(), 0);
}

/// Two hosts, of which the system of the first one refuses every address.
fn refused_at_one() -> World {
    let mut world = World::new(7, 2, 20);
    world.fault(Fault::Refuse(0, true));
    world.run(MS(3_000));
    world
}

#[test]
fn what_a_system_refuses_another_node_takes_and_it_stays_there() {
    let mut world = refused_at_one();
    world.all_are_held();
    assert_eq!(world.shares().len(), 1);
    assert!(
        world
            .told
            .iter()
            .any(|line| line.contains("the system refused it: not permitted; see"))
    );
    world.moves.clear();
    world.run(MS(120_000));
    assert_eq!(world.moves, []);
    // Without another node it is tried again, and succeeds in the end.
    world.fault(Fault::Kill(1));
    world.run(MS(5_000));
    assert_eq!(world.owners().len(), 0);
    world.fault(Fault::Refuse(0, false));
    world.run(MS(10_000));
    world.all_are_held();
}

#[test]
fn what_a_system_refuses_is_not_tried_again_for_the_interfaces_of_pods() {
    let mut world = refused_at_one();
    world.all_are_held();
    world.moves.clear();
    for _ in 0..50 {
        world.fault(Fault::Pod(0));
        world.run(MS(1_000));
    }
    assert_eq!(world.moves, []);
    // Its own interface is another thing: once it is up again the addresses come back.
    world.fault(Fault::Refuse(0, false));
    for has_link in [false, true] {
        world.fault(Fault::Link(0, has_link));
        world.run(MS(500));
    }
    world.run(MS(2_000));
    world.all_are_held();
    assert_eq!(world.shares().len(), 2);
}

#[test]
fn a_system_that_goes_on_refusing_is_tried_less_and_less_often() {
    let mut world = refused_at_one();
    world.moves.clear();
    let before = world.refusals;
    // Every file is a reason to try again.
    for _ in 0..300 {
        world.fault(Fault::File(0, 100));
        world.run(MS(1_000));
    }
    world.all_are_held();
    // After 10, 20, 40, 80 and 160 s, with less than all of the addresses. The other host keeps them meanwhile.
    let tries = world.refusals - before;
    assert!((1..5 * 20).contains(&tries), "{tries}");
    assert_eq!(world.moves, []);
}

#[test]
fn a_host_that_starts_again_gets_nothing_before_its_time_and_interrupts_nobody() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 60);
        world.run(MS(3_000));
        let dead = world.random(world.count());
        world.fault(Fault::Kill(dead));
        world.run(MS(3_000));
        world.moves.clear();
        world.longest_nowhere = MS(0);
        world.fault(Fault::Start(dead));
        world.run(MS(28_000));
        let told = world.told.join("\n");
        assert_eq!(world.moves, [], "{told}");
        assert_eq!(world.longest_nowhere, MS(0), "{told}");
        world.all_are_held();
    });
}

#[test]
fn an_announcer_that_starts_again_keeps_what_it_finds() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 60);
        world.run(MS(3_000));
        let before = world.owners();
        world.moves.clear();
        world.longest_nowhere = MS(0);
        let one = world.random(world.count());
        if seed % 2 == 0 {
            // The others have declared the process before it dead, and its kernel goes on.
            world.fault(Fault::Pause(one, MS(5_000)));
            world.run(MS(2_000));
            world.fault(Fault::Pause(one, MS(0)));
        }
        world.fault(Fault::Restart(one));
        world.run(MS(36_000));
        world.all_are_held();
        assert_eq!(world.owners(), before);
        assert_eq!((&world.moves[..], world.longest_nowhere), (&[][..], MS(0)));
    });
}

/// A neighbour without the key, who sends what the kernel of the dead host could have sent.
#[test]
fn frames_in_the_name_of_a_dead_member_take_no_address_away() {
    for leaves in [false, true] {
        let mut world = World::new(7, 2, 20);
        world.run(MS(3_000));
        if leaves {
            world.fault(Fault::Leave(0));
            world.run(MS(2_500));
            world.fault(Fault::End(0));
            world.run(MS(1_000));
        } else {
            world.fault(Fault::Kill(0));
            world.run(MS(61_000));
        }
        world.all_are_held();
        world.moves.clear();
        world.longest_nowhere = MS(0);
        for _ in 0..300 {
            world.forge(0, 1);
            world.run(MS(100));
        }
        world.all_are_held();
        assert_eq!((&world.moves[..], world.longest_nowhere), (&[][..], MS(0)));
        let told = world.told.join("\n");
        assert!(told.contains("says that it has it, too"), "{told}");
    }
}

#[test]
fn what_a_hostile_member_says_ends_no_failure_detection() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 30);
        world.run(MS(3_000));
        for _ in 0..5 {
            let one = world.random(world.count());
            world.fault(Fault::Hostile(one));
            let wait = world.random(1_500);
            world.run(MS(wait as u64));
        }
        // 80 s for what it declared dead at most, then 30 s of good health.
        world.run(MS(115_000));
        world.all_are_held();
        let dead = world.random(world.count());
        world.fault(Fault::Kill(dead));
        world.run(MS(700));
        world.all_are_held();
    });
}

#[test]
fn what_was_recorded_before_moves_nothing() {
    with_seeds(32, 4, |seed| {
        let mut world = World::new(seed, 3, 20);
        world.recorded = Some(Vec::new());
        // Hellos of one that is cut off and of one that starts, states, deaths.
        world.run(MS(500));
        world.fault(Fault::Cut(0));
        world.run(MS(1_000));
        world.fault(Fault::Join);
        world.run(MS(1_000));
        let recorded = world.recorded.take().unwrap();
        for number in 0..3 {
            world.fault(Fault::Restart(number));
            world.run(MS(2_000));
        }
        world.run(MS(90_000));
        world.moves.clear();
        world.told.clear();
        // Most hellos, which have about this length, and some others.
        let (hellos, others): (Vec<_>, Vec<_>) = recorded
            .into_iter()
            .partition(|(_, bytes)| (70..100).contains(&bytes.len()));
        let others = others.into_iter().step_by(10);
        world.recorded = Some(hellos.into_iter().step_by(2).chain(others).collect());
        world.replay();
        world.run(MS(2_000));
        assert_eq!(
            (&world.moves[..], world.told.join("\n")),
            (&[][..], String::new())
        );
    });
}

#[test]
fn an_interface_that_goes_down_leaves_no_address_behind() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 40);
        world.run(MS(3_000));
        let one = world.random(world.count());
        world.fault(Fault::Link(one, false));
        world.run(MS(400));
        world.all_are_held();
        world.fault(Fault::Link(one, true));
        world.run(MS(100));
        world.all_are_held();
        world.run(MS(40_000));
        world.all_are_held();
    });
}

#[test]
fn an_address_that_is_not_served_any_more_does_not_wait_for_the_end_of_its_connections() {
    for (fault, expected) in [
        (Fault::DataPlane(0, false), Connections::End),
        (Fault::Unready(0), Connections::EndFirst),
        (Fault::Leave(0), Connections::EndFirst),
        (Fault::Link(0, false), Connections::Stay),
    ] {
        let mut world = World::new(7, 2, 20);
        world.run(MS(3_000));
        world.removals.clear();
        world.fault(fault);
        world.run(MS(3_000));
        let all = world.removals.iter().all(|one| *one == (0, expected));
        assert!(
            all && !world.removals.is_empty(),
            "{fault:?}: {:?}",
            world.removals
        );
    }
}

#[test]
fn an_interface_with_another_hardware_address_announces_what_it_has_again() {
    with_seeds(16, 4, |seed| {
        let mut world = World::new(seed, 3, 40);
        world.run(MS(10_000));
        let before = world.owners();
        let one = world.random(world.count());
        world.moves.clear();
        world.fault(Fault::Mac(one));
        world.run(MS(10));
        assert_eq!(world.learned, before);
        world.run(MS(5_000));
        assert_eq!((world.owners(), world.moves.len()), (before, 0));
    });
}

#[test]
fn an_address_that_something_else_removes_is_taken_again() {
    with_seeds(16, 4, |seed| {
        let mut world = World::new(seed, 3, 40);
        world.run(MS(3_000));
        let before = world.owners();
        let one = world.random(world.count());
        world.fault(Fault::Flush(one));
        world.run(MS(200));
        assert_eq!(world.owners(), before);
        world.all_are_held();
        assert!(world.told.iter().any(|line| line.contains("Lost")));
    });
}

#[test]
fn of_two_that_do_not_hear_each_other_each_keeps_its_own() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 3, 40);
        world.run(MS(3_000));
        world.fault(Fault::Block(0, 1));
        world.run(MS(3_000));
        world.all_are_held();
        world.fault(Fault::Kill(2));
        world.run(MS(10_000));
        world.all_are_held();
        world.fault(Fault::Join);
        world.run(MS(5_000));
        world.all_are_held();
    });
}

#[test]
fn of_a_thousand_addresses_each_is_where_it_is_served_though_half_of_them_are_not_ready_somewhere()
{
    with_seeds(8, 1, |seed| {
        let mut world = World::new(seed, 3, 1_000);
        world.cannot(0, 500);
        world.cannot(1, 300);
        world.cannot(2, 100);
        // Nobody can serve the first ones.
        let nowhere: Vec<_> = world.addresses.drain(..100).collect();
        world.run(MS(4_000));
        world.all_are_held();
        let owners = world.owners();
        assert!(nowhere.iter().all(|address| !owners.contains_key(address)));
        let of_none = |number: usize, addresses: &[std::net::IpAddr]| {
            addresses.iter().all(|address| owners[address] != number)
        };
        assert!(of_none(0, &world.addresses[..400]) && of_none(1, &world.addresses[..200]));
        world.moves.clear();
        world.run(MS(5_000));
        assert_eq!(world.moves, []);
    });
}

#[test]
fn one_that_cannot_say_all_that_it_cannot_hold_holds_nothing() {
    let mut world = World::new(7, 2, 6_500);
    for number in 0..2 {
        world.cannot(number, 6_400);
    }
    world.run(MS(2_000));
    assert_eq!(world.owners().len(), 0);
    let too_many = world.told.iter().filter(|line| line.contains("TooMany"));
    assert_eq!(too_many.count(), 2);
}

/// `run` may be late on a node, or its file an older one.
#[test]
fn an_address_that_some_files_lack_has_one_owner_among_those_that_have_it() {
    with_seeds(256, 8, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 5), 60);
        world.run(MS(2_000));
        for _ in 0..8 {
            let one = world.random(world.count());
            let percent = [0, 40, 90, 100][world.random(4)];
            let fault = match world.random(6) {
                0 => Fault::Kill(one),
                1 => Fault::Start(one),
                2 => Fault::Restart(one),
                _ => Fault::File(one, percent),
            };
            world.fault(fault);
            let wait = world.random(800);
            world.run(MS(wait as u64));
        }
        world.run(MS(4_000));
        world.all_are_held();
        world.moves.clear();
        world.run(MS(20_000));
        world.all_are_held();
        for number in 0..world.count() {
            world.fault(Fault::File(number, 100));
            let wait = world.random(900);
            world.run(MS(wait as u64));
        }
        // Those that started come back within this time.
        world.run(MS(40_000));
        world.all_are_held();
    });
}

#[test]
fn a_new_address_goes_to_its_owner_at_once_though_files_come_at_different_times() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 5), 80);
        world.run(MS(100));
        for number in 0..world.count() {
            world.fault(Fault::File(number, 0));
        }
        world.run(MS(40_000));
        assert_eq!(world.owners().len(), 0);
        world.moves.clear();
        for number in 0..world.count() {
            world.fault(Fault::File(number, 100));
            let wait = world.random(150);
            world.run(MS(wait as u64));
        }
        world.run(MS(2_000));
        world.all_are_held();
        // No address was on one node first, and then on another.
        assert_eq!(world.moves.len(), 80);
    });
}

/// Services are made one after the other, and each file has them a little later.
#[test]
fn of_many_new_addresses_none_moves_though_files_lag_behind() {
    with_seeds(16, 3, |seed| {
        let mut world = World::new(seed, 2 + world::below(seed, 4), 24);
        for number in 0..world.count() {
            world.fault(Fault::First(number, 0));
        }
        world.run(MS(40_000));
        world.moves.clear();
        let lags: Vec<usize> = (0..world.count()).map(|_| world.random(8)).collect();
        for step in 1..24 + 8 {
            for (number, lag) in lags.iter().enumerate() {
                world.fault(Fault::First(number, 24.min(step.max(*lag) - lag)));
            }
            world.run(MS(100));
        }
        world.run(MS(2_000));
        world.all_are_held();
        assert_eq!(world.moves.len(), 24);
    });
}

#[test]
fn a_peer_with_another_key_is_told_once_a_minute() {
    let mut world = World::new(7, 2, 4);
    world.run(MS(2_000));
    world.told.clear();
    world.stranger = Some(1);
    world.fault(Fault::Restart(1));
    world.run(MS(50_000));
    let told = |world: &World| -> Vec<String> {
        let lines = world.told.iter();
        let lines = lines.filter(|line| line.contains("OtherKey"));
        lines.cloned().collect()
    };
    let lines = told(&world);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("edge1: OtherKey(10.0.0.2:7956)"))
    );
    world.run(MS(60_000));
    assert_eq!(told(&world).len(), 4);
}

#[test]
fn the_same_seed_plays_the_same_story() {
    let story = |seed| {
        let mut world = World::new(seed, 4, 20);
        world.run(MS(2_000));
        world.fault(Fault::Loss(20));
        world.fault(Fault::Cut(1));
        world.run(MS(3_000));
        world.moves
    };
    assert_eq!(story(3), story(3));
    assert_ne!(story(3), story(4));
}
