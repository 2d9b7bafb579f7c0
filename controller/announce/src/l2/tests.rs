//! An address on one node, step by step.

use super::*;
use Act::{Announce, Probe, Release, Take};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// The actions between `from` and `end`, each with its time.
fn run(l2: &mut L2, from: u64, end: u64) -> Vec<(u64, Act)> {
    let acts = |at| l2.tick(MS(at)).into_iter().map(move |act| (at, act));
    (from..=end).flat_map(acts).collect()
}

fn held() -> L2 {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wish::Own), [Probe]);
    run(&mut l2, 1, 7_000);
    assert!(l2.is_held());
    l2
}

#[test]
fn it_is_asked_for_taken_and_announced_at_the_times_of_the_contract() {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wish::Own), [Probe]);
    let mut expected = vec![(20, Probe), (40, Probe), (60, Take)];
    expected.extend([60, 160, 560, 1_060, 2_060, 5_060].map(|at| (at, Announce)));
    assert_eq!(run(&mut l2, 1, 10_000), expected);
    assert_eq!(l2.deadline(), None);
    assert_eq!(l2.want(MS(11_000), Wish::Own), []);
    assert_eq!(l2.want(MS(12_000), Wish::Drop), [Release]);
    assert_eq!(l2.want(MS(13_000), Wish::Drop), []);
}

#[test]
fn it_is_not_taken_from_a_member_and_soon_tried_again() {
    for (by, again) in [
        (Claimant::Living("b".to_owned()), 55),
        (Claimant::Dead("b".to_owned()), 1_025),
        (Claimant::Foreign([9; 6]), 1_025),
    ] {
        let mut l2 = L2::default();
        l2.want(MS(0), Wish::Own);
        run(&mut l2, 1, 24);
        assert_eq!(l2.claimed(MS(25), by.clone(), true), []);
        assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(by)));
        assert_eq!(run(&mut l2, 26, 2_000)[0], (again, Probe));
        assert!(l2.is_held());
        assert_eq!(l2.obstacle(), None);
    }
}

#[test]
fn what_is_yielded_stays_until_a_member_has_it() {
    let member = || Claimant::Living("b".to_owned());
    for (wish, removed) in [(Wish::Yield, Some(9_000)), (Wish::Keep, None)] {
        let mut l2 = held();
        assert_eq!(l2.want(MS(8_000), wish), []);
        assert_eq!(l2.want(MS(8_100), wish), []);
        assert!(l2.is_held() && l2.yields());
        assert_eq!(l2.deadline(), removed.map(MS));
        // A host that is not known to be a member does not take it away, and it is not defended.
        assert_eq!(l2.claimed(MS(8_200), foreign(), false), []);
        assert_eq!(l2.claimed(MS(8_300), member(), true), [Release]);
        assert!(!l2.is_held());
    }
    let mut l2 = held();
    l2.want(MS(8_000), Wish::Yield);
    assert_eq!(run(&mut l2, 8_001, 10_000), [(9_000, Release)]);
    // It is its own again: the other one may have announced it.
    let mut l2 = held();
    l2.want(MS(8_000), Wish::Yield);
    assert_eq!(l2.want(MS(8_500), Wish::Own), []);
    assert_eq!(run(&mut l2, 8_500, 8_550), [(8_500, Announce)]);
    let mut away = L2::default();
    assert_eq!(away.want(MS(0), Wish::Yield), []);
    assert_eq!(away.want(MS(0), Wish::Keep), []);
    assert!(!away.is_held());
}

#[test]
fn what_a_member_yields_is_taken_though_its_kernel_answers() {
    let member = |name: &str| Claimant::Living(name.to_owned());
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    l2.claimed(MS(1), member("b"), false);
    l2.yielded(MS(2), "b".to_owned());
    assert_eq!(run(&mut l2, 2, 10), [(2, Probe)]);
    for at in [3, 25, 45] {
        assert_eq!(l2.claimed(MS(at), member("b"), false), []);
    }
    assert_eq!(
        run(&mut l2, 11, 70),
        [(22, Probe), (42, Probe), (62, Take), (62, Announce)]
    );
    // Another host is in the way as before.
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    l2.yielded(MS(1), "b".to_owned());
    l2.claimed(MS(2), foreign(), false);
    assert_eq!(run(&mut l2, 3, 1_001), []);
    assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(foreign())));
}

#[test]
fn news_of_the_members_are_a_reason_to_ask_again_soon() {
    for (by, again) in [
        (Claimant::Dead("b".to_owned()), 130),
        (Claimant::Foreign([9; 6]), 1_025),
    ] {
        let mut l2 = L2::default();
        l2.want(MS(0), Wish::Own);
        l2.claimed(MS(25), by, false);
        assert_eq!(l2.want(MS(100), Wish::Own), []);
        assert_eq!(run(&mut l2, 101, 2_000)[0], (again, Probe));
    }
}

#[test]
fn a_foreign_host_is_asked_less_and_less_often() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    let (mut now, mut asked) = (0, Vec::new());
    while asked.len() < 9 {
        now += 1;
        if l2.tick(MS(now)).contains(&Probe) {
            asked.push(now / 1000);
            l2.claimed(MS(now), Claimant::Foreign([9; 6]), false);
        }
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
}

