//! Locations: every path that a user types becomes a URL, so that local and remote data share one code path.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use url::Url;

use crate::error::{Error, Result};

const REMOTE_SCHEMES: &[&str] = &["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "memory"];

/// Replacement for what may be a secret.
const HIDDEN: &str = "[hidden]";

/// A file, folder, object or prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    url: Url,
    local: Option<PathBuf>,
}

impl Location {
    /// Parses a local path or a URL. Relative paths are resolved against `folder`.
    ///
    /// # Errors
    /// When the scheme is not supported, or the URL is malformed.
    pub fn parse(text: &str, folder: &Path) -> Result<Self> {
        let scheme =
            text.split_once("://").map(|(scheme, _)| scheme).or_else(|| text.strip_prefix("file:").map(|_| "file"));
        let Some(scheme) = scheme.map(str::to_ascii_lowercase) else {
            let path = folder.join(text);
            return if is_mistaken(text, &path) {
                Err(malformed_location(text).with_hint(OWN_NAME))
            } else {
                Self::from_local_path(&path)
            };
        };
        let url = || Url::parse(text).map_err(|e| malformed_location(text).with_cause(e));
        if scheme == "file" {
            let path = url()?.to_file_path().map_err(|()| malformed_location(text))?;
            return if is_mistaken(text, &path) {
                Err(malformed_location(text).with_hint(OWN_NAME))
            } else {
                Self::from_local_path(&path)
            };
        }
        if !REMOTE_SCHEMES.contains(&&*scheme) {
            let known = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
            let found = if known { format!("`{scheme}:`") } else { "none".to_owned() };
            return Err(Error::usage(format!("expected a path or a URL of a known scheme, found {found}"))
                .at_location(plain_argument(text))
                .with_hint("use a path or one of file:, s3:, gs:, az:, http:, https:")
                .with_hint(match &*scheme {
                    "hf" => "download the repository first: hf download REPO --repo-type dataset --local-dir FOLDER",
                    "hdfs" | "abfs" | "abfss" => "copy or mount the files first: hdfs dfs -get, or a FUSE mount",
                    "r2" | "minio" | "oss" | "b2" => "use s3: with $AWS_ENDPOINT_URL: most stores speak its protocol",
                    _ => "copy the files to a folder or a bucket first, for example with rclone",
                }));
        }
        let url = url()?;
        let shown = without_secrets(&url);
        if (!url.has_host() && scheme != "memory") || plain_urls(shown.as_str()) != shown.as_str() {
            return Err(malformed_location(text));
        }
        Ok(Self { url, local: None })
    }

    /// Creates the location of a local path; `.` and `..` are resolved lexically.
    ///
    /// # Errors
    /// When the path is not absolute after normalising.
    pub fn from_local_path(path: &Path) -> Result<Self> {
        let path = normalise_path(path);
        let url = Url::from_file_path(&path).map_err(|()| malformed_location(&path.to_string_lossy()))?;
        Ok(Self { url, local: Some(path) })
    }

    /// Returns the path if the location is local.
    pub fn local_path(&self) -> Option<&Path> {
        self.local.as_deref()
    }

    /// Whether it is on a plain web server, which need not support ranges.
    pub fn is_web(&self) -> bool {
        self.url.scheme().starts_with("http")
    }

    /// Whether its store lists objects in the order of their names.
    pub fn lists_in_order(&self) -> bool {
        self.local_path().is_none() && self.url.scheme() != "memory"
    }

