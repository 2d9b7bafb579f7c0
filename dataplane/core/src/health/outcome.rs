//! How a check went, in haproxy's words, so that today's dashboards and scripts understand it.

/// How one check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It connected, and nothing more was asked.
    Connected,
    /// The answer was well; with its status, where it has one.
    Answered(Option<u16>),
    /// Nobody accepted in time.
    ConnectTimeout,
    /// It could not connect, for this reason.
    Unreached(&'static str),
    /// It connected, and the handshake of TLS was not over in time.
    TlsTimeout,
    /// The handshake failed, for this reason.
    NoTls(&'static str),
    /// The answer did not come in time, or not whole.
    AnswerTimeout,
    /// The answer has a status that is not well.
    WrongStatus(u16),
    /// The answer is not what was expected, for this reason.
    WrongAnswer(&'static str),
    /// There was no check, for want of something of our own: that says nothing about the endpoint.
    NoCheck(&'static str),
}

impl Outcome {
    /// Whether it speaks for the endpoint or against it; `None`: neither.
    #[must_use]
    pub fn passed(self) -> Option<bool> {
        match self {
            Self::Connected | Self::Answered(_) => Some(true),
            Self::NoCheck(_) => None,
            _ => Some(false),
        }
    }

    /// Its word (`check_status`).
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Connected => "L4OK",
            Self::Answered(_) => "L7OK",
            Self::ConnectTimeout => "L4TOUT",
            Self::Unreached(_) => "L4CON",
            Self::TlsTimeout => "L6TOUT",
            Self::NoTls(_) => "L6RSP",
            Self::AnswerTimeout => "L7TOUT",
            Self::WrongStatus(_) => "L7STS",
            Self::WrongAnswer(_) => "L7RSP",
            Self::NoCheck(_) => "SOCKERR",
        }
    }

    /// The same for people (`check_desc`).
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Connected => "Layer4 check passed",
            Self::Answered(_) => "Layer7 check passed",
            Self::ConnectTimeout => "Layer4 timeout",
            Self::Unreached(_) => "Layer4 connection problem",
            Self::TlsTimeout => "Layer6 timeout",
            Self::NoTls(_) => "Layer6 invalid response",
            Self::AnswerTimeout => "Layer7 timeout",
            Self::WrongStatus(_) => "Layer7 wrong status",
            Self::WrongAnswer(_) => "Layer7 invalid response",
            Self::NoCheck(_) => "Socket error",
        }
    }

    /// The status of the answer (`check_code`).
    #[must_use]
    pub fn code(self) -> Option<u16> {
        match self {
            Self::Answered(code) => code,
            Self::WrongStatus(code) => Some(code),
            _ => None,
        }
    }

    /// What there is to say beside that (`last_chk`).
    #[must_use]
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
