//! Opens the clients of remote stores, which keep credentials with the host that the user named.
//!
//! A request to a store carries a session token, a signature or a key in its headers or its URL. A client that follows
//! a redirect to another host hands them over. So the answer of a store is its own answer: a redirect within the named
//! origin (scheme, host and port) is followed, any other is an error, and nothing is sent to its target. The same holds
//! for the servers that credentials are requested from. Plain web servers are sent no credentials, and their redirects
//! are followed.

use std::{future::Future, net::ToSocketAddrs, path::Path, pin::Pin, str::FromStr, sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreScheme,
    aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
    gcp::GoogleCloudStorageBuilder,
    http::HttpBuilder,
    path::Path as ObjectPath,
};
use reqwest::{ClientBuilder, redirect::Policy};
use url::{Position, Url};

use super::{given::SmallFile, location::Location, settings::StoreSettings};
use crate::error::{Error, Result};

/// Maximum redirects within one origin.
const MAX_REDIRECTS: usize = 10;

/// Header in which S3 names the region of a bucket.
const REGION: &str = "x-amz-bucket-region";

/// Settings that name servers, without the cloud's prefix.
const SERVERS: [&str; 11] = [
    "endpoint",
    "endpoint_url",
    "endpoint_url_s3",
    "endpoint_url_sts",
    "metadata_endpoint",
    "container_credentials_full_uri",
    "storage_endpoint",
    "storage_authority_host",
    "authority_host",
    "msi_endpoint",
    "base_url",
];

/// Prefixes of settings, and the schemes that they are for.
const CLOUDS: [(&str, &[&str]); 3] =
    [("aws_", &["s3", "s3a"]), ("google_", &["gs"]), ("azure_", &["az", "azure", "adl", "abfs", "abfss"])];

/// Fails if a setting that names a server of this location is no URL, which the client would end the process for.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), with the name of the setting.
pub(super) fn check_servers(location: &Location, settings: &StoreSettings) -> Result<()> {
    let concerns = |name: &str| {
        let cloud = CLOUDS.iter().find_map(|(prefix, schemes)| Some((name.strip_prefix(prefix)?, schemes)));
        let (rest, applies) =
            cloud.map_or((name, true), |(rest, schemes)| (rest, schemes.contains(&location.url().scheme())));
        applies && SERVERS.contains(&rest)
    };
    for (name, value) in
        settings.iter().filter(|(name, value)| !value.is_empty() && concerns(&name.to_ascii_lowercase()))
    {
        let web = Url::parse(value).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let plain = web.filter(|url| url.query().is_none() && url.fragment().is_none());
        if plain.is_none() || http::Uri::from_str(value).is_err() {
            return Err(Error::usage(format!("expected a URL such as https://HOST or http://HOST:PORT in {name}"))
                .at_location(location.to_string())
                .with_hint("a server is named with its scheme, https:// or http://, and without a query"));
        }
    }
    Ok(())
}

/// Settings that name files with credentials, which the client reads.
const FILES: [&str; 6] = [
    "google_service_account",
    "google_service_account_path",
    "google_application_credentials",
    "aws_web_identity_token_file",
    "aws_container_authorization_token_file",
    "azure_federated_token_file",
];

/// A file with credentials.
const FILE: SmallFile = SmallFile::new("a file with credentials", 1 << 20);

/// Fails if a setting names a pipe, a device or a large file, which the client would read to its end.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage).
pub(super) fn check_files(settings: &StoreSettings) -> Result<()> {
    let named = settings.iter().filter(|(name, _)| FILES.contains(&&*name.to_ascii_lowercase()));
    named.map(|(_, path)| Path::new(path)).try_for_each(|path| FILE.check_path(path))
}

/// Opens the client of a store; returns it with the path that the URL names.
pub(super) fn open_client(
    url: &Url,
    options: &[(String, String)],
) -> object_store::Result<(Arc<dyn ObjectStore>, ObjectPath)> {
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    macro_rules! built {
        ($builder:expr, $follows:expr) => {{
            let configured = options.iter().fold($builder, |builder, (name, value)| match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            });
            Arc::new(configured.with_http_connector(Connector { follows: $follows }).build()?)
        }};
    }
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder::new().with_url(url.as_str()), false),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder::new().with_url(url.as_str()), false),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder::new().with_url(url.as_str()), false),
        ObjectStoreScheme::Http => built!(HttpBuilder::new().with_url(&url[..Position::BeforePath]), true),
        ObjectStoreScheme::Memory => Arc::new(object_store::memory::InMemory::new()),
        _ => return Err(generic_error("expected the URL of a store")),
    };
    Ok((store, path))
}

fn generic_error(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Generic { store: "HTTP client", source: cause.into() }
}

