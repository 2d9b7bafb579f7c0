//! The kinds of fields, by name: the only list of the names that Ballast treats in a way of their own.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// A field for the recipient of the message.
    Other,
    /// A field that concerns one connection (RFC 9110, section 7.6.1), or that frames the body.
    Connection,
    Cookie,
    Expect,
    Forwarded,
    ForwardedFor,
    /// `X-Forwarded-Proto`, `-Port`, `-Host` or `-Prefix`.
    ForwardedFact,
    Host,
    /// A name that programs which turn `-` into `_`, such as CGI, take for `X-Forwarded-For`.
    ForwardedForImitation,
    /// The same for one of the other `X-Forwarded-` fields.
    ForwardedFactImitation,
    Location,
    SetCookie,
    StrictTransportSecurity,
    /// `Trailer`. It concerns one connection, and is forwarded with a body in chunks.
    Trailer,
}

impl FieldKind {
    pub(crate) fn of(name: &str) -> Self {
        // The length decides first: most fields are of kind `Other`, and need no comparison then.
        let candidates: &[(&str, Self)] = match name.len() {
            2 => &[("te", Self::Connection)],
            4 => &[("host", Self::Host)],
            6 => &[("cookie", Self::Cookie), ("expect", Self::Expect)],
            7 => &[("upgrade", Self::Connection), ("trailer", Self::Trailer)],
            8 => &[("location", Self::Location)],
            9 => &[("forwarded", Self::Forwarded)],
            10 => &[
                ("connection", Self::Connection),
                ("keep-alive", Self::Connection),
                ("set-cookie", Self::SetCookie),
            ],
            14 => &[
                ("content-length", Self::Connection),
                ("http2-settings", Self::Connection),
            ],
            15 => &[("x-forwarded-for", Self::ForwardedFor)],
            16 => &[
                ("x-forwarded-port", Self::ForwardedFact),
                ("x-forwarded-host", Self::ForwardedFact),
                ("proxy-connection", Self::Connection),
            ],
            17 => &[
                ("x-forwarded-proto", Self::ForwardedFact),
                ("transfer-encoding", Self::Connection),
            ],
            18 => &[("x-forwarded-prefix", Self::ForwardedFact)],
            25 => &[("strict-transport-security", Self::StrictTransportSecurity)],
            _ => &[],
        };
        for (known, kind) in candidates {
            if name.eq_ignore_ascii_case(known) {
                return *kind;
            }
            let imitation = match kind {
                Self::ForwardedFor => Self::ForwardedForImitation,
                Self::ForwardedFact => Self::ForwardedFactImitation,
                _ => continue,
            };
            if imitates(name, known) {
                return imitation;
            }
        }
        Self::Other
    }

    /// Whether such a field concerns one connection, or frames the body.
    pub(crate) fn is_of_connection(self) -> bool {
        matches!(self, Self::Connection | Self::Trailer)
    }
}

/// Whether a field of this name concerns one connection, or frames the body.
#[must_use]
pub fn concerns_connection(name: &str) -> bool {
    FieldKind::of(name).is_of_connection()
}

/// Whether a program that turns `-` into `_` takes one name for the other.
pub(crate) fn imitates(name: &str, other: &str) -> bool {
    let form = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    name.len() == other.len() && name.bytes().map(form).eq(other.bytes().map(form))
}