    /// Returns the URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the location of a path relative to this one.
    #[must_use]
    pub fn join(&self, below: &str) -> Self {
        if below.is_empty() {
            return self.clone();
        }
        if let Some(local) = &self.local {
            let path = local.join(below);
            if let Ok(location) = Self::from_local_path(&path) {
                return location;
            }
        }
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(below.split('/'));
        }
        Self { url, local: None }
    }

    /// Returns the path of this location relative to `above`; empty if they are equal, `None` if it is not below
    /// `above`.
    pub fn relative_to(&self, above: &Self) -> Option<String> {
        if let (Some(path), Some(above)) = (&self.local, &above.local) {
            return Some(path.strip_prefix(above).ok()?.to_string_lossy().into_owned());
        }
        let root = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port());
        if root(&self.url) != root(&above.url) {
            return None;
        }
        let rest = self.url.path().trim_end_matches('/').strip_prefix(above.url.path().trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| percent_decode(rest.trim_start_matches('/')))
    }

    /// Returns the folder that contains this location, and its last name.
    pub fn split_name(&self) -> Option<(Self, String)> {
        if let Some(path) = &self.local {
            let name = path.file_name()?.to_string_lossy().into_owned();
            return Some((Self::from_local_path(path.parent()?).ok()?, name));
        }
        let name = self.url.path_segments()?.rfind(|s| !s.is_empty())?.to_owned();
        let name = percent_decode(&name);
        let mut url = self.url.clone();
        url.path_segments_mut().ok()?.pop_if_empty().pop();
        Some((Self { url, local: None }, name))
    }
}

fn malformed_location(text: &str) -> Error {
    Error::usage("expected a path or URL").at_location(plain_argument(text))
}

/// What to do if a file has a name like a URL.
const OWN_NAME: &str =
    "a URL begins with its scheme, such as s3:// or https://; if this is the name of a file, put ./ before it";

/// Returns where the host of a URL without a correct beginning may start, and whether the text can be nothing else:
/// `http:me:pass@h`, `//me:pass@h`, `me:pass@h:/x`.
fn host_start(text: &str) -> Option<(usize, bool)> {
    let slashes = |text: &str| text.len() - text.trim_start_matches(['/', '\\']).len();
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let name = &text[..text.find(|c| !is_of_scheme(c)).unwrap_or(text.len())];
    let known = REMOTE_SCHEMES.iter().any(|scheme| name.eq_ignore_ascii_case(scheme));
    let rest = &text[name.len()..];
    let colon = usize::from(rest.starts_with(':') && !name.is_empty());
    let start = name.len() + colon + slashes(&rest[colon..]);
    if known && (colon == 1 || rest.starts_with("//")) {
        return Some((start, true));
    }
    let has_user = |start: usize| {
        let first = text[start..].split(['/', '\\']).next().unwrap_or_default();
        first.split_once('@').is_some_and(|(user, _)| user.contains(':') || text[..start].ends_with("//"))
    };
    // In `me:pass@h`, `me` is the user and no scheme.
    let others = (colon == 1).then_some(start);
    std::iter::once(slashes(text)).chain(others).find(|start| has_user(*start)).map(|start| (start, false))
}

/// Whether a text that is not a URL was meant as one. A name of a file may look like one, too.
fn is_mistaken(text: &str, path: &Path) -> bool {
    host_start(text).is_some_and(|(_, certain)| certain || path.symlink_metadata().is_err())
}

/// Removes user names, passwords and queries from a path or a URL that a user gave, also from a malformed one.
pub fn plain_argument(text: &str) -> String {
    let Some((start, certain)) = host_start(text) else { return plain_urls(text) };
    let (before, rest) = text.split_at(start);
    if before.ends_with("://") {
        // Nothing ends an argument, whatever ends a URL in prose.
        return match Url::parse(text) {
            Ok(url) => plain_urls(without_secrets(&url).as_str()),
            Err(_) => plain_urls(&text.replace(ends_url, "_")),
        };
    }
    // Where a slash is missing, a password may end at any `@`.
    let first = rest.find(['/', '\\']).unwrap_or(rest.len());
    let (own, after) = match rest.rfind('@').filter(|_| certain) {
        Some(at) => rest.split_at(at + 1),
        None => rest.split_at(first),
    };
    let host = if own.ends_with('@') && certain { "" } else { host_of(own) };
    let after = if certain { after.split(['?', '#']).next().unwrap_or_default() } else { after };
    plain_urls(&format!("{before}{host}{after}"))
}

/// Returns host and port of the part of a URL before its path; a port that is no number may be a password.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once('@') {
        Some((_, host)) => host,
        None if has_port(authority) => authority,
        None => HIDDEN,
    }
}

/// Whether what follows the host, if anything does, is a port, or stands for one in a help text.
fn has_port(authority: &str) -> bool {
    let host_end = authority.rfind(']').unwrap_or(0);
    let port = authority[host_end..].split_once(':').map_or("", |(_, port)| port);
    port.bytes().all(|b| b.is_ascii_digit()) || port == "PORT"
}

