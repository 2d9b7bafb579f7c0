//! Members that see each other through a network of the test's own.

use super::*;

mod oracle;

/// Members, with datagrams that take a millisecond.
struct Place {
    now: Duration,
    members: BTreeMap<SocketAddr, Membership>,
    frozen: Vec<SocketAddr>,
    cut: Vec<(SocketAddr, SocketAddr)>,
    under_way: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    news: Vec<(String, Duration, News)>,
}

fn at(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 7956).into()
}

impl Place {
    fn of(count: u8) -> Self {
        let mut place = Self {
            now: Duration::ZERO,
            members: BTreeMap::new(),
            frozen: Vec::new(),
            cut: Vec::new(),
            under_way: Vec::new(),
            news: Vec::new(),
        };
        for last in 1..=count {
            place.start(last, 1);
        }
        place
    }

    /// Everyone knows the first one's address only.
    fn start(&mut self, last: u8, generation: u64) {
        let identity = Identity {
            name: format!("edge{last}"),
            at: at(last),
            generation,
        };
        let member = Membership::new(self.now, identity, vec![at(1), at(2)], u64::from(last));
        self.members.insert(at(last), member);
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += Duration::from_millis(1);
            for (from, to, content) in std::mem::take(&mut self.under_way) {
                let is_cut = self.cut.contains(&(from, to)) || self.frozen.contains(&to);
                if let Some(member) = self.members.get_mut(&to).filter(|_| !is_cut) {
                    assert!(
                        member.take(self.now, &content)
                            || !self.frozen.is_empty()
                            || !self.cut.is_empty()
                    );
                }
            }
            for (from, member) in &mut self.members {
                if self.frozen.contains(from) {
                    continue;
                }
                if member.deadline() <= self.now {
                    member.tick(self.now);
                }
                let sends = member.take_sends().into_iter();
                self.under_way
                    .extend(sends.map(|(to, content)| (*from, to, content)));
                let name = member.foca.identity().name.clone();
                let news = member.take_news().into_iter();
                self.news
                    .extend(news.map(|news| (name.clone(), self.now, news)));
            }
        }
    }

    fn alive(&self, last: u8) -> Vec<String> {
        let others = self.members[&at(last)].others();
        others.into_iter().map(|(name, _)| name).collect()
    }

    fn cut_off(&mut self, last: u8) {
        let others = self.members.keys().filter(|other| **other != at(last));
        let pairs = others.flat_map(|other| [(at(last), *other), (*other, at(last))]);
        self.cut = pairs.collect();
    }

    fn news_of(&mut self) -> Vec<(String, Duration, News)> {
        std::mem::take(&mut self.news)
    }
}

#[test]
fn members_find_each_other_by_one_peer_and_hear_what_each_says() {
    let mut place = Place::of(5);
    place.run(1_000);
    let said = State::new(
        "edge4".to_owned(),
        Some(2),
        7,
        &[("192.0.2.1".parse().unwrap(), true)],
        vec![[4; 6]],
    );
    let now = place.now;
    place.members.get_mut(&at(4)).unwrap().say(now, said);
    place.run(300);
    for last in [1, 2, 3, 5] {
        assert_eq!(place.alive(last).len(), 4, "edge{last}");
        let member = &place.members[&at(last)];
        let others = member.others();
        let (_, state) = others.iter().find(|(name, _)| name == "edge4").unwrap();
        let cannot = &state.as_ref().unwrap().cannot;
        assert!(cannot.has("192.0.2.1".parse().unwrap()));
        assert_eq!(member.with_mac([4; 6]), Some(("edge4".to_owned(), true)));
        assert_eq!(member.with_mac([5; 6]), None);
    }
}

#[test]
fn a_dead_member_is_known_to_all_within_600_ms() {
    for (count, seed_by_time) in [(2, 0), (3, 17), (10, 31), (10, 77)] {
        let mut place = Place::of(count);
        place.run(3_000 + seed_by_time);
        place.news_of();
        place.members.remove(&at(count));
        place.run(600);
        let down = News::Down(format!("edge{count}"));
        let news = place.news_of();
        let heard = news.iter().filter(|(_, _, news)| *news == down).count();
        assert_eq!(heard, usize::from(count) - 1, "of {count}: {news:?}");
        assert_eq!(news.len(), heard, "{news:?}");
    }
}

#[test]
fn one_that_leaves_is_gone_at_once() {
    let mut place = Place::of(3);
    place.run(2_000);
    let now = place.now;
    place.members.get_mut(&at(3)).unwrap().leave(now);
    place.run(2);
    place.members.remove(&at(3));
    place.run(150);
    assert_eq!([place.alive(1), place.alive(2)], [["edge2"], ["edge1"]]);
}

