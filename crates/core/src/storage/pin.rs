//! The version of a remote object that all its reads must match. A source that is overwritten while it is read must not
//! yield a mix of both versions.
//!
//! An entity tag identifies a version. It comes from the listing or from the first response. Each later request is
//! conditional on it, and each response is checked, because not every server supports conditions.

use std::sync::{Arc, OnceLock};

use super::location::Location;
use crate::error::{Error, Result};

/// A version of an object, identified by its entity tag; unset before the first response if the listing had none.
#[derive(Debug, Clone, Default)]
pub struct Pin(Arc<OnceLock<String>>);

impl Pin {
    /// Creates a pin for the version with this entity tag; `None` pins the version that is read first.
    pub fn new(etag: Option<&str>) -> Self {
        let pin = OnceLock::new();
        if let Some(etag) = etag {
            // The cell is new, so setting it cannot fail.
            let _ = pin.set(etag.to_owned());
        }
        Self(Arc::new(pin))
    }

    /// Returns the condition of a request. Weak tags can be compared but cannot be used as conditions.
    pub(super) fn if_match_tag(&self) -> Option<String> {
        self.0.get().filter(|etag| !etag.starts_with("W/")).cloned()
    }

    /// Checks the entity tag of a response.
    pub(super) fn check_etag(&self, found: Option<&str>, location: &Location, path: &str) -> Result<()> {
        let Some(found) = found else { return Ok(()) };
        let expected = self.0.get_or_init(|| found.to_owned());
        if bare_etag(expected) == bare_etag(found) { Ok(()) } else { Err(self.version_changed(found, location, path)) }
    }

    /// Returns the error for an object whose version has changed.
    pub(super) fn version_changed(&self, found: &str, location: &Location, path: &str) -> Error {
        let expected = self.0.get().map_or("", String::as_str);
        Error::storage(format!("expected the object with entity tag {expected}, found {found}"))
            .at_location(location.join(path).to_string())
            .with_hint("the object was overwritten while it was read; run the command again")
    }
}

/// Returns a tag without its weakness mark and its quotes, which the listings of Azure omit.
fn bare_etag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{io::Read as _, sync::Arc};

    use super::Pin;
    use crate::storage::{Location, Object, RemoteStore, Store};

    #[test]
    fn a_listing_may_leave_out_the_quotes_of_a_tag() {
        let location = Location::parse("az://lake", std::path::Path::new("/")).unwrap();
        for (listed, found) in [("0x8D", "\"0x8D\""), ("\"0x8D\"", "\"0x8D\""), ("W/\"1\"", "\"1\"")] {
            Pin::new(Some(listed)).check_etag(Some(found), &location, "a.csv").unwrap();
        }
        assert!(Pin::new(Some("0x8D")).check_etag(Some("\"0x8E\""), &location, "a.csv").is_err());
    }

    #[test]
    fn an_object_that_is_overwritten_while_it_is_read_is_an_error() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let bytes = |value: u8| vec![value; 20 << 20];
        store.put("a", bytes(1).into()).unwrap();
        let listed = store.head("a").unwrap().unwrap();
        let (unknown, known) = (Object::new(Arc::clone(&store), "a", listed.bytes), {
            Object::new(Arc::clone(&store), "a", listed.bytes).of_version(listed.etag.as_deref())
        });
        assert_eq!(unknown.get_range(0..4).unwrap(), [1, 1, 1, 1].as_slice());
        let mut begun = unknown.read().unwrap();
        begun.read_exact(&mut [0; 100]).unwrap();
        store.put("a", bytes(2).into()).unwrap();
        for object in [&unknown, &known] {
            assert!(object.get_range(5 << 20..6 << 20).unwrap_err().to_string().contains("entity tag"));
            assert!(object.exact_range(5 << 20..5 << 20 | 9).is_err());
            assert!(object.prefetch_ranges(vec![9 << 20..10 << 20, 15 << 20..16 << 20]).is_err());
            assert!(object.read().map(drop).is_err());
        }
        assert!(std::io::copy(&mut begun, &mut std::io::sink()).is_err(), "the second half is of another object");
        let fresh = Object::new(Arc::clone(&store), "a", listed.bytes);
        assert_eq!(fresh.get_range(0..4).unwrap(), [2, 2, 2, 2].as_slice());
    }
}
