//! Connections to endpoints, found by their owner and their endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;

/// The client connection to which the connections of a service that does not share them belong: its slot among the worker's
/// connections, and when it began. `None`: they are shared by all clients.
pub(crate) type Owner = Option<(usize, Moment)>;

/// Lists of connections. Ordered, so that those of one owner are found without a look at all others.
#[derive(Debug)]
pub(super) struct ByOwner<T>(BTreeMap<(Owner, usize), Vec<T>>);

// The derive would ask for a default of `T`.
impl<T> Default for ByOwner<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// All methods that remove connections return them, so that the caller can end its borrow before it drops them: closing a
/// connection may wake the connection's task.
impl<T> ByOwner<T> {
    /// The connections of this owner to this endpoint, in the order in which they were pushed.
    pub(super) fn get_mut(
        &mut self,
        owner: Owner,
        endpoint: &Arc<EndpointState>,
    ) -> Option<&mut Vec<T>> {
        self.0.get_mut(&(owner, identity(endpoint)))
    }

    pub(super) fn push(&mut self, owner: Owner, endpoint: &Arc<EndpointState>, connection: T) {
        let list = self.0.entry((owner, identity(endpoint))).or_default();
        list.push(connection);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the connections of this owner.
    pub(super) fn remove_owned(&mut self, owner: Owner) -> Vec<T> {
        let keys = self.0.range((owner, usize::MIN)..=(owner, usize::MAX));
        let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
        let lists = keys.iter().filter_map(|key| self.0.remove(key));
        lists.flatten().collect()
    }

    /// Removes the connections to these endpoints.
    pub(super) fn remove_of(&mut self, endpoints: &[Arc<EndpointState>]) -> Vec<T> {
        let endpoints: Vec<_> = endpoints.iter().map(identity).collect();
        self.remove_where(|(_, endpoint), _| endpoints.contains(endpoint))
    }

    /// Removes the connections for which `is_gone` is true, and the lists that are empty.
    pub(super) fn remove_if(&mut self, mut is_gone: impl FnMut(&mut T) -> bool) -> Vec<T> {
        self.remove_where(|_, connection| is_gone(connection))
    }

    fn remove_where(&mut self, mut is_gone: impl FnMut(&(Owner, usize), &mut T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        self.0.retain(|key, list| {
            gone.extend(list.extract_if(.., |connection| is_gone(key, connection)));
            !list.is_empty()
        });
        gone
    }
}

/// Tells endpoints apart as long as their state is held.
pub(super) fn identity(endpoint: &Arc<EndpointState>) -> usize {
    Arc::as_ptr(endpoint).addr()
}
