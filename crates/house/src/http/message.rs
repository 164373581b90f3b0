//! The part of HTTP/1.1 that the server needs: one GET or HEAD per connection, with limits on the size
//! and the time of a request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const HEAD_BYTES_MAX: usize = 8 * 1024;

const HEADERS_MAX: usize = 64;

/// Time limit for a whole head; a browser sends it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a whole answer: a client that reads a byte now and then holds a connection no longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

const TEXT: &str = "text/plain; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Path without the query, as sent.
    pub path: String,
    /// Name and value, decoded.
    pub query: Vec<(String, String)>,
    /// Media ranges that the client accepts; empty if it names none.
    pub accept: String,
    /// The method is HEAD: the answer has no body.
    pub head_only: bool,
}

impl HttpRequest {
    /// Value of a query field; `None` if it is missing or empty.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Reason why a request is refused; each has its HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    BadRequest,
    Forbidden,
    NotAllowed,
    TimedOut,
    /// `Host` is not a name of this server: DNS rebinding, or a proxy.
    Misdirected,
    TooLarge,
    Busy,
}

impl Refusal {
    fn status(self) -> (u16, &'static str) {
        match self {
            Refusal::BadRequest => (400, "Bad HttpRequest"),
            Refusal::Forbidden => (403, "Forbidden"),
            Refusal::NotAllowed => (405, "Method Not Allowed"),
            Refusal::TimedOut => (408, "HttpRequest Timeout"),
            Refusal::Misdirected => (421, "Misdirected HttpRequest"),
            Refusal::TooLarge => (431, "HttpRequest Header Fields Too Large"),
            Refusal::Busy => (503, "Service Unavailable"),
        }
    }
}

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
    /// File name for a download.
    pub save_as: Option<String>,
}

impl HttpAnswer {
    pub fn page(status: u16, body: String) -> Self {
        let kind = "text/html; charset=utf-8";
        HttpAnswer { status, kind, body: body.into_bytes(), save_as: None }
    }

    pub fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        HttpAnswer { status: 200, kind, body: body.into(), save_as: None }
    }

    pub fn not_found(text: &str) -> Self {
        HttpAnswer { status: 404, ..HttpAnswer::new(TEXT, text) }
    }

    pub fn saved_as(mut self, name: String) -> Self {
        self.save_as = Some(name);
        self
    }
}

/// Reads the head of a request within the limits of size and time. `Ok(None)` if the client sent
/// nothing or disconnected.
pub(super) fn read_head(stream: &mut TcpStream) -> Result<Option<Vec<u8>>, Refusal> {
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Refusal::TimedOut);
        }
        match stream.read(&mut piece) {
            // A browser's spare connection: no request was sent.
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

/// Parses a head. Requests for other hosts and requests by pages of other sites are refused.
///
/// - `here`: bound address. On loopback `Host` must be `localhost` or that address, with the port,
///   which defeats DNS rebinding. An address that the user opened to the network may have any name.
pub(super) fn parse(head: &[u8], here: SocketAddr) -> Result<HttpRequest, Refusal> {
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
        parsed
            .headers
            .iter()
            .filter(|line: &&httparse::Header<'_>| line.name.eq_ignore_ascii_case(name))
            .map(|line| line.value)
    };
    // A name that resolves to loopback is not accepted: DNS rebinding works that way.
    let mut hosts = values("host");
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        _ => return Err(Refusal::BadRequest),
    };
    let port = here.port();
    let ours = [here.to_string(), format!("localhost:{port}")];
    let is_ours = |name: &[u8]| {
        ours.iter().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
            || (port == 80 && [here.ip().to_string().as_bytes(), b"localhost"].contains(&name))
            || (!here.ip().is_loopback() && name == host)
    };
    if !is_ours(host) {
        return Err(Refusal::Misdirected);
    }
    if values("origin").any(|origin: &[u8]| !origin.strip_prefix(b"http://").is_some_and(is_ours)) {
        return Err(Refusal::Forbidden);
    }
    // Other sites may link to a page; they may not load one into theirs.
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
    let accept: Vec<_> = values("accept").map(String::from_utf8_lossy).collect();
    Ok(HttpRequest { path: path.to_owned(), query, accept: accept.join(","), head_only })
}

pub(super) fn send(stream: TcpStream, answer: &HttpAnswer, head_only: bool) -> io::Result<()> {
    send_within(WRITE_TIMEOUT, stream, answer, head_only)
}

