//! As much of HTTP/1.1 as pages on loopback need: one GET a connection, bounded in every way.
//!
//! `tiny_http`, which the Prometheus port uses, knows neither time-outs nor limits on a request's head;
//! so requests are read here and taken apart by `httparse`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Most lines of a head.
const HEADERS_MAX: usize = 64;

/// For a whole head: a browser's comes at once.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// For as much of an answer as a socket takes at a time.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Path without the query, as sent.
    pub(crate) path: String,
    /// Name and value, decoded.
    pub(crate) query: Vec<(String, String)>,
    /// No body is wanted.
    pub(crate) head_only: bool,
}

impl Request {
    /// The value of a field of the query; an empty one counts as not given.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Why a request is not answered, and the status that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    BadRequest,
    Forbidden,
    NotAllowed,
    TimedOut,
    /// Sent to a name that is not ours: DNS rebinding, or a proxy.
    Misdirected,
    TooLarge,
    Busy,
}

impl Refusal {
    fn status(self) -> (u16, &'static str) {
        match self {
            Refusal::BadRequest => (400, "Bad Request"),
            Refusal::Forbidden => (403, "Forbidden"),
            Refusal::NotAllowed => (405, "Method Not Allowed"),
            Refusal::TimedOut => (408, "Request Timeout"),
            Refusal::Misdirected => (421, "Misdirected Request"),
            Refusal::TooLarge => (431, "Request Header Fields Too Large"),
            Refusal::Busy => (503, "Service Unavailable"),
        }
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
    /// Name under which a browser saves it.
    pub(crate) save_as: Option<String>,
}

impl Answer {
    pub(crate) fn page(status: u16, body: String) -> Self {
        let kind = "text/html; charset=utf-8";
        Answer { status, kind, body: body.into_bytes(), save_as: None }
    }

    pub(crate) fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Answer { status: 200, kind, body: body.into(), save_as: None }
    }

    pub(crate) fn saved_as(mut self, name: String) -> Self {
        self.save_as = Some(name);
        self
    }
}

/// Reads the head of a request, within its limits of size and time.
pub(crate) fn read_head(stream: &mut TcpStream) -> Result<Option<Vec<u8>>, Refusal> {
    let deadline = Instant::now() + HEAD_TIME_MAX;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Refusal::TimedOut);
        }
        match stream.read(&mut piece) {
            // A browser's spare connection: nothing was asked.
            Ok(0) if head.is_empty() => return Ok(None),
            Ok(0) => return Err(Refusal::BadRequest),
            Ok(len) => head.extend_from_slice(&piece[..len]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if is_time_out(&e) && head.is_empty() => return Ok(None),
            Err(e) if is_time_out(&e) => return Err(Refusal::TimedOut),
            Err(_) => return Ok(None),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Takes a head apart and refuses what is not a page of ours being asked for by its own origin.
pub(crate) fn parse(head: &[u8], here: SocketAddr) -> Result<Request, Refusal> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut lines);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Refusal::BadRequest),
    }
    let values = |name: &'static str| {
        let of_name = |line: &&httparse::Header<'_>| line.name.eq_ignore_ascii_case(name);
        parsed.headers.iter().filter(of_name).map(|line| line.value)
    };
    // Exactly one, and exactly ours: a name that resolves to loopback is still not ours.
    let mut hosts = values("host");
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        _ => return Err(Refusal::BadRequest),
    };
    let port = here.port();
    let ours = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let is_ours = |host: &[u8]| {
        ours.iter().any(|ours| host.eq_ignore_ascii_case(ours.as_bytes()))
            || (port == 80 && [&b"127.0.0.1"[..], b"localhost"].contains(&host))
    };
    if !is_ours(host) {
        return Err(Refusal::Misdirected);
    }
    let foreign = |origin: &[u8]| !origin.strip_prefix(b"http://").is_some_and(is_ours);
    if values("origin").any(foreign) {
        return Err(Refusal::Forbidden);
    }
    // Another site may link here; it may not load anything from here into itself.
    let from_elsewhere =
        values("sec-fetch-site").any(|site| site != b"same-origin" && site != b"none");
    let by_link = values("sec-fetch-mode").all(|mode| mode == b"navigate")
        && values("sec-fetch-dest").all(|dest| dest == b"document");
    if from_elsewhere && !by_link {
        return Err(Refusal::Forbidden);
    }
    let head_only = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::NotAllowed),
    };
    let has_body = values("content-length").any(|len| len != b"0")
        || values("transfer-encoding").next().is_some();
    let target = parsed.path.filter(|target| target.starts_with('/') && !has_body);
    let target = target.ok_or(Refusal::BadRequest)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    Ok(Request { path: path.to_owned(), query, head_only })
}

/// Sends an answer and ends the connection.
pub(crate) fn send(mut stream: TcpStream, answer: &Answer, head_only: bool) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME_MAX))?;
    let reason = match answer.status {
        200 => "OK",
        404 => "Not Found",
        422 => "Unprocessable Content",
        500 => "Internal Server Error",
        status => [
            Refusal::BadRequest,
            Refusal::Forbidden,
            Refusal::NotAllowed,
            Refusal::TimedOut,
            Refusal::Misdirected,
            Refusal::TooLarge,
            Refusal::Busy,
        ]
        .iter()
        .map(|refusal| refusal.status())
        .find(|(number, _)| *number == status)
        .map_or("", |(_, reason)| reason),
    };
    let mut head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; \
         img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    if answer.status == 405 {
        head.push_str("Allow: GET, HEAD\r\n");
    }
    if let Some(name) = &answer.save_as {
        // The id is the user's: nothing of it may end the line or the quotes.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        head.push_str(&format!("Content-Disposition: attachment; filename=\"{name}\"\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if !head_only {
        stream.write_all(&answer.body)?;
    }
    stream.flush()?;
    stream.shutdown(Shutdown::Write)
}

