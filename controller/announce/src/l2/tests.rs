use super::*;
use Act::{Announce, Offer, Probe, Release, Take};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// The actions between `from` and `end`, each with its time.
fn run(l2: &mut L2, from: u64, end: u64) -> Vec<(u64, Act)> {
    let acts = |at| l2.tick(MS(at)).into_iter().map(move |act| (at, act));
    (from..=end).flat_map(acts).collect()
}

fn held() -> L2 {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wanted::Hold), [Probe]);
    run(&mut l2, 1, 7_000);
    assert!(l2.is_held());
    l2
}

#[test]
fn it_is_asked_for_taken_and_announced_at_the_times_of_the_contract() {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wanted::Hold), [Probe]);
    let mut expected = vec![(20, Probe), (40, Probe), (60, Take)];
    expected.extend([60, 160, 560, 1_060, 2_060, 5_060].map(|at| (at, Announce)));
    assert_eq!(run(&mut l2, 1, 10_000), expected);
    assert_eq!(l2.deadline(), None);
    assert_eq!(l2.want(MS(11_000), Wanted::Hold), []);
    assert_eq!(l2.want(MS(12_000), Wanted::Release), [Release]);
    assert_eq!(l2.want(MS(13_000), Wanted::Release), []);
}

#[test]
fn it_is_not_taken_from_a_member_and_soon_tried_again() {
    for (by, again) in [
        (Claimant::Living("b".to_owned()), 55),
        (Claimant::Dead("b".to_owned()), 1_025),
        (Claimant::Foreign([9; 6]), 1_025),
    ] {
        let mut l2 = L2::default();
        l2.want(MS(0), Wanted::Hold);
        run(&mut l2, 1, 24);
        assert_eq!(l2.claimed(MS(25), by.clone(), true), []);
        assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(by)));
        assert_eq!(run(&mut l2, 26, 2_000)[0], (again, Probe));
        assert!(l2.is_held());
        assert_eq!(l2.obstacle(), None);
    }
}

/// The answer to a question that this node asked before a member offered it the address.
#[test]
fn a_late_answer_of_the_member_that_gave_it_does_not_end_the_next_move_at_once() {
    let late = || Claimant::Living("b".to_owned());
    for (at, then) in [(6, vec![Offer]), (56, vec![Release, Offer])] {
        let mut l2 = L2::default();
        assert_eq!(l2.want(MS(0), Wanted::Hold), [Probe]);
        assert_eq!(l2.want(MS(5), Wanted::Take), [Take, Announce]);
        // Hosts may have heard the answer, too.
        assert_eq!(l2.claimed(MS(at), late(), true), [Announce]);
        assert_eq!(l2.want(MS(1_500), Wanted::HandOver), then, "{at}");
    }
}

#[test]
fn news_of_the_members_are_a_reason_to_ask_again_soon() {
    for (by, again) in [
        (Claimant::Dead("b".to_owned()), 130),
        (Claimant::Foreign([9; 6]), 1_025),
    ] {
        let mut l2 = L2::default();
        l2.want(MS(0), Wanted::Hold);
        l2.claimed(MS(25), by, false);
        assert_eq!(l2.want(MS(100), Wanted::Hold), []);
        assert_eq!(run(&mut l2, 101, 2_000)[0], (again, Probe));
    }
}

#[test]
fn a_foreign_host_is_asked_less_and_less_often() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wanted::Hold);
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
    // Hosts have learned the wrong place with the last frame: it is announced as soon as that may be.
    assert_eq!(l2.deadline(), Some(MS(29_000)));
    assert_eq!(l2.tick(MS(29_000)), [Announce]);
    // A minute later it is forgotten.
    assert_eq!(l2.deadline(), Some(MS(89_000)));
    assert_eq!(l2.tick(MS(89_000)), []);
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
    l2.want(MS(0), Wanted::Hold);
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
    assert_eq!(l2.want(MS(0), Wanted::Hold), [Probe]);
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
    l2.want(MS(0), Wanted::Hold);
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
    l2.want(MS(0), Wanted::Hold);
    run(&mut l2, 1, 60);
    l2.refused(MS(61), "no such device".to_owned());
    assert!(!l2.is_held());
    assert_eq!(run(&mut l2, 62, 1_200)[0], (1_061, Probe));
    assert!(l2.is_held() && !l2.is_settled());
    // After a second refusal the next attempt comes later.
    l2.refused(MS(1_201), "no such device".to_owned());
    assert_eq!(run(&mut l2, 1_202, 8_300)[0], (3_201, Probe));
    assert!(l2.is_settled());
    // Something changed for which it may be taken now.
    l2.refused(MS(8_301), "no such device".to_owned());
    l2.try_again(MS(8_400));
    assert_eq!(run(&mut l2, 8_400, 9_000)[0], (8_400, Probe));
}

