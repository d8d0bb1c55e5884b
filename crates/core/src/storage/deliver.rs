//! Delivers messages: a line appended to a local file, or a request to a web server. Not for data: nothing is retried.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that writes files")]

use std::{fs::File, io::Write, path::Path, time::Duration};

use reqwest::redirect::Policy;
use url::Url;

use super::{StoreSettings, connect::client_builder, location::plain_urls, remote::shared_runtime, secrets::Secrets};
use crate::error::{Error, Result};

/// Request timeout: a server that does not answer must not hold up a run.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Appends a line to a local file, which is created if it does not exist.
///
/// # Errors
/// When the file cannot be written.
pub fn append_line(path: &Path, line: &str) -> Result<()> {
    let failed = |e| Error::storage("writing failed").at_location(path.display().to_string()).with_cause(e);
    let mut file = File::options().append(true).create(true).open(path).map_err(failed)?;
    // A single write, so that lines of concurrent runs do not interleave.
    file.write_all(format!("{line}\n").as_bytes()).map_err(failed)
}

/// Posts JSON to a web server, with a bearer token if there is one. Redirects are not followed: the event and the token
/// are for the server that the user named.
///
/// # Errors
/// When the server cannot be reached, does not answer in time, or returns an error status or a redirect.
pub fn post_json(url: &Url, json: String, token: Option<&str>, settings: &StoreSettings) -> Result<()> {
    let place = plain_urls(url.as_str());
    let secrets = Secrets::from_url(url, settings).with_secret(token);
    let failed =
        |e: reqwest::Error| Error::storage("sending failed").at_location(&*place).with_cause(secrets.redact_error(&e));
    shared_runtime()?.block_on(async {
        let client = client_builder().timeout(TIMEOUT).redirect(Policy::none()).build().map_err(failed)?;
        let mut request = client.post(url.clone()).header("content-type", "application/json").body(json);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        if status.is_redirection() {
            let to =
                answer.headers().get("location").and_then(|to| to.to_str().ok()).map_or_else(String::new, plain_urls);
            let to = secrets.redact_text(&to).escape_debug().to_string();
            return Err(Error::storage(format!("expected the server to accept the event, found a redirect to `{to}`"))
                .at_location(&*place)
                .with_hint("nothing was sent there; if that server is the right one, name it"));
        }
        let body = answer.text().await.unwrap_or_default();
        // Servers may echo the request, including the token.
        let body: String = secrets.redact_text(&body).chars().filter(|c| !c.is_control()).take(200).collect();
        Err(Error::storage(format!("expected the server to accept the event, found {status}: {body}"))
            .at_location(&*place))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    /// Answers one request with what `answer` makes of it.
    fn serve(answer: impl FnOnce(&str) -> String + Send + 'static) -> (Url, std::thread::JoinHandle<()>) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/api", server.local_addr().unwrap())).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer(&String::from_utf8_lossy(&request[..length])).as_bytes()).unwrap();
        });
        (url, answering)
    }

    #[test]
    fn redirects_are_errors_and_nothing_is_sent_to_their_target() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let target = format!("http://user:pass@{}/x", other.local_addr().unwrap());
        let (url, answering) = serve(move |_| {
            format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: \
                 close\r\n\r\n"
            )
        });
        let error = post_json(&url, "{}".to_owned(), Some("t0ken-of-mine"), &StoreSettings::default()).unwrap_err();
        answering.join().unwrap();
        assert!(error.message().contains("redirect to `http://127.0.0.1"), "{error}");
        assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn tokens_in_server_responses_are_hidden() {
        let (url, answering) = serve(|body| {
            let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            head + body
        });
        let error = post_json(&url, "{}".to_owned(), Some("t0ken-of-mine"), &StoreSettings::default()).unwrap_err();
        answering.join().unwrap();
        assert!(error.message().contains("403") && error.message().contains("earer"), "{error}");
        assert!(!error.message().contains("t0ken-of-mine"), "{error}");
    }
}