#[test]
fn parts_find_each_other_again_and_the_smaller_one_has_lost() {
    let mut place = Place::of(3);
    place.run(2_000);
    place.cut_off(1);
    place.run(2_000);
    assert_eq!(place.alive(1), Vec::<String>::new());
    assert_eq!(place.alive(2), ["edge3"]);
    place.news_of();
    place.cut.clear();
    place.run(1_200);
    for last in 1..=3 {
        assert_eq!(place.alive(last).len(), 2, "edge{last}");
    }
    let back = |place: &mut Place| -> Vec<(String, bool)> {
        let news = place.news_of().into_iter();
        news.filter_map(|(name, _, news)| match news {
            News::BackFromTheDead { lost } => Some((name, lost)),
            _ => None,
        })
        .collect()
    };
    let news = back(&mut place);
    assert!(news.contains(&("edge1".to_owned(), true)), "{news:?}");
    assert!(
        news.iter().all(|(name, lost)| *lost == (name == "edge1")),
        "{news:?}"
    );
}

#[test]
fn a_frozen_process_learns_within_a_round_trip_that_it_was_dead() {
    let mut place = Place::of(3);
    place.run(2_000);
    place.frozen = vec![at(2)];
    place.run(3_000);
    assert_eq!(place.alive(1), ["edge3"]);
    place.news_of();
    place.frozen.clear();
    let now = place.now;
    place.members.get_mut(&at(2)).unwrap().woke(now);
    place.run(10);
    let news = place.news_of();
    let back = |(name, _, news): &(String, Duration, News)| {
        name == "edge2" && *news == News::BackFromTheDead { lost: true }
    };
    assert!(news.iter().any(back), "{news:?}");
    place.run(500);
    assert_eq!(place.alive(1), ["edge2", "edge3"]);
    assert_eq!(place.alive(2), ["edge1", "edge3"]);
}

/// Its generation is the time of its start, which may go backwards.
#[test]
fn a_process_that_starts_with_an_older_clock_is_taken_in() {
    let mut place = Place::of(3);
    place.run(2_000);
    place.start(3, 0);
    place.run(1_500);
    assert_eq!(place.alive(1), ["edge2", "edge3"]);
    assert_eq!(place.alive(3), ["edge1", "edge2"]);
}

#[test]
fn one_that_does_not_know_where_it_is_joins_when_it_does() {
    let mut place = Place::of(2);
    place.run(500);
    let nowhere = Identity {
        name: "edge3".to_owned(),
        at: ([0, 0, 0, 0], 7956).into(),
        generation: 5,
    };
    let member = Membership::new(place.now, nowhere, Vec::new(), 3);
    place.members.insert(at(3), member);
    place.run(1_000);
    assert_eq!(place.alive(1), ["edge2"]);
    let now = place.now;
    let member = place.members.get_mut(&at(3)).unwrap();
    assert!(member.is_nowhere());
    // It was heard of, and hears by whom.
    member.found_at(now, at(3));
    member.meet(at(2));
    place.run(500);
    assert_eq!(place.alive(1), ["edge2", "edge3"]);
    assert_eq!(place.alive(3), ["edge1", "edge2"]);
    // It is found once only.
    let member = place.members.get_mut(&at(3)).unwrap();
    member.found_at(now, at(9));
    assert_eq!(member.foca.identity().at, at(3));
}

/// It has met one of the others and not yet the next: that is no part that is larger than the next one's.
#[test]
fn a_process_with_an_older_clock_is_no_part_of_a_partition() {
    let mut place = Place::of(3);
    place.run(1_000);
    place.members.remove(&at(3));
    place.run(1_000);
    place.news_of();
    let now = place.now;
    let hello = Hello {
        from: Identity {
            name: "edge3".to_owned(),
            at: at(3),
            generation: 0,
        },
        to: Some("edge2".to_owned()),
        side: Side::of(["edge1", "edge3"], true),
        answer: Answer::Ask,
    };
    let bytes = postcard::to_allocvec(&hello).unwrap();
    let member = place.members.get_mut(&at(2)).unwrap();
    assert!(member.take(now, &[&[OF_HELLO][..], &bytes].concat()));
    assert_eq!(member.take_news(), []);
    assert_eq!(member.foca.identity().generation, 1);
}