/// The answer that says why there is none.
pub(crate) fn refusal(refusal: Refusal) -> Answer {
    let (status, reason) = refusal.status();
    let text = match refusal {
        Refusal::Misdirected => "ask for http://127.0.0.1 and the port, not another name",
        Refusal::Forbidden => "pages of other sites get nothing from here",
        Refusal::NotAllowed => "only GET",
        _ => reason,
    };
    Answer {
        status,
        kind: "text/plain; charset=utf-8",
        body: format!("{text}\n").into_bytes(),
        save_as: None,
    }
}

/// What the fuzz target holds true: what is answered was asked of us, by GET or HEAD.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "for the fuzz target and the replay of its corpus")
)]
pub(crate) fn holds(bytes: &[u8]) {
    let here = SocketAddr::from(([127, 0, 0, 1], 7118));
    if let Ok(request) = parse(bytes, here) {
        let head = String::from_utf8_lossy(bytes).to_ascii_lowercase();
        // RFC 9112, section 2.2: an empty line in front is passed over.
        let head = head.trim_start();
        assert!(head.contains("127.0.0.1:7118") || head.contains("localhost:7118"));
        assert!(head.starts_with(if request.head_only { "head " } else { "get " }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_of_requests_holds() {
        let inputs = crate::inputs::of("http_request");
        assert!(inputs.len() >= 5);
        inputs.iter().for_each(|bytes| holds(bytes));
    }

    fn here() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7118))
    }

    fn asked(lines: &str) -> Result<Request, Refusal> {
        parse(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes(), here())
    }

    #[test]
    fn a_page_and_its_query_are_read() {
        let request =
            asked("GET /?path=probe&since=2026-11-01&until= HTTP/1.1\nHost: localhost:7118");
        let request = request.unwrap();
        assert_eq!(request.path, "/");
        assert_eq!(request.field("path"), Some("probe"));
        assert_eq!(request.field("until"), None);
        assert!(asked("HEAD / HTTP/1.1\nhost: 127.0.0.1:7118").unwrap().head_only);
    }

    #[test]
    fn names_that_are_not_ours_are_refused_wherever_they_resolve_to() {
        for host in [
            "evil.example:7118",
            "evil.example",
            "127.0.0.1",
            "127.0.0.1:80",
            "0.0.0.0:7118",
            "localhost:7118.evil.example",
            "127.0.0.1:7118@evil.example",
            "",
        ] {
            let answer = asked(&format!("GET / HTTP/1.1\nHost: {host}"));
            assert_eq!(answer, Err(Refusal::Misdirected), "{host}");
        }
        assert_eq!(asked("GET / HTTP/1.1"), Err(Refusal::BadRequest));
        let two = "GET / HTTP/1.1\nHost: localhost:7118\nHost: evil.example";
        assert_eq!(asked(two), Err(Refusal::BadRequest));
    }

    #[test]
    fn other_sites_may_link_here_and_nothing_else() {
        let with = |lines: &str| asked(&format!("GET / HTTP/1.1\nHost: localhost:7118\n{lines}"));
        assert!(with("Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate").is_ok());
        assert!(with("Sec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors").is_ok());
        let link = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: ";
        assert!(with(&format!("{link}document")).is_ok());
        assert_eq!(with(&format!("{link}iframe")), Err(Refusal::Forbidden));
        let script = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script";
        assert_eq!(with(script), Err(Refusal::Forbidden));
        assert_eq!(with("Origin: https://evil.example"), Err(Refusal::Forbidden));
        assert_eq!(with("Origin: null"), Err(Refusal::Forbidden));
        assert!(with("Origin: http://localhost:7118").is_ok());
    }

    #[test]
    fn what_is_not_a_plain_get_is_refused_and_nothing_panics() {
        let host = "Host: localhost:7118";
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            let answer = asked(&format!("{method} / HTTP/1.1\n{host}"));
            assert_eq!(answer, Err(Refusal::NotAllowed), "{method}");
        }
        for bad in [
            format!("GET http://evil.example/ HTTP/1.1\n{host}"),
            format!("GET / HTTP/1.1\n{host}\nContent-Length: 5"),
            format!("GET / HTTP/1.1\n{host}\nTransfer-Encoding: chunked"),
            format!("GET / HTTP/9\n{host}"),
            format!("GET / HTTP/1.1\n{host}\nbroken"),
            "\0\0".to_owned(),
        ] {
            assert_eq!(asked(&bad), Err(Refusal::BadRequest), "{bad}");
        }
        let many = format!("GET / HTTP/1.1\n{host}{}", "\nA: b".repeat(HEADERS_MAX));
        assert_eq!(asked(&many), Err(Refusal::TooLarge));
        let long = format!("GET /{} HTTP/1.1\n{host}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(asked(&long), Err(Refusal::TooLarge));
    }
}
