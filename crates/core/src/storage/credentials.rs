//! Stores of clouds that were given no credentials: found out at once, and said how to give some.
//!
//! Machines of a cloud get credentials from a metadata service. Elsewhere nobody answers at its address, and the client
//! would ask it again and again for minutes.

use std::{
    net::{SocketAddr, TcpStream},
    sync::OnceLock,
    time::Duration,
};

use super::{location::Location, settings::StoreSettings};
use crate::error::{Error, Result};

/// Address of the metadata service of every cloud.
const METADATA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);

/// How long the metadata service may take; it is on the same machine.
const PATIENCE: Duration = Duration::from_secs(1);

/// How credentials of a cloud are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials {
    /// Name of the cloud.
    cloud: &'static str,
    /// Settings, in lower case, each of which gives credentials or makes them needless.
    settings: &'static [&'static str],
    hints: &'static [&'static str],
}

const AWS: Credentials = Credentials {
    cloud: "S3",
    settings: &[
        "aws_access_key_id",
        "access_key_id",
        "aws_web_identity_token_file",
        "web_identity_token_file",
        "aws_container_credentials_relative_uri",
        "aws_container_credentials_full_uri",
        "aws_skip_signature",
        "skip_signature",
        "aws_metadata_endpoint",
    ],
    hints: &[
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/credentials with AWS_PROFILE; \
         for a public bucket, set AWS_SKIP_SIGNATURE=true",
        "of a profile with a role or single sign-on, keys come from: eval \"$(aws configure export-credentials \
         --format env)\"",
    ],
};

const GOOGLE: Credentials = Credentials {
    cloud: "Google Cloud Storage",
    settings: &[
        "google_service_account",
        "google_service_account_path",
        "google_service_account_key",
        "google_application_credentials",
        "google_bearer_token",
        "google_skip_signature",
        "google_base_url",
        "skip_signature",
    ],
    hints: &[
        "set GOOGLE_SERVICE_ACCOUNT to the path of a JSON key, or run `gcloud auth application-default login`; for a \
         public bucket, set GOOGLE_SKIP_SIGNATURE=true",
    ],
};

const AZURE: Credentials = Credentials {
    cloud: "Azure",
    settings: &[
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "account_key",
        "access_key",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "sas_key",
        "sas_token",
        "azure_storage_client_id",
        "azure_client_id",
        "azure_storage_token",
        "bearer_token",
        "azure_federated_token_file",
        "azure_msi_endpoint",
        "azure_identity_endpoint",
        "azure_use_azure_cli",
        "azure_storage_use_emulator",
        "use_emulator",
        "azure_use_fabric_endpoint",
        "azure_skip_signature",
        "skip_signature",
    ],
    hints: &[
        "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN; with `az login`, \
         set AZURE_USE_AZURE_CLI=true; for a public container, set AZURE_SKIP_SIGNATURE=true",
    ],
};

impl Credentials {
    /// Returns what a store lacks; `None` if it has credentials, or is of a kind that states what it lacks.
    pub(super) fn find_lacking(location: &Location, settings: &StoreSettings) -> Option<Self> {
        let cloud = match location.url().scheme() {
            "s3" | "s3a" => AWS,
            "gs" => GOOGLE,
            "az" | "azure" | "adl" | "abfs" | "abfss" => AZURE,
            _ => return None,
        };
        let is_one = |(name, value): &(String, String)| {
            !value.is_empty() && cloud.settings.contains(&name.to_ascii_lowercase().as_str())
        };
        (!settings.iter().any(is_one)).then_some(cloud)
    }

    /// Fails if there is no metadata service to ask either.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), with the ways to give credentials.
    pub(super) fn check_metadata_service(self, location: &Location) -> Result<()> {
        static ANSWERS: OnceLock<bool> = OnceLock::new();
        if *ANSWERS.get_or_init(|| TcpStream::connect_timeout(&METADATA, PATIENCE).is_ok()) {
            return Ok(());
        }
        let message = format!("expected credentials of {}, found none, and no metadata service of a cloud", self.cloud);
        Err(self.add_hints(Error::usage(message).at_location(location.to_string())))
    }

    /// Adds the ways to give credentials to an error.
    pub(super) fn add_hints(self, error: Error) -> Error {
        self.hints.iter().fold(error, |error, hint| error.with_hint(*hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_missed_where_no_setting_gives_any() -> Result<()> {
        let lacks = |url: &str, settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let location = Location::parse(url, std::path::Path::new("/"))?;
            Ok::<_, Error>(Credentials::find_lacking(&location, &StoreSettings::new(settings)).is_some())
        };
        assert!(lacks("s3://bucket/x", &[("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "")])?);
        assert!(!lacks("s3://bucket/x", &[("AWS_ACCESS_KEY_ID", "x")])?);
        assert!(!lacks("s3://bucket/x", &[("aws_skip_signature", "true")])?);
        assert!(!lacks("https://example.org/x", &[])?);
        assert!(lacks("az://container/x", &[("AZURE_STORAGE_ACCOUNT_NAME", "me")])?);
        assert!(!lacks("az://container/x", &[("AZURE_STORAGE_USE_EMULATOR", "true")])?);
        assert!(!lacks("abfss://container/x", &[("AZURE_STORAGE_SAS_TOKEN", "sv=1")])?);
        Ok(())
    }
}
