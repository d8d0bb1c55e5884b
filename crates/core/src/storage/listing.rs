//! Retries for responses of a remote store that are cut off.
//!
//! `object_store` retries failed requests, but not those whose response body is cut off. Listings and the start of an
//! upload are retried here. A listing resumes after the last name it returned:
//!
//! ```text
//! a b c | d e (cut) -> all after e
//! ```
//!
//! This requires names in order; otherwise a cut-off response is an error.

use std::{error::Error as _, sync::Arc};

use futures::{StreamExt, stream::BoxStream};
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore,
    client::{HttpError, HttpErrorKind},
    path::Path as ObjectPath,
};

/// Maximum retries per listing or request.
const MAX_RETRIES: usize = 4;

/// Objects of a remote store below a path.
pub(super) struct Listing {
    inner: Arc<dyn ObjectStore>,
    below: Option<ObjectPath>,
    stream: BoxStream<'static, Result<ObjectMeta, StoreError>>,
    last: Option<ObjectPath>,
    in_order: bool,
    retries: usize,
}

impl Listing {
    pub(super) fn new(inner: &Arc<dyn ObjectStore>, below: Option<ObjectPath>) -> Self {
        let stream = inner.list(below.as_ref());
        Self { inner: Arc::clone(inner), below, stream, last: None, in_order: true, retries: 0 }
    }

    /// Returns the next object; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<ObjectMeta, StoreError>> {
        loop {
            match self.stream.next().await {
                Some(Err(error)) if is_cut_off(&error) && self.in_order && self.retries < MAX_RETRIES => {
                    self.retries += 1;
                    self.stream = match &self.last {
                        None => self.inner.list(self.below.as_ref()),
                        Some(last) => self.inner.list_with_offset(self.below.as_ref(), last),
                    };
                }
                Some(Ok(meta)) => {
                    self.in_order &= self.last.as_ref().is_none_or(|last| *last < meta.location);
                    self.last = Some(meta.location.clone());
                    return Some(Ok(meta));
                }
                other => return other,
            }
        }
    }
}

/// Sends a request and repeats it if its response is cut off. The request must not change any named object.
pub(super) async fn retry_request<T, F: Future<Output = Result<T, StoreError>>>(
    request: impl Fn() -> F,
) -> Result<T, StoreError> {
    let mut retries = 0;
    loop {
        match request().await {
            Err(error) if is_cut_off(&error) && retries < MAX_RETRIES => retries += 1,
            answer => return answer,
        }
    }
}

/// Whether a response began but was cut off.
fn is_cut_off(error: &StoreError) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return matches!(http.kind(), HttpErrorKind::Decode | HttpErrorKind::Interrupted);
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{
        fmt,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::{FutureExt, stream};
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectStoreExt, PutMultipartOptions,
        PutOptions, PutPayload, PutResult, memory::InMemory,
    };

    use super::*;

    /// Lists three objects at a time and then fails.
    #[derive(Debug)]
    struct Cutting {
        inner: InMemory,
        /// Whether names come in reverse order.
        reversed: bool,
        listings: AtomicUsize,
    }

    impl fmt::Display for Cutting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cutting")
        }
    }

    type Res<T> = object_store::Result<T>;

    fn cut_off() -> StoreError {
        let cut = std::io::Error::other("error decoding response body");
        StoreError::Generic { store: "S3", source: Box::new(HttpError::new(HttpErrorKind::Decode, cut)) }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Cutting {
        async fn put_opts(&self, at: &ObjectPath, bytes: PutPayload, options: PutOptions) -> Res<PutResult> {
            self.inner.put_opts(at, bytes, options).await
        }
        async fn put_multipart_opts(
            &self,
            at: &ObjectPath,
            options: PutMultipartOptions,
        ) -> Res<Box<dyn MultipartUpload>> {
            self.inner.put_multipart_opts(at, options).await
        }
        async fn get_opts(&self, at: &ObjectPath, options: GetOptions) -> Res<GetResult> {
            self.inner.get_opts(at, options).await
        }
        fn delete_stream(&self, paths: BoxStream<'static, Res<ObjectPath>>) -> BoxStream<'static, Res<ObjectPath>> {
            self.inner.delete_stream(paths)
        }
        fn list(&self, below: Option<&ObjectPath>) -> BoxStream<'static, Res<ObjectMeta>> {
            self.listings.fetch_add(1, Ordering::Relaxed);
            let mut all: Vec<Res<ObjectMeta>> = self.inner.list(below).collect().now_or_never().unwrap();
            if self.reversed {
                all.reverse();
            }
            if all.len() > 3 {
                all.truncate(3);
                all.push(Err(cut_off()));
            }
            stream::iter(all).boxed()
        }
        fn list_with_offset(
            &self,
            below: Option<&ObjectPath>,
            after: &ObjectPath,
        ) -> BoxStream<'static, Res<ObjectMeta>> {
            self.listings.fetch_add(1, Ordering::Relaxed);
            let all = self.inner.list_with_offset(below, after).collect();
            let mut all: Vec<Res<ObjectMeta>> = all.now_or_never().unwrap();
            if all.len() > 3 {
                all.truncate(3);
                all.push(Err(cut_off()));
            }
            stream::iter(all).boxed()
        }
        async fn list_with_delimiter(&self, below: Option<&ObjectPath>) -> Res<ListResult> {
            self.inner.list_with_delimiter(below).await
        }
        async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> Res<()> {
            self.inner.copy_opts(from, to, options).await
        }
    }

    fn listed(objects: usize, reversed: bool) -> (Vec<String>, Option<StoreError>, usize) {
        let inner = InMemory::new();
        futures::executor::block_on(async {
            for i in 0..objects {
                inner.put(&ObjectPath::from(format!("d/{i:03}")), "x".into()).await.unwrap();
            }
        });
        let store = Arc::new(Cutting { inner, reversed, listings: AtomicUsize::new(0) });
        let dynamic: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
        let mut listing = Listing::new(&dynamic, Some(ObjectPath::from("d")));
        let (mut names, mut failed) = (Vec::new(), None);
        while let Some(next) = futures::executor::block_on(listing.next()) {
            match next {
                Ok(meta) => names.push(meta.location.to_string()),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        (names, failed, store.listings.load(Ordering::Relaxed))
    }

    #[test]
    fn a_cut_off_listing_is_resumed() {
        let (names, failed, listings) = listed(11, false);
        let expected: Vec<String> = (0..11).map(|i| format!("d/{i:03}")).collect();
        assert_eq!((names, failed.is_none(), listings), (expected, true, 4));
    }

    #[test]
    fn retries_are_limited_and_require_order() {
        let (names, failed, listings) = listed(40, false);
        assert_eq!((names.len(), failed.is_some(), listings), (15, true, 5));
        let (names, failed, listings) = listed(11, true);
        assert_eq!((names.len(), failed.is_some(), listings), (3, true, 1));
    }
}
