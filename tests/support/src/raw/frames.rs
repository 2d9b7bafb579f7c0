//! Frames as bytes, and the numbers of RFC 9113.

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in settings {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

pub fn reset_frame(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// The fields of a request.
pub fn request(method: &str, path: &str) -> Vec<(&'static str, String)> {
    vec![
        (":method", method.to_owned()),
        (":scheme", "http".to_owned()),
        (":path", path.to_owned()),
        (":authority", "shop.example".to_owned()),
    ]
}

/// The value of the first field of this name.
pub fn field<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    let mut found = fields.iter().filter(|(found, _)| found == name);
    found.next().map(|(_, value)| value.as_str())
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags.
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub(super) const PRIORITY: u8 = 0x20;

/// Settings.
pub const MAX_STREAMS: u16 = 3;
pub const INITIAL_WINDOW: u16 = 4;

/// Codes of errors.
pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// As long as nobody announces another one.
pub const DEFAULT_WINDOW: i64 = 65_535;
/// The longest payload, which nobody here ever raises.
pub const MAX_FRAME: usize = 16_384;
