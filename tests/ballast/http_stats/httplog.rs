//! Reads an access line as strictly as the programs that parse haproxy's `option httplog`.

/// The fields of one line.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) client: String,
    pub(crate) frontend: String,
    pub(crate) service: String,
    pub(crate) server: String,
    /// Receiving, queued, connecting, responding, total.
    pub(crate) times: [i64; 5],
    pub(crate) status: i64,
    pub(crate) bytes: u64,
    pub(crate) letters: String,
    /// Of the process, the frontend, the service, the endpoint; and the retries.
    pub(crate) connections: [u64; 5],
    pub(crate) request: String,
}

impl Line {
    /// `None`: the line has another form.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (fields, request) = line.split_once(" \"")?;
        let request = request.strip_suffix('"')?;
        if request.contains('"') || line.contains(|letter: char| letter.is_control()) {
            return None;
        }
        let mut fields = fields.split(' ');
        let mut next = || fields.next();
        let client = next()?.to_owned();
        is_date(next()?).then_some(())?;
        let frontend = next()?.to_owned();
        let (service, server) = next()?.split_once('/')?;
        let times = numbers(next()?)?;
        let status = next()?.parse().ok()?;
        let bytes = next()?.parse().ok()?;
        (next()? == "-" && next()? == "-").then_some(())?;
        let letters = next()?.to_owned();
        let connections = numbers(&next()?.replace("/+", "/"))?;
        let _: [u64; 2] = numbers(next()?)?;
        (next().is_none() && letters.len() == 4).then(|| Self {
            client,
            frontend,
            service: service.into(),
            server: server.into(),
            times,
            status,
            bytes,
            letters,
            connections,
            request: request.into(),
        })
    }
}

/// `[21/Nov/2026:15:04:05.678]`
fn is_date(text: &str) -> bool {
    let form = "[00/Aaa/0000:00:00:00.000]";
    text.len() == form.len()
        && text
            .chars()
            .zip(form.chars())
            .all(|(letter, form)| match form {
                '0' => letter.is_ascii_digit(),
                'A' => letter.is_ascii_uppercase(),
                'a' => letter.is_ascii_lowercase(),
                form => letter == form,
            })
}

fn numbers<T: std::str::FromStr, const N: usize>(text: &str) -> Option<[T; N]> {
    let numbers = text.split('/').map(|number| number.parse().ok());
    numbers.collect::<Option<Vec<T>>>()?.try_into().ok()
}

#[test]
fn a_line_that_haproxy_wrote_is_read() {
    let line = Line::parse(
        r#"127.0.0.1:57462 [22/Nov/2026:22:15:45.725] fe dead/d 0/0/-1/-1/3003 503 217 - - SC-- 1/1/0/0/+3 0/0 "GET /dead HTTP/1.1""#,
    )
    .unwrap();
    assert_eq!(line.connections, [1, 1, 0, 0, 3]);
    assert!(Line::parse("127.0.0.1:1 [22/Nov/2026] fe").is_none());
}
