//! Compressed tries: each finds all of its keys that a text begins with, in one walk over the text.
//!
//! A search does not hash the text, so a client cannot make it slow by texts whose hashes collide.

/// Several tries in shared vectors. Each is identified by its [`Root`].
#[derive(Debug)]
pub(super) struct Tries<T> {
    /// The nodes of all tries. The children of a node have consecutive indexes.
    nodes: Vec<Node>,
    /// For each node the byte that leads to it from its parent. The byte of a root is not used.
    first_bytes: Vec<u8>,
    labels: Vec<u8>,
    values: Vec<T>,
}

/// The root of one trie in [`Tries`]. The default is a trie without keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root(u32);

impl Default for Root {
    fn default() -> Self {
        Self(NONE)
    }
}

/// A node: the bytes behind its first byte (`label`), and the children that follow them. All numbers are indexes.
#[derive(Debug)]
struct Node {
    label: u32,
    label_end: u32,
    children: u32,
    children_end: u32,
    /// [`NONE`]: no key ends here.
    value: u32,
}

/// The index of nothing.
const NONE: u32 = u32::MAX;

impl<T> Default for Tries<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            first_bytes: Vec::new(),
            labels: Vec::new(),
            values: Vec::new(),
        }
    }
}

/// A node to be built: its keys, and the number of their bytes that its ancestors hold.
#[derive(Clone, Copy)]
struct Branch {
    begin: usize,
    end: usize,
    depth: usize,
}

impl<T> Tries<T> {
    /// Adds a trie of these keys, of which no two are equal.
    pub(super) fn add(&mut self, mut entries: Vec<(Vec<u8>, T)>) -> Root {
        if entries.is_empty() {
            return Root::default();
        }
        entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let (keys, values): (Vec<Vec<u8>>, Vec<T>) = entries.into_iter().unzip();
        let (root, first_value) = (self.nodes.len(), self.values.len());
        self.values.extend(values);
        self.first_bytes.push(0);
        let mut branches = vec![Branch {
            begin: 0,
            end: keys.len(),
            depth: 0,
        }];
        // The nodes are built in the order of the branches, so a branch has its node's index, counted from the root.
        let mut next = 0;
        while let Some(branch) = branches.get(next).copied() {
            self.build(branch, &keys, root, first_value, &mut branches);
            next += 1;
        }
        Root(small(root))
    }

    /// Builds a node, and appends the branches of its children.
    fn build(
        &mut self,
        branch: Branch,
        keys: &[Vec<u8>],
        root: usize,
        first_value: usize,
        branches: &mut Vec<Branch>,
    ) {
        let own = &keys[branch.begin..branch.end];
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            return;
        };
        // The keys are sorted: a prefix that the first and the last have in common is a prefix of all.
        let pairs = first.iter().zip(last).skip(branch.depth);
        let depth = branch.depth + pairs.take_while(|(one, other)| one == other).count();
        let label = self.labels.len();
        self.labels.extend_from_slice(&first[branch.depth..depth]);
        let ends_here = first.len() == depth;
        let children = root + branches.len();
        let mut begin = branch.begin + usize::from(ends_here);
        let below = &own[usize::from(ends_here)..];
        for group in below.chunk_by(|one, other| one.get(depth) == other.get(depth)) {
            let end = begin + group.len();
            let byte = group.first().and_then(|key| key.get(depth));
            self.first_bytes.extend(byte);
            branches.push(Branch {
                begin,
                end,
                depth: depth + 1,
            });
            begin = end;
        }
        self.nodes.push(Node {
            label: small(label),
            label_end: small(self.labels.len()),
            children: small(children),
            children_end: small(root + branches.len()),
            value: if ends_here {
                small(first_value + branch.begin)
            } else {
                NONE
            },
        });
    }

    /// Calls `found` with the length and the value of each key of this trie that the text begins with, shortest first.
    pub(super) fn prefixes<'t>(
        &'t self,
        root: Root,
        text: impl IntoIterator<Item = u8>,
        mut found: impl FnMut(usize, &'t T),
    ) {
        let mut text = text.into_iter();
        let mut length = 0;
        let mut here = self.nodes.get(index(root.0));
        while let Some(node) = here {
            let label = &self.labels[range(node.label, node.label_end)];
            if !label.iter().all(|byte| text.next() == Some(*byte)) {
                return;
            }
            length += label.len();
            if let Some(value) = self.values.get(index(node.value)) {
                found(length, value);
            }
            let Some(byte) = text.next() else {
                return;
            };
            length += 1;
            let children = range(node.children, node.children_end);
            let bytes = self.first_bytes.get(children.clone());
            here = bytes
                .and_then(|bytes| bytes.iter().position(|first| *first == byte))
                .and_then(|place| self.nodes.get(children.start + place));
        }
    }
}

/// An index in four bytes, or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Small(u32);

impl Small {
    pub(super) fn new(index: usize) -> Self {
        Self(small(index))
    }

    pub(super) fn get(self) -> Option<usize> {
        (self.0 != NONE).then_some(index(self.0))
    }

    pub(super) fn or(self, other: Self) -> Self {
        match self.0 {
            NONE => other,
            _ => self,
        }
    }
}

impl Default for Small {
    fn default() -> Self {
        Self(NONE)
    }
}

/// No table is so large that an index does not fit; [`crate::table::LARGEST`] is far below.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

fn index(small: u32) -> usize {
    usize::try_from(small).unwrap_or(usize::MAX)
}

fn range(from: u32, to: u32) -> std::ops::Range<usize> {
    index(from)..index(to)
}