/// Returns a URL without user, password, query and fragment.
fn without_secrets(url: &Url) -> Url {
    let mut url = url.clone();
    // A password or signature in an error message or the log would leak; failures here are harmless.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn percent_decode(text: &str) -> String {
    object_store::path::Path::from_url_path(text).map_or_else(|_| text.to_owned(), |p| p.to_string())
}

fn normalise_path(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Local paths print as paths, everything else as a URL without credentials.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.local {
            return write!(f, "{}", path.display());
        }
        f.write_str(without_secrets(&self.url).as_str())
    }
}

/// Whether a character ends a URL in prose.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ',')
}

/// Removes user names, passwords and queries from the URLs of a text, so that messages never repeat a user's secrets.
pub fn plain_urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("//") {
        let (before, mut tail) = rest.split_at(start + 2);
        out.push_str(before);
        let token = |tail: &str| tail.find(ends_url).unwrap_or(tail.len());
        let first = |tail: &str| tail[..token(tail)].find(['/', '\\', '?', '#']).unwrap_or(token(tail));
        if !before.ends_with("://") || tail.starts_with('/') {
            // A scheme may be missing.
            let (slashes, more) = tail.split_at(tail.len() - tail.trim_start_matches('/').len());
            out.push_str(slashes);
            let host = &more[..first(more)];
            rest = &more[host.rfind('@').filter(|at| host[..*at].contains(':')).map_or(0, |at| at + 1)..];
            continue;
        }
        let authority = &tail[..first(tail)];
        if !authority.contains('@') && !has_port(authority) {
            // The end of a password with a delimiter in it.
            let line = &tail[..tail.find('\n').unwrap_or(tail.len())];
            match tail[..token(tail)].rfind('@').or_else(|| line.find('@')) {
                Some(at) => tail = &tail[at + 1..],
                None => {
                    out.push_str(HIDDEN);
                    tail = &tail[authority.len()..];
                }
            }
        }
        let (url, after) = tail.split_at(token(tail));
        let (address, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        let (authority, path) = address.split_at(first(address));
        out.push_str(host_of(authority));
        out.push_str(&plain_urls(path));
        // A colon ends a URL in prose.
        out.push_str(if query.ends_with(':') { ":" } else { "" });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and make their own folders")]
mod tests {
    use super::*;

    fn parse(text: &str) -> Location {
        Location::parse(text, Path::new("/data/set")).unwrap()
    }

    #[test]
    fn paths_and_file_urls_are_local() {
        assert_eq!(parse("a/../b.csv").to_string(), "/data/set/b.csv");
        assert_eq!(parse("file:///x/y%20z").local_path().unwrap(), Path::new("/x/y z"));
        assert_eq!(parse("/x/./y").to_string(), "/x/y");
        assert_eq!(parse("odd:name.csv").to_string(), "/data/set/odd:name.csv");
    }

    #[test]
    fn remote_urls_lose_their_secrets_when_printed() {
        let location = parse("https://user:secret@host/a/b.csv?sig=secret");
        assert_eq!(location.to_string(), "https://host/a/b.csv");
        assert_eq!(parse("s3://bucket/p").join("x/y.tar").to_string(), "s3://bucket/p/x/y.tar");
        assert!(Location::parse("ftp://host/x", Path::new("/")).is_err());
    }

    /// Spellings of a URL with user and password; the last ones are paths only by their form.
    const MALFORMED: [&str; 39] = [
        "http:bob:s3cret@h",
        "http:bob:s3cret@h/x?sig=s3cret",
        "http:bob:s3cret",
        "HTTP:bob:s3cret@h",
        "http:/bob:s3cret@h/x",
        "https:\\\\bob:s3cret@h\\x",
        "http//bob:s3cret@h/x",
        "http://bob:s3cret@",
        "http://bob:s3cret",
        "http://bob:s3cret@h:99999/x",
        "http://bob:s3cret@h:x/",
        "http://bob:se/s3cret@h/x",
        "http://bob:se?s3cret@h/x",
        "http://bob:se#s3cret@h/x",
        "http://bob:se s3cret@h:99999/x",
        "http://bob:s3cret%40h/x",
        "http://bob:s3cret@h@h2:x/",
        "http://http://bob:s3cret@h/x",
        "https://h//bob:s3cret@h2/x",
        "http://[bob:s3cret@h/x",
        "http:// bob:s3cret@h/x",
        "http://bob:s3cret@h\u{7}/x",
        "http://bo'b:s3cret@h:99999/x",
        "s3:bob:s3cret@bucket",
        "s3:/bob:s3cret@bucket/x",
        "s3:///bob:s3cret@bucket/x",
        "gs:bob:s3cret@bucket",
        "abfss:/bob:s3cret@account/x",
        "ftp://bob:s3cret@h/x",
        "ftp:bob:s3cret@h/x",
        "postgres://bob:s3cret@h/x?p=s3cret",
        "bob:s3cret@http://h/x",
        "file://bob:s3cret@h/x",
        "file:bob:s3cret@h/x",
        "file:///bob:s3cret@h/x",
        "bob:s3cret@h",
        "bob:s3cret@h:/x",
        "//bob:s3cret@h/x",
        "/bob:s3cret@h/x",
    ];

    #[test]
    fn malformed_urls_are_errors_without_their_passwords() {
        for text in MALFORMED {
            match Location::parse(text, Path::new("/data/set")) {
                Ok(location) => assert_eq!(location.to_string(), "http://h/x", "{text}"),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
                    let all = format!("{error} {cause} {}", error.hints().join(" "));
                    assert_eq!(error.kind(), crate::error::Kind::Usage, "{text}");
                    assert!(!all.contains("cret") && !all.contains("bob:"), "{text}: {all}");
                }
            }
            assert!(!plain_argument(text).contains("cret"), "{text}: {}", plain_argument(text));
            // In the error of another library.
            let quoted = plain_urls(&format!("opening {text} failed"));
            assert!(
                !text.contains("://")
                    || text.contains([' ', '\''])
                    || text.starts_with("bob")
                    || !quoted.contains("s3cret"),
                "{quoted}"
            );
        }
    }

    #[test]
    fn names_with_an_at_sign_are_not_shortened() {
        for text in [
            "s3://bucket/a@b/c:d@e.csv",
            "s3://bucket/a//b@c",
            "https://host:8080/@user/x",
            "https://[::1]:8080/x",
            "https://host/a,b",
            "http://HOST:PORT/x",
            "/data/a:b@c.csv",
            "a/b:c@d",
            "mail@home.csv",
        ] {
            assert_eq!(plain_argument(text), text);
            assert_eq!(plain_urls(text), text);
        }
        assert!(parse("mail@home.csv").local_path().is_some());
        assert_eq!(parse("HTTP://h/x").to_string(), "http://h/x");
        let folder = tempfile::tempdir().unwrap();
        let named = |text: &str| Location::parse(text, folder.path());
        assert!(named("10:20@home.csv").unwrap_err().hints()[0].contains("./"));
        assert!(named("./10:20@home.csv").is_ok());
        drop(std::fs::create_dir(folder.path().join("10:20@home.csv")));
        assert!(named("10:20@home.csv").is_ok(), "what exists is a path");
    }

    #[test]
    fn below_returns_the_path_relative_to_a_parent() {
        let below = |one: &str, other: &str| parse(one).relative_to(&parse(other));
        assert_eq!(below("/a/b/c", "/a").unwrap(), "b/c");
        assert_eq!(below("/a", "/a").unwrap(), "");
        assert_eq!(below("/ab", "/a"), None);
        assert_eq!(below("s3://k/a%20b/c/", "s3://k/").unwrap(), "a b/c");
        assert_eq!(below("s3://k/ab", "s3://k/a"), None);
        assert_eq!(below("s3://other/a", "s3://k"), None);
        assert_eq!(below("s3://k/a", "/a"), None);
    }

    #[test]
    fn split_name_is_the_inverse_of_join() {
        for text in ["s3://bucket/p/q.csv", "/p/q.csv"] {
            let (folder, name) = parse(text).split_name().unwrap();
            assert_eq!(name, "q.csv");
            assert_eq!(folder.join(&name).to_string(), text);
        }
    }
}
