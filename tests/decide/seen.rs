//! What no manifest can say: Secrets that may not be read, names that were resolved.

use ballast_controller::decide::{Desired, Reason, Verdict, decide};
use ballast_controller::observe::{Key, Observed, Secret};

use super::settings;

#[test]
fn a_secret_that_may_not_be_read_closes_the_port_and_says_what_allows_it() {
    let mut observed = observed(
        "kind: Service
metadata: {name: web, namespace: shop, annotations: {ballast.dev/tls-secret: certs/cert}}
spec: {type: LoadBalancer, ports: [{port: 443}]}
",
    );
    observed
        .secrets
        .insert(Key::new("certs", "cert"), Secret::Forbidden);
    let desired = decided(&observed, &["--own-namespace=edge"]);
    assert_eq!(desired.statuses[0].verdict, Verdict::Pending);
    let notice = desired.notices.iter().next().expect("a notice");
    assert_eq!(notice.reason, Reason::SecretUnreadable);
    let line = "kubectl create rolebinding ballast-tls --namespace=certs --clusterrole=ballast-tls --serviceaccount=edge:ballast";
    assert!(notice.message.ends_with(line), "{}", notice.message);
    assert!(desired.files.is_empty());
}

#[test]
fn an_external_name_leads_to_what_it_resolved_to() {
    let mut observed = observed(
        "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306, targetPort: 3307}]}
",
    );
    let addresses = ["192.0.2.9", "192.0.2.8", "2001:db8::1"];
    let addresses = addresses
        .map(|text| text.parse().expect("an address"))
        .to_vec();
    observed
        .resolved
        .insert("db.example.com".to_owned(), addresses);
    let desired = decided(&observed, &["--tcp-services=db:3306"]);
    let table = desired.table.expect("a table");
    let endpoints: Vec<String> = table.services[0]
        .endpoints
        .iter()
        .map(|endpoint| endpoint.address.to_string())
        .collect();
    assert_eq!(endpoints, ["192.0.2.8:3307", "192.0.2.9:3307"]);
}

#[test]
fn the_last_good_value_outlives_several_looks() {
    let text = |value: &str| {
        format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/algorithm: {value}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"
        )
    };
    let mut remembered = decided(&observed(&text("random")), &[]).remembered;
    for _ in 0..3 {
        let mut bad = observed(&text("best"));
        bad.remembered = remembered;
        let desired = decided(&bad, &[]);
        let table = desired.table.expect("a table");
        assert_eq!(table.services[0].algorithm.word(), "random");
        remembered = desired.remembered;
    }
}

fn decided(observed: &Observed, arguments: &[&str]) -> Desired {
    let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    decide(observed, &settings(&arguments).expect("settings"))
}

fn observed(text: &str) -> Observed {
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("x.yaml", text), []);
    observed
}