#[test]
fn what_is_not_wanted_any_more_is_not_taken() {
    let mut l2 = L2::default();
    l2.want(MS(0), Wanted::Hold);
    assert_eq!(l2.want(MS(30), Wanted::Release), []);
    assert_eq!(run(&mut l2, 31, 1_000), []);
    assert_eq!(l2.claimed(MS(1_001), foreign(), false), []);
    // The system may refuse it late.
    l2.refused(MS(1_002), "no such device".to_owned());
    assert_eq!((l2.obstacle(), l2.deadline()), (None, None));
}

fn living() -> Claimant {
    Claimant::Living("b".to_owned())
}

#[test]
fn what_a_member_is_to_have_is_served_until_that_member_announces_it() {
    let mut l2 = held();
    assert_eq!(l2.want(MS(8_000), Wanted::HandOver), [Offer]);
    assert_eq!(l2.want(MS(8_001), Wanted::HandOver), []);
    // An offer may be lost.
    assert_eq!(run(&mut l2, 8_001, 8_150), [(8_100, Offer)]);
    assert_eq!(l2.claimed(MS(8_160), foreign(), false), []);
    assert_eq!(l2.claimed(MS(8_170), living(), true), []);
    assert!(l2.is_held());
    // What clients have asked for is answered until then, and no later.
    assert_eq!(l2.claimed(MS(8_200), living(), true), []);
    assert_eq!(run(&mut l2, 8_171, 9_000), [(8_220, Release)]);
    assert_eq!((l2.is_held(), l2.deadline()), (false, None));
}

#[test]
fn what_no_member_takes_is_given_up_in_the_end() {
    let mut l2 = held();
    l2.want(MS(8_000), Wanted::HandOver);
    let acts = run(&mut l2, 8_001, 20_000);
    assert_eq!(acts.last(), Some(&(10_000, Release)));
    assert!(acts.len() <= 21, "{acts:?}");
    // It is not asked for again.
    assert_eq!(l2.want(MS(20_001), Wanted::HandOver), []);
    assert_eq!(l2.deadline(), None);
}

#[test]
fn what_is_handed_over_may_stay_after_all_or_go_at_once() {
    let mut l2 = held();
    l2.want(MS(8_000), Wanted::HandOver);
    assert_eq!(l2.want(MS(8_010), Wanted::Hold), [Announce]);
    assert_eq!(run(&mut l2, 8_011, 8_200), [(8_110, Announce)]);
    l2.want(MS(9_000), Wanted::HandOver);
    assert_eq!(l2.want(MS(9_010), Wanted::GiveUp), [Release, Offer]);
    assert_eq!(l2.want(MS(9_020), Wanted::GiveUp), []);
}

#[test]
fn what_another_member_has_as_well_goes_at_once() {
    let mut l2 = held();
    l2.claimed(MS(8_000), living(), false);
    assert_eq!(l2.want(MS(8_001), Wanted::HandOver), [Release, Offer]);
    // A foreign host is for the next owner to find.
    let mut l2 = held();
    l2.claimed(MS(8_000), foreign(), false);
    assert_eq!(l2.want(MS(8_001), Wanted::HandOver), [Release]);
}

#[test]
fn what_a_member_offers_is_taken_without_a_question() {
    let mut l2 = L2::default();
    assert_eq!(l2.want(MS(0), Wanted::Take), [Take, Announce]);
    assert_eq!(l2.want(MS(1), Wanted::Take), []);
    assert!(l2.is_held());
    // It was asked for, and the member still had it.
    for is_waiting in [false, true] {
        let mut l2 = L2::default();
        assert_eq!(l2.want(MS(0), Wanted::Hold), [Probe]);
        if is_waiting {
            l2.claimed(MS(1), living(), true);
        }
        assert_eq!(l2.want(MS(2), Wanted::Take), [Take, Announce]);
        assert_eq!(l2.obstacle(), None);
    }
    // A host that is no member has it, or the system refuses it.
    let mut l2 = L2::default();
    l2.want(MS(0), Wanted::Hold);
    l2.claimed(MS(1), foreign(), false);
    assert_eq!(l2.want(MS(2), Wanted::Take), []);
    assert_eq!(run(&mut l2, 3, 1_100)[0], (1_001, Probe));
    l2.refused(MS(1_100), "no such device".to_owned());
    assert_eq!(l2.want(MS(1_101), Wanted::Take), []);
    assert!(!l2.is_held());
}

#[test]
fn what_a_member_had_as_well_is_announced_again() {
    let mut l2 = held();
    l2.had_rival(MS(8_000));
    assert_eq!(
        run(&mut l2, 8_000, 8_200),
        [(8_000, Announce), (8_100, Announce)]
    );
    // It was announced a moment ago.
    l2.had_rival(MS(8_201));
    assert_eq!(run(&mut l2, 8_201, 8_600), [(8_500, Announce)]);
    assert!(!l2.has_rival(MS(8_601)));
    l2.claimed(MS(8_700), living(), true);
    assert!(l2.has_rival(MS(8_701)));
    // A host that was foreign turns out to be a member.
    let mut l2 = held();
    l2.claimed(MS(8_000), foreign(), false);
    l2.introduced(MS(8_100), living());
    assert!(l2.has_rival(MS(8_101)) && !l2.has_rival(MS(10_101)));
}