fn send_within(
    limit: Duration,
    mut stream: TcpStream,
    answer: &HttpAnswer,
    head_only: bool,
) -> io::Result<()> {
    let deadline = Instant::now() + limit;
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
        // The id is user input: it must not end the line or the quotes.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        head.push_str(&format!("Content-Disposition: attachment; filename=\"{name}\"\r\n"));
    }
    head.push_str("\r\n");
    write_by(deadline, &mut stream, head.as_bytes())?;
    if !head_only {
        write_by(deadline, &mut stream, &answer.body)?;
    }
    stream.flush()?;
    stream.shutdown(Shutdown::Write)
}

fn write_by(deadline: Instant, stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if is_time_out(&e) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(super) fn refusal(refusal: Refusal) -> HttpAnswer {
    let (status, reason) = refusal.status();
    let text = match refusal {
        Refusal::Misdirected => "ask for http://127.0.0.1 and the port, not another name",
        Refusal::Forbidden => "requests by pages of other sites are refused",
        Refusal::NotAllowed => "only GET",
        _ => reason,
    };
    HttpAnswer { status, ..HttpAnswer::new(TEXT, format!("{text}\n")) }
}

/// Property of the fuzz target: an accepted request names this server and is a GET or HEAD.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "for the fuzz target and the replay of its corpus")
)]
pub(super) fn holds(bytes: &[u8]) {
    let here = SocketAddr::from(([127, 0, 0, 1], 7118));
    if let Ok(request) = parse(bytes, here) {
        let head = String::from_utf8_lossy(bytes).to_ascii_lowercase();
        // RFC 9112, section 2.2: an empty line before the request line is skipped.
        let head = head.trim_start();
        assert!(head.contains("127.0.0.1:7118") || head.contains("localhost:7118"));
        assert!(head.starts_with(if request.head_only { "head " } else { "get " }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_slowly_is_dropped_at_the_limit_of_the_whole_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        // Reads as long as there is something, so that each single write makes progress.
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while client.read(&mut piece).is_ok_and(|len| len > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let answer = HttpAnswer::new(TEXT, vec![b'x'; 64 << 20]);
        let ended = send_within(Duration::from_millis(400), stream, &answer, false);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(reader);
    }

    #[test]
    fn corpus_of_requests_holds() {
        testkit::corpus::replay("http_request", holds);
    }

    fn here() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7118))
    }

    fn asked(lines: &str) -> Result<HttpRequest, Refusal> {
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
    fn other_host_names_are_refused_even_if_they_resolve_to_loopback() {
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
    fn an_address_on_the_network_is_served_by_any_name() {
        let here = SocketAddr::from(([192, 0, 2, 1], 9100));
        let asked_with_lines = |lines: &str| {
            parse(format!("GET /metrics HTTP/1.1\r\n{lines}\r\n\r\n").as_bytes(), here)
        };
        assert!(asked_with_lines("Host: 192.0.2.1:9100").is_ok());
        assert!(asked_with_lines("Host: gateway.example:9100").is_ok());
        let foreign = asked_with_lines("Host: gateway.example:9100\r\nOrigin: http://evil.example");
        assert_eq!(foreign, Err(Refusal::Forbidden));
        assert_eq!(asked_with_lines("Accept: text/plain"), Err(Refusal::BadRequest));
    }

    #[test]
    fn other_sites_may_link_here_and_nothing_else() {
        let asked_locally =
            |lines: &str| asked(&format!("GET / HTTP/1.1\nHost: localhost:7118\n{lines}"));
        assert!(asked_locally("Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate").is_ok());
        assert!(asked_locally("Sec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors").is_ok());
        let link = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: ";
        assert!(asked_locally(&format!("{link}document")).is_ok());
        assert_eq!(asked_locally(&format!("{link}iframe")), Err(Refusal::Forbidden));
        let script = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script";
        assert_eq!(asked_locally(script), Err(Refusal::Forbidden));
        assert_eq!(asked_locally("Origin: https://evil.example"), Err(Refusal::Forbidden));
        assert_eq!(asked_locally("Origin: null"), Err(Refusal::Forbidden));
        assert!(asked_locally("Origin: http://localhost:7118").is_ok());
    }

    #[test]
    fn other_methods_bodies_and_malformed_heads_are_refused() {
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
