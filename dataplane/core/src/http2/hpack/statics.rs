//! The static table (RFC 7541, appendix A).

/// The entry with this index: name and value.
#[inline]
pub(super) fn entry(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    ENTRIES.get(index.checked_sub(1)?).copied()
}

/// The index of the entry with this name, in any case. Names that begin with a colon are not found.
pub(super) fn index_of(name: &[u8]) -> Option<usize> {
    let index = SLOTS.get(slot(name)?)?;
    let (known, _) = entry(usize::from(*index))?;
    known
        .eq_ignore_ascii_case(name)
        .then_some(usize::from(*index))
}

/// The number of entries: the dynamic table begins with the next index.
pub(super) const LENGTH: usize = ENTRIES.len();

/// Indexes of the entries that the encoder uses. An entry gives its name, too.
pub(super) const AUTHORITY: usize = 1;
pub(super) const METHOD_GET: usize = 2;
pub(super) const METHOD_POST: usize = 3;
pub(super) const PATH_ROOT: usize = 4;
pub(super) const SCHEME_HTTP: usize = 6;
pub(super) const SCHEME_HTTPS: usize = 7;
pub(super) const STATUS_200: usize = 8;
pub(super) const STATUS_204: usize = 9;
pub(super) const STATUS_206: usize = 10;
pub(super) const STATUS_304: usize = 11;
pub(super) const STATUS_400: usize = 12;
pub(super) const STATUS_404: usize = 13;
pub(super) const STATUS_500: usize = 14;
pub(super) const AUTHORIZATION: usize = 23;
pub(super) const COOKIE: usize = 32;
pub(super) const PROXY_AUTHORIZATION: usize = 49;
pub(super) const SET_COOKIE: usize = 55;

/// The first entry whose name does not begin with a colon.
const FIRST_ORDINARY: u8 = 15;

/// The slot in [`SLOTS`] for a name: the same for any case of its letters. The factors were found by trial.
const fn slot(name: &[u8]) -> Option<usize> {
    let (Some(first), Some(last)) = (name.first(), name.last()) else {
        return None;
    };
    let letters = (*first & 0x1f) as usize * 18 + (*last & 0x1f) as usize * 105;
    Some((name.len() + letters) % SLOTS.len())
}

/// The index of the only entry that a name may have, by the name's [`slot`]. 0 where no entry has it.
static SLOTS: [u8; 128] = slots();

const fn slots() -> [u8; 128] {
    let mut slots = [0; 128];
    let mut index = FIRST_ORDINARY;
    while index as usize <= LENGTH {
        let Some(slot) = slot(ENTRIES[index as usize - 1].0) else {
            panic!("an entry without a name");
        };
        assert!(slots[slot] == 0, "two names have the same slot");
        slots[slot] = index;
        index += 1;
    }
    slots
}

const ENTRIES: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];
