//! Locations: every path that a user types becomes a URL, so that local and remote data share one code path.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use url::Url;

use crate::error::{Error, Result};

const REMOTE_SCHEMES: &[&str] = &["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "memory"];

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
        match scheme {
            None => Self::local(&folder.join(text)),
            Some("file") => {
                let url = Url::parse(text).map_err(|e| malformed(text).cause(e))?;
                let path = url.to_file_path().map_err(|()| malformed(text))?;
                Self::local(&path)
            }
            Some(scheme) if REMOTE_SCHEMES.contains(&scheme) => {
                let url = Url::parse(text).map_err(|e| malformed(text).cause(e))?;
                Ok(Self { url, local: None })
            }
            Some(scheme) => Err(Error::usage(format!("expected a path or a URL of a known scheme, found `{scheme}:`"))
                .at(plain_urls(text))
                .hint("use a path or one of file:, s3:, gs:, az:, http:, https:")),
        }
    }

    /// Creates the location of a local path; `.` and `..` are resolved lexically.
    ///
    /// # Errors
    /// When the path is not absolute after normalising.
    pub fn local(path: &Path) -> Result<Self> {
        let path = normalise(path);
        let url = Url::from_file_path(&path).map_err(|()| malformed(&path.to_string_lossy()))?;
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
            if let Ok(location) = Self::local(&path) {
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
    pub fn below(&self, above: &Self) -> Option<String> {
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
            return Some((Self::local(path.parent()?).ok()?, name));
        }
        let name = self.url.path_segments()?.rfind(|s| !s.is_empty())?.to_owned();
        let name = percent_decode(&name);
        let mut url = self.url.clone();
        url.path_segments_mut().ok()?.pop_if_empty().pop();
        Some((Self { url, local: None }, name))
    }
}

fn malformed(text: &str) -> Error {
    Error::usage("expected a path or URL").at(plain_urls(text))
}

fn percent_decode(text: &str) -> String {
    object_store::path::Path::from_url_path(text).map_or_else(|_| text.to_owned(), |p| p.to_string())
}

fn normalise(path: &Path) -> PathBuf {
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
        let mut url = self.url.clone();
        // A password or signature in an error message or the log would leak; failures here are harmless.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        url.set_query(None);
        f.write_str(url.as_str())
    }
}

/// Removes user names, passwords and queries from the URLs of a text, so that messages never repeat a user's secrets.
pub fn plain_urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, url) = rest.split_at(start + 3);
        out.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ',');
        let (url, after) = url.split_at(url.find(ends).unwrap_or(url.len()));
        let (address, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        let host_end = address.find('/').unwrap_or(address.len());
        let host_start = address[..host_end].rfind('@').map_or(0, |at| at + 1);
        out.push_str(&address[host_start..]);
        // A colon ends a URL in prose.
        out.push_str(if query.ends_with(':') { ":" } else { "" });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
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

    #[test]
    fn below_returns_the_path_relative_to_a_parent() {
        let below = |one: &str, other: &str| parse(one).below(&parse(other));
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
