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
        &self.to[self.begins[node]..self.begins[node + 1]]
    }

    /// The same nodes, with every edge turned around.
    fn reversed(&self) -> Self {
        let nodes = 0..self.nodes();
        let turned = |from| self.successors(from).iter().map(move |to| (*to, from));
        let edges: Vec<(usize, usize)> = nodes.flat_map(turned).collect();
        Self::new(self.nodes(), &edges)
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
/// Kosaraju's algorithm, with explicit stacks instead of recursion: a depth-first search along the edges, then one against them
/// that begins at the nodes in the reverse of the order in which the first one left them.
pub(super) fn components(graph: &Graph) -> Vec<usize> {
    let mut is_seen = vec![false; graph.nodes()];
    let mut left = Vec::with_capacity(graph.nodes());
    // A node, and the number of its successors that were visited.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..graph.nodes() {
        if !std::mem::replace(&mut is_seen[root], true) {
            path.push((root, 0));
        }
        while let Some((node, visited)) = path.last_mut() {
            if let Some(successor) = graph.successors(*node).get(*visited) {
                *visited += 1;
                if !std::mem::replace(&mut is_seen[*successor], true) {
                    path.push((*successor, 0));
                }
            } else {
                left.push(*node);
                path.pop();
            }
        }
    }
    let reversed = graph.reversed();
    let mut component = vec![UNSEEN; graph.nodes()];
    let mut reached = Vec::new();
    for root in left.into_iter().rev() {
        reached.push(root);
        while let Some(node) = reached.pop() {
            if component[node] == UNSEEN {
                component[node] = root;
                reached.extend(reversed.successors(node));
            }
        }
    }
    component
}

const UNSEEN: usize = usize::MAX;
