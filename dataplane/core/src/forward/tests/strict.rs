//! A reader of HTTP/1 that is not Ballast's, and forgives nothing.

/// A message that is whole.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) body: Vec<u8>,
    /// `None`: the body is not chunked.
    pub(super) trailers: Option<Vec<(String, String)>>,
    /// Bytes behind the message.
    pub(super) behind: usize,
}

/// Reads the only message in these bytes, behind which the connection is closed. `None`: it is not whole.
pub(super) fn message(bytes: &[u8], is_request: bool) -> Result<Option<Message>, String> {
    let mut places = [httparse::EMPTY_HEADER; 32];
    let (parsed, fields) = if is_request {
        let mut request = httparse::Request::new(&mut places);
        (request.parse(bytes), request.headers)
    } else {
        let mut response = httparse::Response::new(&mut places);
        (response.parse(bytes), response.headers)
    };
    let Ok(httparse::Status::Complete(length)) = parsed else {
        return Err(format!("{parsed:?}"));
    };
    let rest = bytes.get(length..).unwrap_or_default();
    let all = |name: &str| -> Vec<&[u8]> {
        let named = fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    match (
        all("transfer-encoding").as_slice(),
        all("content-length").as_slice(),
    ) {
        ([b"chunked"], []) => chunks(rest),
        ([], [length]) => {
            let length = number(length, 10)?;
            Ok(rest.get(..length).map(|body| Message {
                body: body.to_vec(),
                trailers: None,
                behind: rest.len() - length,
            }))
        }
        ([], []) => Ok(Some(Message {
            body: if is_request {
                Vec::new()
            } else {
                rest.to_vec()
            },
            trailers: None,
            behind: if is_request { rest.len() } else { 0 },
        })),
        framed => Err(format!("framed by {framed:?}")),
    }
}

fn chunks(bytes: &[u8]) -> Result<Option<Message>, String> {
    let (mut rest, mut body) = (bytes, Vec::new());
    loop {
        let Some((line, behind)) = line(rest) else {
            return Ok(None);
        };
        let size = number(line, 16)?;
        rest = behind;
        if size == 0 {
            break;
        }
        let Some((chunk, behind)) = rest.split_at_checked(size + 2) else {
            return Ok(None);
        };
        let Some(data) = chunk.strip_suffix(b"\r\n") else {
            return Err(format!("no line end behind a chunk of {size}"));
        };
        body.extend_from_slice(data);
        rest = behind;
    }
    let mut trailers = Vec::new();
    loop {
        let Some((line, behind)) = line(rest) else {
            return Ok(None);
        };
        rest = behind;
        if line.is_empty() {
            break;
        }
        let text = String::from_utf8_lossy(line);
        let Some((name, value)) = text.split_once(": ") else {
            return Err(format!("{text:?} is no trailer"));
        };
        trailers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    Ok(Some(Message {
        body,
        trailers: Some(trailers),
        behind: rest.len(),
    }))
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, behind) = bytes.split_at_checked(end)?;
    Some((line, behind.get(2..)?))
}

fn number(digits: &[u8], radix: u32) -> Result<usize, String> {
    let text = String::from_utf8_lossy(digits);
    let is_number = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
    let number = usize::from_str_radix(&text, radix)
        .ok()
        .filter(|_| is_number);
    number.ok_or_else(|| format!("{text:?} is no number"))
}
