//! The form of a page: HTML, JSON or text, by what the client accepts.

use crate::http::Field;

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For browsers, which ask for it by name.
    Html,
    /// For programs that ask for it by name.
    Json,
    /// For everybody else.
    Text,
}

impl Form {
    /// The form that `Accept` prefers: that of the highest quality, and of several the one that is named, and named first. A
    /// client to which all forms are the same gets text.
    #[must_use]
    pub fn accepted_by(fields: &[Field<'_>]) -> Self {
        let ranges = || {
            fields
                .iter()
                .filter(|field| field.name.eq_ignore_ascii_case("accept"))
                .flat_map(|field| field.value.split(|byte| *byte == b','))
                .filter_map(Range::parse)
        };
        let refused = |form| {
            let mut all = ranges();
            all.any(|range| range.quality == 0 && range.named == Some(form))
        };
        let is_refused = [Self::Text, Self::Json, Self::Html].map(|form| (form, refused(form)));
        let mut best: Option<(u16, bool, Self)> = None;
        for range in ranges().filter(|range| range.quality > 0) {
            let any_form = || {
                let mut forms = is_refused.iter();
                forms.find(|(form, is_refused)| !is_refused && range.includes(*form))
            };
            let Some(form) = range.named.or_else(|| any_form().map(|(form, _)| *form)) else {
                continue;
            };
            let rank = (range.quality, range.named.is_some());
            if best.is_none_or(|(quality, is_named, _)| rank > (quality, is_named)) {
                best = Some((rank.0, rank.1, form));
            }
        }
        best.map_or(Self::Text, |(_, _, form)| form)
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// One element of `Accept`.
struct Range<'a> {
    /// `text`, or `*`.
    kind: &'a str,
    /// The form, if the element names one.
    named: Option<Form>,
    /// In thousandths, from 0 to 1000.
    quality: u16,
}

impl<'a> Range<'a> {
    /// The element, if it says anything about the forms that there are.
    fn parse(element: &'a [u8]) -> Option<Self> {
        let mut parts = str::from_utf8(element).ok()?.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let is = |one: &str, other: &str| {
            kind.eq_ignore_ascii_case(one) && subtype.eq_ignore_ascii_case(other)
        };
        let named = match () {
            () if is("text", "html") || is("application", "xhtml+xml") => Some(Form::Html),
            () if is("application", "json") || is("application", "problem+json") => {
                Some(Form::Json)
            }
            () if is("text", "plain") => Some(Form::Text),
            () => None,
        };
        if named.is_none() && subtype != "*" {
            return None;
        }
        let quality = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("q")
                .then_some(value.trim())
        });
        Some(Self {
            kind,
            named,
            quality: quality.map_or(1000, thousandths),
        })
    }

    /// Whether a range with a `*` includes the form.
    fn includes(&self, form: Form) -> bool {
        let kind = match form {
            Form::Html | Form::Text => "text",
            Form::Json => "application",
        };
        self.kind == "*" || self.kind.eq_ignore_ascii_case(kind)
    }
}

/// A quality from 0 to 1 with up to three decimals. What is malformed is 0.
fn thousandths(quality: &str) -> u16 {
    let (whole, decimals) = quality.split_once('.').unwrap_or((quality, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    let digits = decimals.bytes().chain([b'0'; 3]).take(3);
    let below_one = digits.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match whole {
        "0" => below_one,
        "1" => 1000,
        _ => 0,
    }
}