/// Makes clients as `object_store` does, apart from redirects.
#[derive(Debug)]
struct Connector {
    /// Whether redirects to other hosts are followed.
    follows: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let builder = configured_builder(options)?;
        if self.follows {
            return Ok(HttpClient::new(builder.build().map_err(generic_error)?));
        }
        let policy = Policy::custom(|attempt| match attempt.previous().first() {
            Some(named) if named.origin() == attempt.url().origin() && attempt.previous().len() <= MAX_REDIRECTS => {
                attempt.follow()
            }
            _ => attempt.stop(),
        });
        Ok(HttpClient::new(NamedHost(builder.redirect(policy).build().map_err(generic_error)?)))
    }
}

/// Returns a builder whose TLS is that of ring: the only implementation that is compiled in, which has to be named
/// once.
pub(super) fn client_builder() -> ClientBuilder {
    // It fails if one is named already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientBuilder::new()
}

/// Returns a builder with all settings that a user can give; those that only programs can give are not used here.
fn configured_builder(options: &ClientOptions) -> object_store::Result<ClientBuilder> {
    use ClientConfigKey as Key;
    let text = |key: Key| options.get_config_value(&key);
    let broken =
        |key: &Key, text: &str| generic_error(format!("expected another value of `{}`, found `{text}`", key.as_ref()));
    let duration = |key: Key| -> object_store::Result<Option<Duration>> {
        text(key).map(|text| humantime::parse_duration(&text).map_err(|_| broken(&key, &text))).transpose()
    };
    let number = |key: Key| text(key).map(|text| text.parse().map_err(|_| broken(&key, &text))).transpose();
    let flag = |key: Key| match text(key).unwrap_or_default().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Ok(true),
        "" | "0" | "false" | "off" | "no" | "n" => Ok(false),
        other => Err(broken(&key, other)),
    };
    let mut builder = client_builder()
        .user_agent(text(Key::UserAgent).unwrap_or_else(|| concat!("shardify/", env!("CARGO_PKG_VERSION")).to_owned()))
        .https_only(!flag(Key::AllowHttp)?)
        .danger_accept_invalid_certs(flag(Key::AllowInvalidCertificates)?)
        .http2_keep_alive_while_idle(flag(Key::Http2KeepAliveWhileIdle)?)
        .http2_keep_alive_interval(duration(Key::Http2KeepAliveInterval)?)
        .http2_max_frame_size(number(Key::Http2MaxFrameSize)?);
    if flag(Key::NoSystemCertificates)? {
        builder = builder.tls_certs_only([]);
    }
    if let Some(proxy) = text(Key::ProxyUrl) {
        let excluded = text(Key::ProxyExcludes).and_then(|hosts| reqwest::NoProxy::from_string(&hosts));
        builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(generic_error)?.no_proxy(excluded));
        if let Some(certificate) = text(Key::ProxyCaCertificate) {
            let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).map_err(generic_error)?;
            builder = builder.tls_certs_merge([certificate]);
        }
    }
    let with = |builder: ClientBuilder, value, set: fn(ClientBuilder, Duration) -> ClientBuilder| match value {
        Some(value) => set(builder, value),
        None => builder,
    };
    builder = with(builder, duration(Key::Timeout)?, ClientBuilder::timeout);
    builder = with(builder, duration(Key::ConnectTimeout)?, ClientBuilder::connect_timeout);
    builder = with(builder, duration(Key::ReadTimeout)?, ClientBuilder::read_timeout);
    builder = with(builder, duration(Key::PoolIdleTimeout)?, |builder, time| builder.pool_idle_timeout(time));
    builder = with(builder, duration(Key::Http2KeepAliveTimeout)?, ClientBuilder::http2_keep_alive_timeout);
    if let Some(most) = number(Key::PoolMaxIdlePerHost)? {
        builder = builder.pool_max_idle_per_host(most as usize);
    }
    if flag(Key::Http2Only)? {
        builder = builder.http2_prior_knowledge();
    } else if flag(Key::Http1Only)? {
        builder = builder.http1_only();
    }
    if flag(Key::RandomizeAddresses)? {
        builder = builder.dns_resolver(Arc::new(Spread));
    }
    Ok(builder)
}

/// Resolves names and starts at a random one of the addresses, so that connections are spread over the servers of a
/// store.
struct Spread;

impl reqwest::dns::Resolve for Spread {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let look = move || {
            let mut found: Vec<_> = (name.as_str(), 0).to_socket_addrs()?.collect();
            let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), name.as_str());
            let first = random.checked_rem(found.len() as u64).and_then(|first| usize::try_from(first).ok());
            found.rotate_left(first.unwrap_or(0));
            std::io::Result::Ok(found)
        };
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(look).await??;
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// A client whose requests are answered by the host that they name, or not at all.
#[derive(Debug)]
struct NamedHost(reqwest::Client);

