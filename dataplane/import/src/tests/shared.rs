//! Backends that several frontends use, and what these edit in the heads of requests and answers.

use ballast_core::table::{HeaderEdits, RoutingTable};

use super::import;
use super::lines::{remarks, table};

/// Frontends h (port 80) and s (port 81) in mode http with these lines, both of which lead to backend one.
fn shared(http: &str, https: &str, backend: &str) -> String {
    format!(
        "defaults\n mode http\nfrontend h\n bind 127.0.0.1:80\n {http}\n default_backend one\nfrontend s\n bind 127.0.0.1:81\n {https}\n default_backend one\nbackend one\n server e 10.0.0.1:80\n{backend}"
    )
}

/// The edits of requests of a frontend's default route, as a table writes them.
fn of_route(table: &RoutingTable, at: usize) -> String {
    let route = table.frontends[at].default.as_deref().expect("a default");
    shown(route.request_headers.as_deref())
}

fn of_service(table: &RoutingTable) -> String {
    let http = table.services[0].http.as_deref();
    shown(http.map(|http| &http.request_headers))
}

fn shown(edits: Option<&HeaderEdits>) -> String {
    let Some(edits) = edits else {
        return String::new();
    };
    let pairs = |sign: char, all: &[(_, _)]| -> String {
        let each = all.iter();
        let each = each.map(
            |(name, value): &(ballast_core::table::Token, ballast_core::table::Value)| {
                format!("{sign}{name}={value} ")
            },
        );
        each.collect()
    };
    let removed = edits.remove.iter().map(|name| format!("-{name} "));
    let removed: String = removed.collect();
    format!(
        "{}{}{removed}",
        pairs('=', &edits.set),
        pairs('+', &edits.add)
    )
}

#[test]
fn frontends_that_edit_alike_have_it_done_by_the_service() {
    let lines = "http-request del-header X-Auth-User\n http-request set-header X-From edge";
    let made = table(&shared(lines, lines, ""));
    assert_eq!(of_service(&made), "=X-From=edge -X-Auth-User ");
    assert_eq!((of_route(&made, 0), of_route(&made, 1)), Default::default());
}

#[test]
fn frontends_that_edit_otherwise_do_it_by_their_routes() {
    let cn = "http-request set-header X-SSL-Client-CN";
    let text = shared(
        "http-request del-header X-SSL-Client-CN",
        &format!("{cn} fixed\n http-response set-header X-A a"),
        " http-request set-header X-B b\n",
    );
    let made = table(&text);
    assert_eq!(of_service(&made), "=X-B=b ");
    assert_eq!(of_route(&made, 0), "-X-SSL-Client-CN ");
    assert_eq!(of_route(&made, 1), "=X-SSL-Client-CN=fixed ");
    let route = made.frontends[1].default.as_deref().expect("a default");
    assert_eq!(shown(route.response_headers.as_deref()), "=X-A=a ");
    // What cannot be computed is taken out in any case, as the remark says.
    for other in ["", "http-request set-header X-SSL-Client-CN none"] {
        let text = shared(other, &format!("{cn} %{{+Q}}[ssl_c_s_dn(cn)]"), "");
        let imported = import(&text);
        let told = remarks(&text).concat();
        assert!(told.contains("so that the field is taken out"), "{told}");
        assert!(!told.contains("other frontends"), "{told}");
        let all = imported.table.matches("remove: [X-SSL-Client-CN]").count();
        assert_eq!(all, 1, "{}", imported.table);
    }
}

#[test]
fn every_route_to_a_shared_service_edits() {
    let text = shared(
        "http-request set-header X-A a\n use_backend one if { hdr(host) -i a.test }\n use_backend one if { path_beg /x }",
        "",
        "",
    );
    let made = table(&text);
    let routes = made.frontends[0].all_routes();
    for route in routes.filter(|route| route.service.is_some()) {
        assert_eq!(shown(route.request_headers.as_deref()), "=X-A=a ");
    }
    assert_eq!(of_route(&made, 1), "");
}

#[test]
fn a_frontend_that_leads_nowhere_decides_nothing() {
    let text = shared(
        "http-request redirect scheme https code 301\n http-request set-header X-A a",
        "http-request set-header X-B b",
        "",
    );
    let made = import(&text).table;
    assert!(made.contains("request-headers: {set: {X-B: b}}"), "{made}");
    assert!(!made.contains("X-A"), "{made}");
}

#[test]
fn each_frontend_has_its_own_x_forwarded() {
    let from = "http-request set-header X-Forwarded-For %[src]\n http-request set-header X-Forwarded-Proto";
    let dropped =
        "http-request del-header X-Forwarded-For\n http-request del-header X-Forwarded-Proto";
    let text = shared(&format!("{from} https"), dropped, "");
    let made = table(&text);
    assert_eq!(of_service(&made), "");
    assert_eq!(of_route(&made, 0), "=X-Forwarded-Proto=https ");
    assert_eq!(of_route(&made, 1), "-X-Forwarded-For -X-Forwarded-Proto ");
    let kinds = made.frontends.iter().map(|one| one.http().x_forwarded);
    let kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
    assert_eq!(kinds, ["ReplaceFor", "Off"]);
    // The backend takes the field out, and one frontend adds the client's address behind that.
    let text = shared(
        "option forwardfor",
        "",
        " http-request del-header X-Forwarded-For\n",
    );
    let made = table(&text);
    assert_eq!(of_service(&made), "");
    assert_eq!(of_route(&made, 0), "");
    assert_eq!(of_route(&made, 1), "-X-Forwarded-For ");
}
