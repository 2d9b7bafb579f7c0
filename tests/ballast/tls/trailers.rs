//! Nobody says in a trailer whose certificate it is.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::http2::strict::{Endpoint, ok};
use crate::tls::client::{Tls, config, showing};
use support::Ballast;
use support::papers::Papers;

#[test]
fn a_clients_name_is_believed_in_no_trailer() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("guest", &[]);
    for (auth, name) in [("", "X-SSL-Client-DN"), (", header: X-Who", "X-Who")] {
        let endpoint = Endpoint::answering(|_| ok("served"));
        let table = format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: https, default: {{service: s}}, tls: {{certificates: [{}], client-auth: {{ca: {}, mode: optional{auth}}}}}}}]\nservices: [{{name: s, endpoints: [{{address: \"{}\"}}]}}]\n",
            papers.entry("shop"),
            papers.named("ca.pem"),
            endpoint.address
        );
        let ballast = Ballast::serve(&table, 1);
        for config in [config(&papers), showing(&papers, &papers, "guest")] {
            let mut tls = Tls::connect(ballast.address(), &Arc::new(config), "shop.test").unwrap();
            write!(
                tls.0,
                "POST / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{name}: CN=admin\r\nX-Checksum: 7\r\n\r\n"
            )
            .unwrap();
            tls.0.flush().unwrap();
            let mut response = String::new();
            tls.0.read_to_string(&mut response).unwrap();
            assert!(response.ends_with("\r\n\r\nserved"), "{response}");
            let request = endpoint.heard().pop().unwrap();
            assert_eq!(request.body, b"hello");
            let expected = ("X-Checksum".to_owned(), "7".to_owned());
            assert_eq!(request.trailers.unwrap(), [expected], "{name}");
        }
    }
}