impl HttpService for NamedHost {
    fn call<'s, 'a>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'a>>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let named = request.uri().to_string();
            let answer = self.0.call(request).await?;
            let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
            let (target, region) = (header("location"), header(REGION));
            let elsewhere = answer.status().is_redirection() && answer.status() != http::StatusCode::NOT_MODIFIED;
            if !elsewhere || (target.is_none() && region.is_none()) {
                return Ok(answer);
            }
            Err(HttpError::new(HttpErrorKind::Unknown, Redirected::new(&named, target, region)))
        })
    }
}

/// A redirect to another host, which was not followed.
#[derive(Debug, Clone)]
pub(super) struct Redirected {
    /// The origin that was named.
    from: String,
    /// The origin of the target, if the answer names one.
    to: Option<String>,
    /// The region of the bucket, if the answer names it.
    region: Option<String>,
}

impl Redirected {
    fn new(from: &str, to: Option<&str>, region: Option<&str>) -> Self {
        let origin = |url: std::result::Result<Url, _>| match url {
            Ok(url) if url.has_host() => url.origin().ascii_serialization(),
            _ => "an address that cannot be read".to_owned(),
        };
        let from = Url::parse(from);
        let to = to.map(|to| origin(from.clone().and_then(|from| from.join(to))));
        let is_region = |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && text.len() < 40;
        Self { from: origin(from), to, region: region.filter(is_region).map(str::to_owned) }
    }

    /// Returns the redirect that an error of a client comes from.
    pub(super) fn find_cause<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }

    /// Describes the redirect and adds what to do.
    pub(super) fn to_error(&self) -> Error {
        let Self { from, to, region } = self;
        let to = to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
        let error = Error::storage(format!("expected an answer of {from}, found a redirect{to}"));
        match region {
            Some(region) => error.with_hint(format!("the bucket is in another region: set AWS_REGION={region}")),
            None => error.with_hint(
                "nothing was sent there, because credentials are for the host that was named: if the other one is \
                 right, name it as the endpoint",
            ),
        }
    }
}

impl std::fmt::Display for Redirected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_error().message())
    }
}

