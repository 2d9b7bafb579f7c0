//! A node that is no load balancer any more serves on for the time of `--shutdown-delay`, as a process does that was told to end:
//! clients still come to its addresses until they know that these have left the Services' statuses. Pure: the time is an argument.
//! Used by [`crate::reconcile`].
//!
//! For that time decisions see the Node as it was, so that what changes meanwhile, such as endpoints, is still followed. The node's
//! Lease is given back at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::decide::is_load_balancer;
use crate::observe::Observed;
use crate::settings::Settings;

/// The time since which this node is no load balancer, while it serves on.
#[derive(Debug, Default)]
pub(crate) struct Leaving(Option<Instant>);

impl Leaving {
    /// What the next decision has to see, and the time until this node stops serving, where it is no load balancer any more.
    /// `before` is what the last decision saw.
    pub(crate) fn hold(
        &mut self,
        observed: Arc<Observed>,
        before: Option<&Observed>,
        settings: &Settings,
        now: Instant,
    ) -> (Arc<Observed>, Option<Duration>) {
        let name = settings.flags.node_name.as_ref();
        let node = name.and_then(|name| before?.nodes.get_key_value(name));
        let (Some(before), Some((name, node))) = (before, node) else {
            return (observed, None);
        };
        let is_leaving =
            !is_load_balancer(&observed, settings) && is_load_balancer(before, settings);
        if !is_leaving {
            self.0 = None;
            return (observed, None);
        }
        let since = *self.0.get_or_insert(now);
        let rest = (since + settings.shutdown_delay).saturating_duration_since(now);
        if rest.is_zero() {
            return (observed, None);
        }
        let mut observed = Observed::clone(&observed);
        observed.nodes.insert(name.clone(), node.clone());
        (Arc::new(observed), Some(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node, with other Nodes or without, that makes decisions.
    struct Case {
        begin: Instant,
        settings: Settings,
        leaving: Leaving,
        /// What the last decision saw.
        before: Option<Arc<Observed>>,
    }

    impl Case {
        fn new() -> Self {
            let mut settings = Settings::without_flags();
            settings.flags.node_name = Some("edge".to_owned());
            settings.shutdown_delay = Duration::from_secs(5);
            Self {
                begin: Instant::now(),
                settings,
                leaving: Leaving::default(),
                before: None,
            }
        }

        /// Decides; returns whether this node serves, and the rest of its time if it leaves.
        fn decide(&mut self, millis: u64, seen: &Observed) -> (bool, Option<u128>) {
            let (seen, rest) = self.leaving.hold(
                Arc::new(seen.clone()),
                self.before.as_deref(),
                &self.settings,
                self.begin + Duration::from_millis(millis),
            );
            let serves = is_load_balancer(&seen, &self.settings);
            self.before = Some(seen);
            (serves, rest.map(|rest| rest.as_millis()))
        }
    }

    /// This node, with these labels, and a Service with this port.
    fn seen(labels: &str, port: u16) -> Observed {
        let mut observed = Observed::default();
        let manifests = format!(
            "kind: Node\nmetadata: {{name: edge, labels: {{{labels}}}}}\n---\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
        );
        assert_eq!(observed.take_file("a.yaml", &manifests), []);
        observed
    }

    const MEMBER: &str = "role: loadbalancer";
    const EXCLUDED: &str =
        "role: loadbalancer, node.kubernetes.io/exclude-from-external-load-balancers: \"\"";

    #[test]
    fn a_node_that_loses_its_label_serves_for_the_shutdown_delay() {
        for without in ["", EXCLUDED] {
            let mut case = Case::new();
            assert_eq!(case.decide(0, &seen(MEMBER, 80)), (true, None));
            assert_eq!(case.decide(1_000, &seen(without, 80)), (true, Some(5_000)));
            assert_eq!(case.decide(3_000, &seen(without, 81)), (true, Some(3_000)));
            let services = &case.before.as_ref().unwrap().services;
            let port = services.values().next().unwrap().ports[0].number;
            assert_eq!(port, 81, "what changes meanwhile is followed");
            assert_eq!(case.decide(5_999, &seen(without, 81)), (true, Some(1)));
            assert_eq!(case.decide(6_000, &seen(without, 81)), (false, None));
            assert_eq!(case.decide(6_001, &seen(without, 81)), (false, None));
        }
    }

    #[test]
    fn a_node_that_is_deleted_serves_for_the_shutdown_delay() {
        let mut case = Case::new();
        case.decide(0, &seen(MEMBER, 80));
        let mut gone = seen(MEMBER, 80);
        gone.nodes.clear();
        assert_eq!(case.decide(1_000, &gone), (true, Some(5_000)));
        assert_eq!(case.decide(6_000, &gone), (false, None));
    }

    #[test]
    fn a_label_that_returns_in_time_changes_nothing_and_the_next_time_is_a_whole_one() {
        let mut case = Case::new();
        case.decide(0, &seen(MEMBER, 80));
        assert_eq!(case.decide(1_000, &seen("", 80)), (true, Some(5_000)));
        assert_eq!(case.decide(4_000, &seen(MEMBER, 80)), (true, None));
        assert_eq!(case.decide(9_000, &seen("", 80)), (true, Some(5_000)));
        assert_eq!(case.decide(14_000, &seen("", 80)), (false, None));
        assert_eq!(case.decide(20_000, &seen(MEMBER, 80)), (true, None));
        assert_eq!(case.decide(21_000, &seen("", 80)), (true, Some(5_000)));
    }

    #[test]
    fn a_node_that_was_no_load_balancer_and_one_without_a_delay_stop_at_once() {
        let mut case = Case::new();
        assert_eq!(case.decide(0, &seen("", 80)), (false, None));
        assert_eq!(case.decide(1, &seen("other: label", 80)), (false, None));
        let mut case = Case::new();
        case.settings.shutdown_delay = Duration::ZERO;
        case.decide(0, &seen(MEMBER, 80));
        assert_eq!(case.decide(1, &seen("", 80)), (false, None));
    }
}