/// What somebody else wrote down and sends to others, or later, changes nothing.
#[test]
fn a_death_counts_for_whom_it_is_told_and_for_the_present_generation_only() {
    let mut place = Place::of(3);
    place.run(1_000);
    place.news_of();
    let now = place.now;
    let hello = |to: Option<&str>, answer| {
        let hello = Hello {
            from: Identity {
                name: "edge2".to_owned(),
                at: at(2),
                generation: 1,
            },
            to: to.map(str::to_owned),
            side: Side::of(["edge2", "edge3", "edge4", "edge5"], true),
            answer,
        };
        [&[OF_HELLO][..], &postcard::to_allocvec(&hello).unwrap()].concat()
    };
    let member = place.members.get_mut(&at(1)).unwrap();
    let dead = |of| Answer::Dead { of, known: 9 };
    for (to, answer) in [
        (Some("edge3"), dead(1)),
        (Some("edge1"), dead(0)),
        (Some("edge1"), dead(2)),
        (None, Answer::Welcome),
    ] {
        assert!(member.take(now, &hello(to, answer)));
        assert_eq!(member.take_news(), []);
        assert_eq!(member.foca.identity().generation, 1);
    }
    assert!(member.take(now, &hello(Some("edge1"), dead(1))));
    let back = News::BackFromTheDead { lost: true };
    assert!(member.take_news().contains(&back));
    assert_eq!(member.foca.identity().generation, 10);
}

#[test]
fn a_second_member_of_the_same_name_is_told() {
    let mut place = Place::of(2);
    place.run(500);
    let twin = Identity {
        name: "edge1".to_owned(),
        at: at(9),
        generation: 5,
    };
    let peers = vec![at(1)];
    place
        .members
        .insert(at(9), Membership::new(place.now, twin, peers, 9));
    place.run(300);
    let same = News::SameName(at(9));
    assert!(place.news.iter().any(|(_, _, news)| *news == same));
}

impl Membership {
    /// What a hostile member sends to this one: greetings of members with names of all lengths, and the news that it is dead, under
    /// the highest generation.
    pub(crate) fn hostile(&self) -> Vec<Vec<u8>> {
        let own = self.foca.identity();
        let from = |name: String| Identity {
            name,
            at: at(99),
            generation: 1,
        };
        let hello = |name: String, answer| {
            let hello = Hello {
                from: from(name),
                to: Some(own.name.clone()),
                side: Side::of(["edge7", "edge8", "edge9"], true),
                answer,
            };
            [&[OF_HELLO][..], &postcard::to_allocvec(&hello).unwrap()].concat()
        };
        let lengths = [254, 600, 1000, 1300, 1370];
        let names = lengths.map(|length| hello("n".repeat(length), Answer::Ask));
        let dead = Answer::Dead {
            of: own.generation,
            known: u64::MAX,
        };
        let dead = hello("edge9".to_owned(), dead);
        names.into_iter().chain([dead]).collect()
    }
}

/// A message that does not fit into a datagram ended the probes for ever.
#[test]
fn a_member_that_cannot_be_probed_does_not_keep_the_others_from_it() {
    let mut place = Place::of(3);
    place.run(2_000);
    let now = place.now;
    let long = Identity {
        name: "n".repeat(1_350),
        at: at(99),
        generation: 1,
    };
    let first = place.members.get_mut(&at(1)).unwrap();
    let (update, foca) = ([Member::alive(long)], &mut first.foca);
    let added = foca.apply_many(update.into_iter(), false, &mut first.runtime);
    assert!(added.is_ok());
    first.drain(now);
    place.run(2_000);
    place.news_of();
    place.members.remove(&at(2));
    place.members.remove(&at(3));
    place.run(2_000);
    for dead in ["edge2", "edge3"] {
        let down = News::Down(dead.to_owned());
        assert!(
            place.news.iter().any(|(_, _, news)| *news == down),
            "{dead}"
        );
    }
}

#[test]
fn the_highest_generation_is_no_end_and_no_storm() {
    let mut place = Place::of(3);
    place.run(2_000);
    for _ in 0..4 {
        for last in 1..=3 {
            let now = place.now;
            let member = place.members.get_mut(&at(last)).unwrap();
            for content in member.hostile() {
                member.take(now, &content);
            }
        }
        place.run(500);
    }
    place.run(1_500);
    place.news_of();
    let mut datagrams = 0;
    for _ in 0..2_000 {
        place.run(1);
        datagrams += place.under_way.len();
    }
    assert!(datagrams < 3 * 2 * 150, "{datagrams} datagrams in 2 s");
    for last in 1..=3 {
        let alive = place.alive(last);
        let others = (1..=3).filter(|other| *other != last);
        for other in others.map(|other| format!("edge{other}")) {
            assert!(alive.contains(&other), "edge{last}: {alive:?}");
        }
    }
    let back =
        |(_, _, news): &(String, Duration, News)| matches!(news, News::BackFromTheDead { .. });
    assert!(!place.news.iter().any(back), "{:?}", place.news);
}

