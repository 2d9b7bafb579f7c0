//! The outcome of a check, in haproxy's words, which existing dashboards and scripts understand.

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection was established, and nothing more was required.
    Connected,
    /// The answer was as expected; with its status, if it has one.
    Answered(Option<u16>),
    /// The connection was not established in time.
    ConnectTimeout,
    /// The connection failed, for this reason.
    Unreached(&'static str),
    /// The TLS handshake did not complete in time.
    TlsTimeout,
    /// The TLS handshake failed, for this reason.
    NoTls(&'static str),
    /// The answer did not arrive in time, or not completely.
    AnswerTimeout,
    /// The answer has a status that is not accepted.
    WrongStatus(u16),
    /// The answer is not as expected, for this reason.
    WrongAnswer(&'static str),
    /// There was no check, for want of a local resource. That says nothing about the endpoint.
    NoCheck(&'static str),
}

impl Outcome {
    /// Whether the check passed; `None` if it says nothing about the endpoint.
    pub fn passed(self) -> Option<bool> {
        match self {
            Self::Connected | Self::Answered(_) => Some(true),
            Self::NoCheck(_) => None,
            _ => Some(false),
        }
    }

    /// Its word (`check_status`).
    pub fn word(self) -> &'static str {
        self.words().0
    }

    /// A description (`check_desc`).
    pub fn description(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Connected => ("L4OK", "Layer4 check passed"),
            Self::Answered(_) => ("L7OK", "Layer7 check passed"),
            Self::ConnectTimeout => ("L4TOUT", "Layer4 timeout"),
            Self::Unreached(_) => ("L4CON", "Layer4 connection problem"),
            Self::TlsTimeout => ("L6TOUT", "Layer6 timeout"),
            Self::NoTls(_) => ("L6RSP", "Layer6 invalid response"),
            Self::AnswerTimeout => ("L7TOUT", "Layer7 timeout"),
            Self::WrongStatus(_) => ("L7STS", "Layer7 wrong status"),
            Self::WrongAnswer(_) => ("L7RSP", "Layer7 invalid response"),
            Self::NoCheck(_) => ("SOCKERR", "Socket error"),
        }
    }

    /// The status of the answer (`check_code`).
    pub fn code(self) -> Option<u16> {
        match self {
            Self::Answered(code) => code,
            Self::WrongStatus(code) => Some(code),
            _ => None,
        }
    }

    /// Additional information (`last_chk`).
    pub fn info(self) -> Option<&'static str> {
        match self {
            Self::Unreached(why)
            | Self::NoTls(why)
            | Self::WrongAnswer(why)
            | Self::NoCheck(why) => Some(why),
            _ => None,
        }
    }
}