impl std::error::Error for Redirected {}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::Mutex,
    };

    use super::*;
    use crate::{
        error::Kind,
        storage::{RemoteStore, Store},
    };

    /// Answers all requests with what `answer` makes of the first line; returns the port, and the heads that arrived.
    fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, heads) = (server.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
        let noted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let (mut head, mut byte) = (Vec::new(), [0; 1]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let text = answer(head.lines().next().unwrap_or_default());
                noted.lock().unwrap().push(head);
                let _ = stream.write_all(text.as_bytes());
            }
        });
        (port, heads)
    }

    fn redirect(status: u16, more: &str) -> String {
        format!("HTTP/1.1 {status} Moved\r\n{more}content-length: 0\r\nconnection: close\r\n\r\n")
    }

    const TOKEN: &str = "t0ken-of-mine";

    /// Opens a store of each cloud at a port of this machine.
    fn stores(port: u16) -> Vec<Box<dyn Store>> {
        let at = format!("http://127.0.0.1:{port}");
        let s3 = [
            ("AWS_ENDPOINT_URL", &*at),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "me"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret-of-mine"),
            ("AWS_SESSION_TOKEN", TOKEN),
        ];
        let key = format!(
            r#"{{"gcs_base_url":"{at}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#
        );
        let google = [("GOOGLE_SERVICE_ACCOUNT_KEY", &*key), ("GOOGLE_ALLOW_HTTP", "true")];
        let azure = [
            ("AZURE_STORAGE_ENDPOINT", &*at),
            ("AZURE_ALLOW_HTTP", "true"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
            ("AZURE_STORAGE_TOKEN", TOKEN),
        ];
        let open = |url: &str, settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let location = Location::parse(url, Path::new("/")).unwrap();
            Box::new(RemoteStore::open(&location, &StoreSettings::new(settings)).unwrap()) as Box<dyn Store>
        };
        vec![open("s3://bucket/data", &s3), open("gs://bucket/data", &google), open("az://container/data", &azure)]
    }

    #[test]
    fn redirects_of_stores_are_errors_and_nothing_is_sent_to_their_target() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let target = other.local_addr().unwrap().port();
        for status in [301, 302, 303, 307, 308] {
            let to = format!("location: http://me:pass@127.0.0.1:{target}/bucket/data/x?sig=pass\r\n");
            let (port, heads) = serve(move |_| redirect(status, &to));
            for store in stores(port) {
                let errors = [
                    store.get("x").unwrap_err(),
                    store.head("x").unwrap_err(),
                    store.put("x", "1".into()).unwrap_err(),
                    store.put_if_absent("x", "1".into()).unwrap_err(),
                    store.list_folder("").unwrap_err(),
                    store.read("x").map(drop).unwrap_err(),
                    store
                        .create_sink("x")
                        .unwrap()
                        .finish()
                        .and_then(|staged| store.publish_staged(vec![staged]))
                        .unwrap_err(),
                ];
                for error in errors {
                    let expected = format!(
                        "expected an answer of http://127.0.0.1:{port}, found a redirect to http://127.0.0.1:{target}"
                    );
                    assert_eq!((error.kind(), error.message()), (Kind::Storage, &*expected), "{status} {error}");
                    assert!(!error.hints().join(" ").contains("pass") && std::error::Error::source(&error).is_none());
                }
            }
            assert!(heads.lock().unwrap().iter().any(|head| head.contains(TOKEN)), "the named host is sent the token");
            assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{status}");
        }
    }

    #[test]
    fn a_redirect_by_way_of_the_named_host_leads_nowhere_else_either() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let to = format!("location: //127.0.0.1:{}/x\r\n", other.local_addr().unwrap().port());
        let (port, heads) =
            serve(
                move |line| {
                    if line.contains("/second") { redirect(307, &to) } else { redirect(307, "location: /second\r\n") }
                },
            );
        for store in stores(port) {
            heads.lock().unwrap().clear();
            assert!(store.get("x").unwrap_err().message().contains("found a redirect to http://127.0.0.1:"));
            assert_eq!(heads.lock().unwrap().len(), 2, "the redirect within the host is followed");
        }
        assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        let (port, heads) = serve(|_| redirect(307, "location: /loop\r\n"));
        assert!(stores(port).remove(0).get("x").is_err());
        assert!(heads.lock().unwrap().len() <= MAX_REDIRECTS + 1);
    }

    #[test]
    fn a_bucket_in_another_region_is_told_with_its_region() {
        for more in ["", "location: https://bucket.s3.eu-west-1.amazonaws.com/x\r\n"] {
            let (port, _) = serve(move |_| redirect(301, &format!("x-amz-bucket-region: eu-west-1\r\n{more}")));
            let error = stores(port).remove(0).get("x").unwrap_err();
            assert!(error.hints().join(" ").contains("AWS_REGION=eu-west-1"), "{error}");
        }
    }

    #[test]
    fn redirects_of_web_servers_are_followed_without_credentials() {
        let (target, heads) = serve(|_| {
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nconnection: \
             close\r\n\r\nhi"
                .to_owned()
        });
        let (port, _) = serve(move |_| redirect(302, &format!("location: http://127.0.0.1:{target}/y\r\n")));
        let location = Location::parse(&format!("http://me:pass@127.0.0.1:{port}"), Path::new("/")).unwrap();
        let settings = StoreSettings::new(vec![("AWS_SESSION_TOKEN".to_owned(), TOKEN.to_owned())]);
        let store: &dyn Store = &RemoteStore::open(&location, &settings).unwrap();
        assert_eq!(store.get("x").unwrap().unwrap(), "hi");
        let heads = heads.lock().unwrap().join("");
        let lower = heads.to_ascii_lowercase();
        assert!(!lower.contains("authorization") && !heads.contains("pass") && !heads.contains(TOKEN), "{heads}");
    }

    #[test]
    fn servers_without_a_scheme_are_usage_errors_that_name_the_setting() {
        let check = |url: &str, name: &str, value: &str| {
            let settings = StoreSettings::new(vec![(name.to_owned(), value.to_owned())]);
            check_servers(&Location::parse(url, Path::new("/")).unwrap(), &settings)
        };
        for value in [
            "minio",
            "localhost:9000",
            "http:/x",
            "http://",
            "ftp://x",
            "//x",
            "http://a b",
            "http://x/?q",
            "http://x:pw",
        ] {
            for (url, name) in [
                ("s3://b/x", "AWS_ENDPOINT_URL"),
                ("s3://b/x", "AWS_ENDPOINT_URL_S3"),
                ("s3a://b/x", "aws_endpoint"),
                ("gs://b/x", "GOOGLE_BASE_URL"),
                ("az://b/x", "AZURE_STORAGE_ENDPOINT"),
            ] {
                let error = check(url, name, value).unwrap_err();
                assert_eq!(error.kind(), Kind::Usage);
                assert!(error.message().ends_with(&format!("in {name}")) && !error.message().contains("pw"), "{error}");
            }
            assert!(check("gs://b/x", "AWS_ENDPOINT_URL", value).is_ok(), "a setting of another cloud does not matter");
        }
        for value in ["http://localhost:9000", "https://s3.example.org/path", "http://[::1]:9000/", ""] {
            assert!(check("s3://b/x", "AWS_ENDPOINT_URL", value).is_ok(), "{value}");
        }
    }
}
