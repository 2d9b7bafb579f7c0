//! Doubly linked lists of small numbers, stored in one vector. Inserting, removing and moving a number takes constant time.
//!
//! [`Deadlines`](crate::deadlines::Deadlines) have one list for each slot of the timer wheel; the flow table has lists of flows
//! ordered by their last datagram.

/// Several linked lists over the same numbers. Each number is in at most one of them.
#[derive(Debug)]
pub(crate) struct Chains {
    ends: Vec<Ends>,
    links: Vec<Link>,
}

impl Chains {
    /// Creates `count` empty lists.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            ends: vec![Ends::EMPTY; count],
            links: Vec::new(),
        }
    }

    /// Adds empty lists until there are at least `count`.
    pub(crate) fn ensure(&mut self, count: usize) {
        if self.ends.len() < count {
            self.ends.resize(count, Ends::EMPTY);
        }
    }

    /// Appends `item`, which is in no list, to `chain`.
    pub(crate) fn push(&mut self, chain: usize, item: u32) {
        let Some(ends) = self.ends.get_mut(chain) else {
            return;
        };
        let before = std::mem::replace(&mut ends.last, item);
        if before == NONE {
            ends.first = item;
        } else if let Some(link) = self.links.get_mut(before as usize) {
            link.after = item;
        }
        let place = item as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, Link::ALONE);
        }
        if let Some(link) = self.links.get_mut(place) {
            *link = Link {
                chain: u32::try_from(chain).unwrap_or(NONE),
                before,
                after: NONE,
            };
        }
    }

    /// Removes `item` from its list.
    pub(crate) fn remove(&mut self, item: u32) {
        let Some(link) = self.links.get_mut(item as usize) else {
            return;
        };
        let Link {
            chain,
            before,
            after,
        } = std::mem::replace(link, Link::ALONE);
        let Some(ends) = self.ends.get_mut(chain as usize) else {
            return;
        };
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => ends.first = after,
        }
        match self.links.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => ends.last = before,
        }
    }

    /// The first item of a list.
    pub(crate) fn first(&self, chain: usize) -> Option<u32> {
        let first = self.ends.get(chain)?.first;
        (first != NONE).then_some(first)
    }

    /// The list that contains `item`.
    pub(crate) fn chain_of(&self, item: u32) -> Option<usize> {
        let chain = self.links.get(item as usize)?.chain;
        (chain != NONE).then_some(chain as usize)
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

#[derive(Clone, Copy, Debug)]
struct Link {
    chain: u32,
    before: u32,
    after: u32,
}

impl Link {
    const ALONE: Self = Self {
        chain: NONE,
        before: NONE,
        after: NONE,
    };
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn lists_do_as_plain_lists_do() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let mut chains = Chains::new(1);
            chains.ensure(3);
            chains.ensure(2);
            let mut plain: [Vec<u32>; 3] = Default::default();
            for _ in 0..500 {
                let item = u32::try_from(rng.below(20)).unwrap();
                chains.remove(item);
                plain
                    .iter_mut()
                    .for_each(|list| list.retain(|other| *other != item));
                if rng.below(3) > 0 {
                    let chain = usize::try_from(rng.below(3)).unwrap();
                    chains.push(chain, item);
                    plain[chain].push(item);
                }
                for (chain, list) in plain.iter().enumerate() {
                    assert_eq!(chains.first(chain), list.first().copied(), "seed {seed}");
                }
                let chain = plain.iter().position(|list| list.contains(&item));
                assert_eq!(chains.chain_of(item), chain, "seed {seed}");
            }
        }
    }
}
