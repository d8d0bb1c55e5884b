//! Credentials in the files of the AWS command line: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Only keys, region and endpoint are taken. Profiles that have to ask somebody for keys (roles, SSO, processes) are
//! left to `aws configure export-credentials`. Of Google's command line, the place of the default credentials is taken.

use std::{collections::BTreeMap, path::PathBuf};

use crate::storage::SmallFile;

/// What is taken of a profile: the key in the file, and the variable that it stands for.
const TAKEN: [(&str, &[&str]); 5] = [
    ("aws_access_key_id", &["AWS_ACCESS_KEY_ID"]),
    ("aws_secret_access_key", &["AWS_SECRET_ACCESS_KEY"]),
    ("aws_session_token", &["AWS_SESSION_TOKEN"]),
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ("endpoint_url", &["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"]),
];

/// A file of profiles.
const FILE: SmallFile = SmallFile::new("a file of profiles", 1 << 20);

/// Variables that say where credentials come from; profiles come after them.
const FIRST: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"];

/// Adds the settings of the profile that `AWS_PROFILE` names, or of `default`, to those of the environment, which win.
pub(super) fn add_profile_settings(settings: &mut Vec<(String, String)>, environment: impl Fn(&str) -> Option<String>) {
    let file = |variable: &str, name: &str| {
        let usual = || environment("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
        environment(variable).map(PathBuf::from).or_else(usual)
    };
    let text = |path: Option<PathBuf>| {
        path.and_then(|path| String::from_utf8(FILE.read(&path).ok()??).ok()).unwrap_or_default()
    };
    let profile = environment("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let mut found = profile_section(&text(file("AWS_CONFIG_FILE", "config")), &profile);
    found.extend(profile_section(&text(file("AWS_SHARED_CREDENTIALS_FILE", "credentials")), &profile));
    let is_set = |settings: &[(String, String)], name: &str| settings.iter().any(|(n, v)| n == name && !v.is_empty());
    let keys_are_elsewhere = FIRST.iter().any(|name| is_set(settings, name));
    for (key, variables) in TAKEN {
        let is_credential = key.starts_with("aws_");
        if (is_credential && keys_are_elsewhere) || variables.iter().any(|name| is_set(settings, name)) {
            continue;
        }
        if let (Some(value), Some(variable)) = (found.remove(key), variables.first()) {
            settings.push(((*variable).to_owned(), value));
        }
    }
}

/// Adds the place of the credentials that `gcloud auth application-default login` leaves, if there are some.
pub(super) fn add_google(settings: &mut Vec<(String, String)>, home: Option<String>) {
    const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let path = home.map(|home| PathBuf::from(home).join(".config/gcloud/application_default_credentials.json"));
    let is_set = settings.iter().any(|(name, _)| name == VARIABLE || name.starts_with("GOOGLE_SERVICE_ACCOUNT"));
    if let (false, Some(path)) = (is_set, path.filter(|path| path.is_file())) {
        settings.push((VARIABLE.to_owned(), path.display().to_string()));
    }
}

/// Returns the settings of a profile: those below `[NAME]` or `[profile NAME]`.
fn profile_section(text: &str, profile: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut is_ours = false;
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let name = name.trim();
            is_ours = name.strip_prefix("profile ").unwrap_or(name).trim() == profile;
        } else if let (true, Some((key, value))) = (is_ours, line.split_once('='))
            // Lines of a nested setting, such as `s3 =`, are indented; comments are not settings.
            && !line.starts_with([' ', '\t', '#', ';'])
        {
            out.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    out.retain(|_, value| !value.is_empty());
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_the_aws_command_line_does_and_the_environment_wins() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".aws");
        std::fs::create_dir_all(&folder).unwrap();
        let keys = "# mine\n[default]\naws_access_key_id = A1\naws_secret_access_key=S1\n\n[ work \
         ]\naws_access_key_id=A2 # old\naws_secret_access_key=S=2\naws_session_token = T2\n";
        std::fs::write(folder.join("credentials"), keys).unwrap();
        let config = "[default]\nregion = eu-west-1\n[profile work]\ns3 =\n  endpoint_url = \
         http://no\nregion=us-east-2\nendpoint_url = http://minio:9000\n";
        std::fs::write(folder.join("config"), config).unwrap();
        let home = home.path().to_str().unwrap().to_owned();
        let read = |profile: Option<&str>, mut settings: Vec<(String, String)>| {
            add_profile_settings(&mut settings, |name| match name {
                "HOME" => Some(home.clone()),
                "AWS_PROFILE" => profile.map(str::to_owned),
                _ => None,
            });
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let all = "AWS_ACCESS_KEY_ID=A1 AWS_SECRET_ACCESS_KEY=S1 AWS_REGION=eu-west-1";
        assert_eq!(read(None, Vec::new()), all);
        let work = "AWS_ACCESS_KEY_ID=A2 AWS_SECRET_ACCESS_KEY=S=2 AWS_SESSION_TOKEN=T2 AWS_REGION=us-east-2 \
         AWS_ENDPOINT_URL=http://minio:9000";
        assert_eq!(read(Some("work"), Vec::new()), work);
        assert_eq!(read(Some("nobody"), Vec::new()), "");
        let given = vec![("AWS_ACCESS_KEY_ID".to_owned(), "E".to_owned())];
        assert_eq!(read(None, given), "AWS_ACCESS_KEY_ID=E AWS_REGION=eu-west-1");
    }
}