fn foreign() -> Claimant {
    Claimant::Foreign([9; 6])
}

#[test]
fn it_is_defended_but_not_for_ever_at_once() {
    let mut l2 = held();
    let member = || Claimant::Living("b".to_owned());
    assert_eq!(l2.claimed(MS(8_000), member(), true), [Announce]);
    assert_eq!(l2.claimed(MS(8_999), member(), true), []);
    assert_eq!(l2.claimed(MS(9_000), member(), true), [Announce]);
    assert_eq!(l2.claimed(MS(18_000), foreign(), false), []);
    // A frame that gets no answer is not reported: any host can send any number of them.
    assert_eq!(l2.obstacle(), None);
    assert_eq!(l2.claimed(MS(19_000), foreign(), false), [Announce]);
    assert!(l2.is_held());
    assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(foreign())));
    let other = Claimant::Foreign([8; 6]);
    assert_eq!(l2.claimed(MS(19_001), other, false), []);
    assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(foreign())));
    // A minute later it is forgotten.
    assert_eq!(l2.deadline(), Some(MS(79_000)));
    assert_eq!(l2.tick(MS(79_000)), []);
    assert_eq!((l2.obstacle(), l2.deadline()), (None, None));
}

#[test]
fn of_two_that_do_not_hear_each_other_the_lower_one_gives_it_up() {
    for (outranks, expected) in [(true, Release), (false, Announce)] {
        let mut l2 = held();
        let dead = || Claimant::Dead("b".to_owned());
        for at in [8_000, 9_000] {
            assert_eq!(l2.claimed(MS(at), dead(), outranks), [Announce]);
        }
        assert_eq!(l2.claimed(MS(10_000), dead(), outranks), [expected]);
        assert_eq!(l2.is_held(), !outranks);
        // This node asks again, and finds the other one.
        let next = run(&mut l2, 10_001, 12_000);
        assert_eq!(next.first().copied(), outranks.then_some((11_000, Probe)));
    }
    // Claims that have nothing to do with each other are no dispute.
    let mut l2 = held();
    for at in [8_000, 28_000, 48_000, 68_000] {
        let dead = Claimant::Dead("b".to_owned());
        assert_eq!(l2.claimed(MS(at), dead, true), [Announce]);
    }
}

#[test]
fn who_asks_at_the_same_time_has_it_first() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    run(&mut l2, 1, 24);
    l2.asked_too(MS(25), Claimant::Living("b".to_owned()));
    assert_eq!(run(&mut l2, 26, 2_000)[0], (55, Probe));
    assert!(l2.is_held());
    // A question for what is held is answered by the kernel.
    l2.asked_too(MS(2_001), foreign());
    assert!(l2.is_held());
}

#[test]
fn what_could_not_be_asked_is_asked_again() {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wish::Own), [Probe]);
    l2.not_asked(MS(0));
    for at in (20..400).step_by(20) {
        assert_eq!(l2.tick(MS(at)), [Probe]);
        l2.not_asked(MS(at));
    }
    assert_eq!(l2.tick(MS(400)), [Probe]);
    let next = run(&mut l2, 401, 500);
    assert_eq!(next[..3], [(420, Probe), (440, Probe), (460, Take)]);
    l2.not_asked(MS(501));
    assert!(l2.is_held());
}

#[test]
fn it_is_announced_again_when_others_may_have_learned_another_place() {
    let mut l2 = held();
    l2.announce_again(MS(8_000));
    let expected = [8_000, 8_100, 8_500, 9_000, 10_000, 13_000].map(|at| (at, Announce));
    assert_eq!(run(&mut l2, 8_000, 20_000), expected);
    let mut away = L2::default();
    away.announce_again(MS(1));
    assert_eq!(away.deadline(), None);
}

#[test]
fn after_a_pause_it_is_asked_for_again_before_it_is_taken() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    assert_eq!(l2.tick(MS(60_000)), [Probe]);
    assert_eq!(
        run(&mut l2, 60_001, 60_040),
        [(60_020, Probe), (60_040, Take), (60_040, Announce)]
    );
    assert_eq!(l2.tick(MS(90_000)), [Announce]);
}

#[test]
fn what_the_system_refuses_is_tried_again() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    run(&mut l2, 1, 60);
    l2.refused(MS(61), "no such device".to_owned());
    assert!(!l2.is_held());
    assert_eq!(run(&mut l2, 62, 1_200)[0], (1_061, Probe));
    assert!(l2.is_held() && !l2.is_settled());
    // After a second refusal the next attempt comes later.
    l2.refused(MS(1_201), "no such device".to_owned());
    assert_eq!(run(&mut l2, 1_202, 8_300)[0], (3_201, Probe));
    assert!(l2.is_settled());
}

#[test]
fn what_is_not_wanted_any_more_is_not_taken() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wish::Own);
    assert_eq!(l2.want(MS(30), Wish::Drop), []);
    assert_eq!(run(&mut l2, 31, 1_000), []);
    assert_eq!(l2.claimed(MS(1_001), foreign(), false), []);
    // The system may refuse it late.
    l2.refused(MS(1_002), "no such device".to_owned());
    assert_eq!((l2.obstacle(), l2.deadline()), (None, None));
}
