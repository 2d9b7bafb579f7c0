//! Directed graphs and their strongly connected components.

/// A directed graph. Its nodes are numbers from 0.
#[derive(Debug)]
pub(super) struct Graph {
    /// For each node, where its successors begin in `to`; one more entry than there are nodes.
    begins: Vec<usize>,
    to: Vec<usize>,
}

impl Graph {
    /// Creates a graph with this number of nodes, and these edges.
    pub(super) fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let mut edges = edges.to_vec();
        edges.sort_unstable();
        edges.dedup();
        let begin = |node| edges.partition_point(|(from, _)| *from < node);
        Self {
            begins: (0..=nodes).map(begin).collect(),
            to: edges.iter().map(|(_, to)| *to).collect(),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.begins.len() - 1
    }

    pub(super) fn successors(&self, node: usize) -> &[usize] {
        let begin = self.begins.get(node).copied().unwrap_or(0);
        let end = self.begins.get(node + 1).copied().unwrap_or(begin);
        self.to.get(begin..end).unwrap_or_default()
    }

    /// A shortest path from one node to another, both included.
    pub(super) fn shortest_path(&self, from: usize, to: usize) -> Vec<usize> {
        let mut before = vec![UNSEEN; self.nodes()];
        let mut reached = vec![from];
        let mut next = 0;
        while let Some(node) = reached.get(next).copied() {
            next += 1;
            if node == to {
                break;
            }
            for successor in self.successors(node) {
                if *successor != from && before[*successor] == UNSEEN {
                    before[*successor] = node;
                    reached.push(*successor);
                }
            }
        }
        let step = |node: &usize| {
            before
                .get(*node)
                .copied()
                .filter(|before| *before != UNSEEN)
        };
        let mut way: Vec<usize> = std::iter::successors(Some(to), step).collect();
        way.reverse();
        way
    }
}

/// The strongly connected component of each node: two nodes are in the same one if each can be reached from the other.
///
/// Tarjan's algorithm, with an explicit stack instead of recursion.
pub(super) fn components(graph: &Graph) -> Vec<usize> {
    let mut search = Search {
        order: vec![UNSEEN; graph.nodes()],
        lowest: vec![UNSEEN; graph.nodes()],
        component: vec![UNSEEN; graph.nodes()],
        open: Vec::new(),
        seen: 0,
        found: 0,
    };
    // A node, and the number of its successors that were visited.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..graph.nodes() {
        if search.order[root] != UNSEEN {
            continue;
        }
        search.enter(root);
        path.push((root, 0));
        while let Some((node, looked_at)) = path.last_mut() {
            let node = *node;
            let Some(successor) = graph.successors(node).get(*looked_at).copied() else {
                path.pop();
                search.leave(node);
                if let Some((parent, _)) = path.last() {
                    search.lower(*parent, search.lowest[node]);
                }
                continue;
            };
            *looked_at += 1;
            if search.order[successor] == UNSEEN {
                search.enter(successor);
                path.push((successor, 0));
            } else if search.component[successor] == UNSEEN {
                search.lower(node, search.order[successor]);
            }
        }
    }
    search.component
}

/// The state of the search, for each node.
struct Search {
    /// The order of the first visit.
    order: Vec<usize>,
    /// The earliest node of an incomplete component that it leads to.
    lowest: Vec<usize>,
    component: Vec<usize>,
    /// Visited nodes that are in no component yet.
    open: Vec<usize>,
    seen: usize,
    found: usize,
}

impl Search {
    fn enter(&mut self, node: usize) {
        self.order[node] = self.seen;
        self.lowest[node] = self.seen;
        self.seen += 1;
        self.open.push(node);
    }

    fn lower(&mut self, node: usize, to: usize) {
        self.lowest[node] = self.lowest[node].min(to);
    }

    /// Called when all successors of `node` were visited. If it is the first node of its component, the component is complete.
    fn leave(&mut self, node: usize) {
        if self.lowest[node] != self.order[node] {
            return;
        }
        while let Some(member) = self.open.pop() {
            self.component[member] = self.found;
            if member == node {
                break;
            }
        }
        self.found += 1;
    }
}

const UNSEEN: usize = usize::MAX;
