//! Planned moves: the node that has an address goes on to serve it until the next one has it, whatever else happens then.

use std::time::Duration;

use super::world::{Fault, World, below};
use super::{MS, with_seeds};

/// A data plane or an announcer that is told to end, and a file.
#[test]
fn a_planned_move_interrupts_nobody_and_returns_after_30_s() {
    with_seeds(96, 9, |seed| {
        let mut world = World::new(seed, 2 + below(seed, 5), 60);
        world.run(MS(3_000));
        let before = world.owners();
        let one = world.random(world.count());
        if seed % 2 == 0 {
            world.fault(Fault::Loss(5));
        }
        world.longest_nowhere = MS(0);
        let (there, back) = match seed % 3 {
            0 => (Fault::Unready(one), Fault::DataPlane(one, true)),
            1 => (Fault::Leave(one), Fault::Restart(one)),
            _ => (Fault::Serves(one, 60), Fault::Serves(one, 0)),
        };
        world.fault(there);
        world.run(MS(2_500));
        world.all_are_held();
        assert!(!world.owners().values().any(|owner| *owner == one));
        world.moves.clear();
        world.fault(back);
        world.run(MS(29_000));
        assert_eq!(world.moves, []);
        world.run(MS(6_000));
        assert_eq!(world.owners(), before);
        assert_eq!(world.longest_nowhere, MS(0), "{}", world.told.join("\n"));
    });
}

/// Files that are edited again, while the move before is hardly over.
#[test]
fn planned_moves_in_a_row_interrupt_nobody() {
    with_seeds(64, 6, |seed| {
        let mut world = World::new(seed, 2, 40);
        world.run(MS(3_000));
        world.longest_nowhere = MS(0);
        for step in 0..6 {
            let one = step % 2;
            world.fault(Fault::Serves(one, 40));
            let wait = 150 + world.random(800);
            world.run(MS(wait as u64));
            assert_eq!(world.shares(), [(1 - one, 40)].into());
            world.fault(Fault::Serves(one, 0));
            let wait = 50 + world.random(400);
            world.run(MS(wait as u64));
        }
        world.all_are_held();
        assert_eq!(world.longest_nowhere, MS(0), "{}", world.told.join("\n"));
    });
}

/// A planned move of all that a node has, between two nodes of three, and within it a failure of one of them.
#[test]
fn a_failure_within_a_planned_move_is_as_short_as_one_outside() {
    with_seeds(256, 24, |seed| {
        let mut world = World::new(seed, 3, 30);
        world.run(MS(3_000));
        let from = world.random(3);
        let next = (from + 1 + world.random(2)) % 3;
        // The third one can take all, or nothing.
        let has_third = seed % 2 == 0;
        if !has_third {
            world.fault(Fault::Serves(3 - from - next, 30));
            world.run(MS(1_000));
        }
        world.longest_nowhere = MS(0);
        world.fault(match seed % 3 {
            0 => Fault::Unready(from),
            1 => Fault::Leave(from),
            _ => Fault::Serves(from, 30),
        });
        let wait = world.random(8_000);
        world.run(Duration::from_micros(wait as u64));
        let hit = [from, next][world.random(2)];
        let fault = match world.random(7) {
            0 => Fault::Kill(hit),
            1 => Fault::Cut(hit),
            2 => Fault::Link(hit, false),
            3 => Fault::DataPlane(hit, false),
            4 => Fault::Restart(hit),
            5 => Fault::Flush(hit),
            _ => Fault::File(hit, 0),
        };
        world.fault(fault);
        world.run(MS(2_000));
        let nowhere = world.longest_nowhere;
        let told = world.told.join("\n");
        world.heal();
        world.run(MS(6_000));
        world.all_are_held();
        if has_third || hit == from {
            assert!(nowhere <= MS(650), "{nowhere:?}\n{told}");
        }
    });
}
