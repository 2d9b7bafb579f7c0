//! The form of a page: HTML, JSON or text, by what the client accepts.

use std::cmp::Reverse;

use crate::http::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For clients whose `Accept` names HTML, as browsers do.
    Html,
    /// For clients whose `Accept` names JSON.
    Json,
    /// For all other clients.
    Text,
}

impl Form {
    /// The form that `Accept` prefers: the one of the highest quality. Of several, one that `Accept` names comes first, then the
    /// one whose element comes first. A client that prefers none of the forms gets text.
    pub fn accepted_by(fields: &[Field<'_>]) -> Self {
        let mut ratings = [Self::Html, Self::Json, Self::Text].map(Rating::new);
        let elements = fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case("accept"))
            .flat_map(|field| field.value.split(|byte| *byte == b','))
            .filter_map(Element::parse);
        for (index, element) in elements.enumerate() {
            for rating in &mut ratings {
                rating.add(&element, index);
            }
        }
        let accepted = ratings.into_iter().filter(|rating| rating.quality > 0);
        // Of equal ratings this is the last one: text.
        let best = accepted.max_by_key(|rating| {
            let is_named = rating.precision == Some(Precision::Named);
            (rating.quality, is_named, Reverse(rating.index))
        });
        best.map_or(Self::Text, |rating| rating.form)
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// The preference for one form. Of the elements of `Accept` that match the form, the most precise one counts (RFC 9110, section
/// 12.5.1).
struct Rating {
    form: Form,
    /// The precision of the element that counts; `None` if no element matches the form.
    precision: Option<Precision>,
    /// In thousandths, from 0 to 1000.
    quality: u16,
    /// The index of the element that counts.
    index: usize,
}

impl Rating {
    fn new(form: Form) -> Self {
        Self {
            form,
            precision: None,
            quality: 0,
            index: 0,
        }
    }

    fn add(&mut self, element: &Element<'_>, index: usize) {
        let precision = element.precision(self.form);
        let is_better = (precision, element.quality) > (self.precision, self.quality);
        if precision.is_some() && is_better {
            self.precision = precision;
            self.quality = element.quality;
            self.index = index;
        }
    }
}

/// How precisely an element of `Accept` matches a form, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    /// As `*/*`.
    Any,
    /// As `text/*`.
    Kind,
    /// By its name.
    Named,
}

/// One element of `Accept`, such as `text/html;q=0.9`.
struct Element<'a> {
    kind: &'a str,
    /// The form, if the element names one. If not, the part behind the slash is `*`.
    named: Option<Form>,
    /// In thousandths, from 0 to 1000.
    quality: u16,
}

impl<'a> Element<'a> {
    /// Parses an element. Returns `None` if it is malformed or matches none of the forms.
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

    fn precision(&self, form: Form) -> Option<Precision> {
        let kind = match form {
            Form::Html | Form::Text => "text",
            Form::Json => "application",
        };
        match self.named {
            Some(named) => (named == form).then_some(Precision::Named),
            None if self.kind == "*" => Some(Precision::Any),
            None => (self.kind.eq_ignore_ascii_case(kind)).then_some(Precision::Kind),
        }
    }
}

/// Parses a quality from 0 to 1 with up to three decimals. A malformed one is 0.
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
