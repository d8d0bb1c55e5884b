//! Removes secrets from error messages: errors of a store's client may quote URLs and headers.

use std::sync::Arc;

use url::Url;

use super::{
    connect::Redirected,
    location::{Location, plain_urls},
    settings::StoreSettings,
};
use crate::error::Error;

/// Settings whose names contain one of these have secret values.
const SECRET_NAMES: &[&str] = &["SECRET", "KEY", "TOKEN", "SAS", "PASSWORD", "CREDENTIAL"];

/// Maximum characters of a response that are printed.
const MAX_CHARS: usize = 600;

/// Minimum length of a secret; shorter values are not secret, and hiding them would garble messages.
const MIN_SECRET_BYTES: usize = 4;

/// Replacement for a secret.
const HIDDEN: &str = "[hidden]";

/// Texts that must not appear in any message.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<[String]>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Collects the secrets of a location and of settings.
    pub(super) fn new(location: &Location, settings: &StoreSettings) -> Self {
        Self::from_url(location.url(), settings)
    }

    /// Collects the secrets of a URL and of settings.
    pub(super) fn from_url(url: &Url, settings: &StoreSettings) -> Self {
        let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
        let mut all: Vec<String> =
            settings.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone()).collect();
        let query = url.query().unwrap_or_default().split('&').filter_map(|pair| Some(pair.split_once('=')?.1));
        all.extend(url.password().into_iter().chain(query).map(str::to_owned));
        all.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        Self::longest_first(all)
    }

    /// Adds a secret.
    #[must_use]
    pub(super) fn with_secret(&self, secret: Option<&str>) -> Self {
        let more = secret.filter(|secret| secret.len() >= MIN_SECRET_BYTES).map(str::to_owned);
        Self::longest_first(self.0.iter().cloned().chain(more).collect())
    }

    /// Sorts secrets by length, so that one which is part of another does not leave the rest of it visible.
    fn longest_first(mut all: Vec<String>) -> Self {
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all.into())
    }

    /// Replaces all secrets in a text.
    pub(super) fn redact_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }

    /// Describes what a client could not do; a redirect to another host is the message itself.
    pub(super) fn operation_error(&self, doing: &str, cause: &(dyn std::error::Error + 'static)) -> Error {
        match Redirected::find_cause(cause) {
            Some(redirected) => redirected.to_error(),
            None => {
                let said = self.redact_error(cause);
                let error = Error::storage(format!("{doing} failed")).with_cause(plain_cause(&said));
                let unreachable = ["Connection refused", "failed to lookup address", "dns error", "No route to host"];
                match unreachable.iter().any(|sign| said.contains(sign)) {
                    true => error.with_hint("check the host and the port, and that the server is up"),
                    false => error,
                }
            }
        }
    }

    /// Formats an error and its causes as one text without secrets, and without queries and user names of URLs.
    pub(super) fn redact_error(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let more = inner.to_string();
            // Most errors quote their cause.
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = inner.source();
        }
        text = self.redact_text(&text);
        // Stores answer with pages of XML.
        let line: String = plain_urls(&text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match line.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line,
        }
    }
}

/// Returns what a client says without what it says of itself: the number and the limits of its attempts, the request,
/// and the layers that an error went through.
fn plain_cause(text: &str) -> String {
    let request = text.strip_prefix("Generic ").and_then(|rest| rest.split_once(" error: Error performing "));
    let Some((_, request)) = request else { return text.to_owned() };
    let Some((attempts, cause)) = request.split_once("  - ").or_else(|| request.split_once(" - ")) else {
        return text.to_owned();
    };
    let layers = ["HTTP error: ", "error sending request: ", "client error (Connect): ", "tcp connect error: "];
    let cause = layers.iter().fold(cause, |cause, layer| cause.strip_prefix(layer).unwrap_or(cause));
    let retries =
        attempts.split(", ").find_map(|part| part.strip_prefix("after ")).map(|part| format!(", after {part}"));
    format!("{cause}{}", retries.unwrap_or_default())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failed_request_is_what_is_said() {
        let said = "Generic HTTP error: Error performing HEAD http://h:9/a.csv in 2.7s, after 10 retries, max_retries: 10, \
                    retry_timeout: 180s  - HTTP error: error sending request: client error (Connect): tcp connect error: \
                    Connection refused (os error 111)";
        assert_eq!(plain_cause(said), "Connection refused (os error 111), after 10 retries");
        assert_eq!(plain_cause("Object not found"), "Object not found");
        let answered =
            "Generic S3 error: Error performing GET http://h/a in 1ms - Server returned non-2xx status code: 403";
        assert_eq!(plain_cause(answered), "Server returned non-2xx status code: 403");
    }

    #[test]
    fn only_secrets_are_removed_from_messages() {
        let location = Location::parse("https://user:hunter22@host/x?sig=c2VjcmV0", std::path::Path::new("/")).unwrap();
        let settings = StoreSettings::new(vec![("AWS_SECRET_ACCESS_KEY".to_owned(), "wJalrXUtn".to_owned())]);
        let secrets = Secrets::new(&location, &settings);
        let error = std::io::Error::other(
            "GET https://user:hunter22@host/a/b?sig=c2VjcmV0&x=1: failed (wJalrXUtn), see http://other:80/?q#f, \
             c2VjcmV0",
        );
        let text = secrets.redact_error(&error);
        assert_eq!(text, "GET https://host/a/b: failed ([hidden]), see http://other:80/, [hidden]");
    }
}
