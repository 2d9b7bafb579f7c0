//! What changes of the objects that are read for pools and announcements, and the objects about announcing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::super::Key;
use super::super::reflector::Event;
use super::kinds::{Announcing, Namespace, PoolOf};
use super::there::Lack;
use crate::pools::Reservation;

/// An event of one of these kinds, or that the kind cannot be listed.
pub(super) enum Change {
    Ballast(Event<PoolOf<0>>),
    MetalLb(Event<PoolOf<1>>),
    Antrea(Event<PoolOf<2>>),
    Reservation(Event<Reservation>),
    Namespace(Event<Namespace>),
    /// The kind, by its number, and the change.
    Announcing(usize, Announced),
    Missing {
        kind: &'static str,
        lack: Lack,
        /// The event by which there are no objects; `None`: what was seen last stays.
        none: Option<Box<Self>>,
    },
}

/// A change of an object about announcing.
pub(super) enum Announced {
    Listed(BTreeSet<Key>),
    Changed(Key, Arc<Value>),
    Deleted(Key),
    /// It cannot be read: its last good form stays.
    Unreadable,
}

impl<const KIND: usize> From<Event<Announcing<KIND>>> for Change {
    fn from(event: Event<Announcing<KIND>>) -> Self {
        let change = match event {
            Event::Listed(_, all, _) => Announced::Listed(all),
            Event::Deleted(key, _) => Announced::Deleted(key),
            Event::Changed(object) => match object.content {
                Ok(Some(content)) => Announced::Changed(object.key, content.0),
                Ok(None) | Err(_) => Announced::Unreadable,
            },
        };
        Self::Announcing(KIND, change)
    }
}

/// The objects about announcing.
#[derive(Default)]
pub(super) struct AnnouncingStore {
    /// The kinds that were not listed yet.
    pub(super) awaited: BTreeSet<usize>,
    pub(super) objects: BTreeMap<(usize, Key), Arc<Value>>,
}

impl AnnouncingStore {
    /// Applies a change. Returns whether something differs.
    pub(super) fn apply(&mut self, kind: usize, change: Announced) -> bool {
        match change {
            Announced::Listed(all) => {
                let before = self.objects.len();
                let stays = |(of, key): &(usize, Key)| *of != kind || all.contains(key);
                self.objects.retain(|key, _| stays(key));
                self.awaited.remove(&kind) || self.objects.len() != before
            }
            Announced::Changed(key, object) => {
                let before = self.objects.insert((kind, key), Arc::clone(&object));
                before != Some(object)
            }
            Announced::Deleted(key) => self.objects.remove(&(kind, key)).is_some(),
            Announced::Unreadable => false,
        }
    }
}

macro_rules! changes {
    ($($kind:ty => $change:ident),+) => {
        $(impl From<Event<$kind>> for Change {
            fn from(event: Event<$kind>) -> Self {
                Self::$change(event)
            }
        })+
    };
}

changes!(PoolOf<0> => Ballast, PoolOf<1> => MetalLb, PoolOf<2> => Antrea, Reservation => Reservation, Namespace => Namespace);
