//! The built-in pages: the texts for each status, and the template of each form.

use super::Form;

/// A built-in page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    pub(super) form: Form,
}

impl Page {
    /// Gives the text of the page to `add`, piece by piece.
    pub(super) fn write(self, mut add: impl FnMut(&str)) {
        let (text, hint) = explanation(self.status);
        let template = match self.form {
            Form::Html => HTML,
            Form::Json => JSON,
            Form::Text if text.is_empty() => SHORT_TEXT,
            Form::Text => TEXT,
        };
        let digits = digits(self.status);
        let word = |name| match name {
            "status" => str::from_utf8(&digits).ok(),
            "reason" => Some(reason(self.status)),
            "text" => Some(text),
            "hint" => Some(hint),
            _ => None,
        };
        // A brace begins a placeholder, such as `{status}`, or belongs to the JSON or the style sheet of the page.
        for (index, part) in template.split('{').enumerate() {
            let named = part.split_once('}');
            match named.and_then(|(name, rest)| Some((word(name)?, rest))) {
                Some((word, rest)) if index > 0 => {
                    add(word);
                    add(rest);
                }
                _ => {
                    add(if index > 0 { "{" } else { "" });
                    add(part);
                }
            }
        }
    }
}

fn digits(status: u16) -> [u8; 3] {
    let digit = |number: u16| b'0' + u8::try_from(number % 10).unwrap_or_default();
    [status / 100, status / 10, status].map(digit)
}

/// The texts of the page for this status: a sentence for visitors of the site, and one for its operator.
fn explanation(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => (
            "The server could not understand this request.",
            "For the operator: the request was not valid HTTP, or its end could not be told for certain. No endpoint has seen it.",
        ),
        401 => (
            "This page is for people who are signed in.",
            "For the operator: a route of the load balancer answers this status.",
        ),
        403 => (
            "This page may not be used from your address.",
            "For the operator: the source-ranges of the frontend or of the route do not hold the client's address.",
        ),
        404 => (
            "There is nothing at this address. Please check it for typing errors.",
            "For the operator: no route of the load balancer matches this host and path.",
        ),
        405 => (
            "This method cannot be used here.",
            "For the operator: the load balancer does not serve this method.",
        ),
        408 => (
            "The request did not arrive in time. Please try again.",
            "For the operator: timeouts.request says how long a client may take to send the head of a request, and timeouts.client how long its body may stand still.",
        ),
        410 => (
            "This page is gone, and has no new address.",
            "For the operator: a route of the load balancer answers this status.",
        ),
        413 => (
            "What you sent is too large for this site.",
            "For the operator: the body of the request was longer than it may be.",
        ),
        414 => (
            "This address is too long. Please try a shorter one.",
            "For the operator: http.max-header-bytes says how long the head of a request may be.",
        ),
        417 => (
            "The server cannot do what the request expects of it.",
            "For the operator: the Expect field of the request held something other than 100-continue.",
        ),
        421 => (
            "This connection was made for another site. Please load the page again.",
            "For the operator: the host of the request is not one that this connection may be used for.",
        ),
        426 => (
            "This address needs another protocol.",
            "For the operator: the request did not ask for an upgrade.",
        ),
        429 => (
            "There were too many requests from your address. Please wait a moment and try again.",
            "For the operator: the client is above a limit of the frontend.",
        ),
        431 => (
            "Your browser sent more with this request than the site takes. Deleting the cookies of this site often helps.",
            "For the operator: http.max-header-bytes and http.max-headers say how large the head of a request may be.",
        ),
        500 => (
            "Something went wrong on our side. Please try again later.",
            "For the operator: the load balancer failed at this request. Its log says more.",
        ),
        501 => (
            "The server does not support what this request needs.",
            "For the operator: the request had a transfer coding or a method that the load balancer does not serve.",
        ),
        502 => (
            "The site cannot be reached at the moment. Please try again in a minute.",
            "For the operator: no endpoint could be connected to, or one closed the connection or answered something other than HTTP.",
        ),
        503 => (
            "The site is not available at the moment. Please try again in a minute.",
            "For the operator: the service has no endpoint that takes requests now. The load balancer's page shows which ones are down or full.",
        ),
        504 => (
            "The site took too long to answer. Please try again in a minute.",
            "For the operator: the endpoint did not answer within timeouts.server of its service, or not within the timeout of the route.",
        ),
        505 => (
            "The server does not speak this version of HTTP.",
            "For the operator: the load balancer speaks HTTP/1.0, HTTP/1.1 and HTTP/2.",
        ),
        status if status / 100 == 4 => ("The server does not serve this request.", OF_A_ROUTE),
        status if status / 100 == 5 => (
            "The site cannot serve this request at the moment. Please try again later.",
            OF_A_ROUTE,
        ),
        _ => ("", ""),
    }
}

/// The usual reason phrase of a status; empty for a status without one.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "",
    }
}

const OF_A_ROUTE: &str = "For the operator: a route of the load balancer answers this status.";

const HTML: &str = include_str!("../../../../templates/errors/page.html");
const JSON: &str = r#"{"status": {status}, "title": "{reason}", "detail": "{text}", "hint": "{hint}"}
"#;
const TEXT: &str = "{status} {reason}\n\n{text}\n{hint}\n";
const SHORT_TEXT: &str = "{status} {reason}\n";
