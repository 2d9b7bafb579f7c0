//! Responses whose body breaks the protocol, and how their clients learn that.

use crate::http2::site::table;
use crate::http2::strict;
use support::Ballast;
use support::raw::Raw;

#[test]
fn a_response_of_http1_that_is_broken_from_the_start_is_answered_for_with_502() {
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let endpoint = strict::Endpoint::answering(|_| broken.to_vec());
    let services: [(_, _, &[_]); 1] = [("s", "", &[endpoint.address])];
    let ballast = Ballast::serve(&table("", &services), 1);
    let mut client = Raw::to(ballast.address());
    for stream in [1, 3] {
        client.get(stream, "/");
        let response = client.message(stream);
        assert_eq!(response.status(), 502, "{response:?}");
        assert_eq!(response.reset, None, "{response:?}");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}
