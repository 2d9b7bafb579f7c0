//! Lists of small numbers, threaded through one vector: to put one in, take it out or move it costs the same however
//! many there are.
//!
//! [`Deadlines`](crate::deadlines::Deadlines) keep one list for each of their slots, and the flow table one of flows by the time of
//! their last datagram.

/// Several doubly linked lists over the same numbers. Each number is in one of them at most.
#[derive(Debug)]
pub(crate) struct Chains {
    ends: Vec<Ends>,
    links: Vec<Link>,
}

impl Chains {
    /// So many empty lists.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            ends: vec![Ends::EMPTY; count],
            links: Vec::new(),
        }
    }

    /// Has at least so many lists from now on; new ones are empty.
    pub(crate) fn have(&mut self, count: usize) {
        if self.ends.len() < count {
            self.ends.resize(count, Ends::EMPTY);
        }
    }

    /// Puts `item`, which is in no list, at the end of `chain`.
    pub(crate) fn push(&mut self, chain: usize, item: u32) {
        let Some(ends) = self.ends.get_mut(chain) else {
            return;
        };
        let before = std::mem::replace(&mut ends.last, item);
        if before == NOBODY {
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
                chain: u32::try_from(chain).unwrap_or(NOBODY),
                before,
                after: NOBODY,
            };
        }
    }

    /// Takes `item` out of the list that it is in.
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

    /// The first of a list.
    pub(crate) fn first(&self, chain: usize) -> Option<u32> {
        let first = self.ends.get(chain)?.first;
        (first != NOBODY).then_some(first)
    }

    /// The list that `item` is in.
    pub(crate) fn chain_of(&self, item: u32) -> Option<usize> {
        let chain = self.links.get(item as usize)?.chain;
        (chain != NOBODY).then_some(chain as usize)
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        first: NOBODY,
        last: NOBODY,
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
        chain: NOBODY,
        before: NOBODY,
        after: NOBODY,
    };
}

const NOBODY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn lists_do_as_plain_lists_do() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let mut chains = Chains::new(1);
            chains.have(3);
            chains.have(2);
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