/// Each at an address of its own, where nobody is.
#[test]
fn members_without_number_are_refused_and_those_that_never_spoke_soon_forgotten() {
    let mut place = Place::of(1);
    place.run(100);
    let stranger = |number: u16| Identity {
        name: format!("stranger{number}"),
        at: ([10, 9, 0, 1], 1 + number).into(),
        generation: 1,
    };
    let now = place.now;
    let member = place.members.get_mut(&at(1)).unwrap();
    for number in 0..3_000 {
        let hello = Hello {
            from: stranger(number),
            to: None,
            side: Side::of(["edge7"], true),
            answer: Answer::Welcome,
        };
        let bytes = postcard::to_allocvec(&hello).unwrap();
        assert!(member.take(now, &[&[OF_HELLO][..], &bytes].concat()));
        member.take_sends();
    }
    let known = |member: &Membership| member.counts().0 + member.counts().1;
    assert_eq!(known(member), MOST_MEMBERS);
    // Nor by what one of them says of others.
    let header = Header {
        src: stranger(0),
        src_incarnation: 0,
        dst: member.foca.identity().clone(),
        message: Message::Gossip,
    };
    let gossip = |other: u16| {
        let header = postcard::to_allocvec(&header).unwrap();
        let update = postcard::to_allocvec(&Member::alive(stranger(other))).unwrap();
        [&[OF_FOCA][..], &header, &[0, 1], &update].concat()
    };
    assert!(member.take(now, &gossip(1)));
    assert!(!member.take(now, &gossip(5_000)));
    assert_eq!(known(member), MOST_MEMBERS);
    let mut most = 0;
    for _ in 0..20_000 {
        place.now += Duration::from_millis(10);
        member.tick(place.now);
        let hellos = member.take_sends().into_iter();
        most = most.max(hellos.filter(|(_, sent)| sent[0] == OF_HELLO).count());
    }
    assert!((64..70).contains(&most), "{most} greetings at once");
    assert_eq!(known(member), 0);
}

#[test]
fn one_that_died_may_still_have_addresses_and_one_that_left_has_none() {
    for leaves in [false, true] {
        let mut place = Place::of(2);
        place.run(1_000);
        let say = |place: &mut Place, standing| {
            let said = State::new("edge2".to_owned(), standing, 7, &[], vec![[2; 6]]);
            let now = place.now;
            place.members.get_mut(&at(2)).unwrap().say(now, said);
            place.run(300);
        };
        say(&mut place, Some(2));
        assert_eq!(place.members[&at(1)].died("edge2"), None);
        if leaves {
            say(&mut place, None);
            let now = place.now;
            place.members.get_mut(&at(2)).unwrap().leave(now);
            place.run(2);
        }
        let before = place.now;
        place.members.remove(&at(2));
        place.run(1_000);
        let first = &place.members[&at(1)];
        assert_eq!(first.with_mac([2; 6]), Some(("edge2".to_owned(), false)));
        match leaves {
            true => assert_eq!(first.died("edge2"), None),
            false => assert!(first.died("edge2").is_some_and(|died| died > before)),
        }
    }
}

#[test]
fn nothing_that_a_member_can_send_is_a_panic() {
    let mut place = Place::of(2);
    place.run(500);
    let now = place.now;
    let mut random = 7_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u8::try_from(random >> 56).unwrap()
    };
    let (_, content) = {
        let member = place.members.get_mut(&at(2)).unwrap();
        member.woke(now);
        member.take_sends().remove(0)
    };
    let member = place.members.get_mut(&at(1)).unwrap();
    for _ in 0..20_000 {
        let mut changed = content.clone();
        changed[0] = next() % 3;
        for _ in 0..=next() % 4 {
            let place = usize::from(next()) % changed.len();
            changed[place] = next();
        }
        changed.truncate(usize::from(next()) % (changed.len() + 1));
        member.take(now, &changed);
    }
    assert!(!member.take(now, &[]));
    assert!(!member.take(now, &[9, 9]));
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz/corpus/datagrams"
    );
    let mut seeds = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        oracle::check(&std::fs::read(seed.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 5, "only {seeds} seeds in {folder}");
}
