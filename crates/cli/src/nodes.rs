//! Builds a configuration from options: the nodes, and the identity of the client.
//!
//! The library parses the addresses. Its errors name the wrong part of an address, never the
//! password. The addresses are read in [`addresses`].

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use redbolt::config::{Credentials, RestartTrust, Secret};
use redbolt::proto::{Settings, SettingsError};
use redbolt::{Config, ConfigBuilder, Profile, config::ConfigFault};

use crate::addresses;
use crate::args::{Nodes, SentinelArgs, SentinelTlsWord, TlsArgs};
use crate::duration;
use crate::exit::Failure;
use crate::name::word;
use crate::variables;
use crate::verbose::Verbose;

/// Returns a configuration builder for these nodes, with the settings that all subcommands share.
pub(crate) fn builder(nodes: &Nodes) -> Result<ConfigBuilder, Failure> {
    builder_for(nodes, process::id())
}

/// Returns a builder like [`builder`], for locks whose holder is the process `holder`.
pub(crate) fn builder_for(nodes: &Nodes, holder: u32) -> Result<ConfigBuilder, Failure> {
    let builder = Config::builder()
        .label_host_and_pid_of(holder)
        .client_name(b"redbolt-cli")
        .formats(&Profile::ALL)
        // The command bounds the hold: a lock is extended only while its command runs.
        .max_hold(None);
    let builder = if nodes.verbose { builder.log(Arc::new(Verbose)) } else { builder };
    let mut builder = settings(builder, nodes);
    let given = addresses::given(nodes)?;
    for (given, restart_trust) in given.iter().zip(restart_trust(nodes, given.len())?) {
        builder = builder.node_with(&given.text, restart_trust);
        if let Some(fault) = builder.faults().last() {
            return Err(given.wrong(fault));
        }
    }
    if let Some(password) = addresses::password(nodes)? {
        builder = builder.password(Secret::new(password.to_vec()));
    }
    if let Some(credentials) = sentinel_credentials(&nodes.sentinels)? {
        builder = builder.sentinel_credentials(credentials);
    }
    Ok(builder)
}

fn sentinel_credentials(sentinels: &SentinelArgs) -> Result<Option<Credentials>, Failure> {
    match (&sentinels.sentinel_user, addresses::sentinel_password(sentinels)?) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::usage(
            "a user of the sentinels without a password: --sentinel-password-file names its file",
        )),
        (user, Some(password)) => {
            let user = user.as_ref().map(|user| user.clone().into_bytes());
            Ok(Some(Credentials::new(user, Secret::new(password.to_vec()))))
        }
    }
}

/// Builds the configuration, or returns an error that names the wrong options and variables.
pub(crate) fn build(builder: ConfigBuilder, nodes: &Nodes) -> Result<Config, Failure> {
    builder.build().map_err(|error| {
        let faults = error.faults().iter().map(|fault| match origin_of(fault, nodes) {
            Some(origin) => format!("{origin}: {fault}"),
            None => fault.to_string(),
        });
        Failure::usage(faults.collect::<Vec<_>>().join("; "))
    })
}

fn origin_of(fault: &ConfigFault, nodes: &Nodes) -> Option<&'static str> {
    Some(match fault {
        ConfigFault::Settings(SettingsError::RestartGuardKey { .. }) => {
            restart_guard_key_origin(nodes)
        }
        ConfigFault::Settings(SettingsError::Span { what, .. }) if what.starts_with("max_ttl") => {
            max_ttl_origin(nodes)
        }
        ConfigFault::Settings(SettingsError::Span { what: "response_timeout", .. }) => {
            let is_said = |value: &str| duration::parse(value).ok() == nodes.response_timeout;
            origin("--response-timeout", is_said)
        }
        ConfigFault::Settings(SettingsError::Span { what: "connect_timeout", .. }) => {
            let is_said = |value: &str| duration::parse(value).ok() == nodes.connect_timeout;
            origin("--connect-timeout", is_said)
        }
        _ => return None,
    })
}

fn max_ttl_origin(nodes: &Nodes) -> &'static str {
    let is_said = |value: &str| duration::parse(value).ok() == nodes.max_ttl;
    origin("--max-ttl", is_said)
}

fn restart_guard_key_origin(nodes: &Nodes) -> &'static str {
    let is_said = |value: &str| nodes.restart_guard_key.as_deref() == Some(value);
    origin(RESTART_GUARD_KEY, is_said)
}

/// Returns the origin of a value: the environment, if it has the same value, or else the option.
fn origin(option: &'static str, says: impl Fn(&str) -> bool) -> &'static str {
    let is_said = |variable: &&str| {
        let said = variables::value(variable).and_then(|value| value.into_string().ok());
        said.is_some_and(|value| says(&value))
    };
    variables::of_option(option).filter(is_said).unwrap_or(option)
}

fn settings(mut builder: ConfigBuilder, nodes: &Nodes) -> ConfigBuilder {
    if let Some(max_ttl) = nodes.max_ttl {
        builder = builder.max_ttl(max_ttl);
    }
    if let Some(key) = &nodes.restart_guard_key {
        builder = builder.restart_guard_key(key.as_bytes());
    }
    let (answer, connect) = timeouts(nodes);
    let Settings { dead_peer_timeout, .. } = Settings::default();
    // A peer must not count as dead within the time allowed for its answer.
    let dead = dead_peer_timeout.max(answer.max(connect).saturating_mul(2)).min(LONGEST);
    let builder = builder.response_timeout(answer).connect_timeout(connect).dead_peer_timeout(dead);
    secured(sentinels_secured(builder, &nodes.sentinels), &nodes.tls)
}

fn sentinels_secured(mut builder: ConfigBuilder, sentinels: &SentinelArgs) -> ConfigBuilder {
    if let Some(word) = sentinels.sentinel_tls {
        builder = builder.sentinel_tls(word == SentinelTlsWord::On);
    }
    if let Some(ca) = &sentinels.sentinel_tls_ca {
        builder = builder.sentinel_tls_ca(ca);
    }
    if let Some(certificate) = &sentinels.sentinel_tls_cert {
        builder = builder.sentinel_tls_cert(certificate);
    }
    if let Some(key) = &sentinels.sentinel_tls_key {
        builder = builder.sentinel_tls_key(key);
    }
    match &sentinels.sentinel_tls_server_name {
        Some(name) => builder.sentinel_tls_server_name(name),
        None => builder,
    }
}

fn secured(mut builder: ConfigBuilder, tls: &TlsArgs) -> ConfigBuilder {
    if let Some(ca) = &tls.tls_ca {
        builder = builder.tls_ca(ca);
    }
    if let Some(certificate) = &tls.tls_cert {
        builder = builder.tls_cert(certificate);
    }
    if let Some(key) = &tls.tls_key {
        builder = builder.tls_key(key);
    }
    if let Some(name) = &tls.tls_server_name {
        builder = builder.tls_server_name(name);
    }
    match tls.danger_accept_any_certificate {
        true => builder.danger_accept_any_certificate(),
        false => builder,
    }
}

/// Returns how long an answer and a connection may take.
fn timeouts(nodes: &Nodes) -> (Duration, Duration) {
    let Settings { response_timeout, connect_timeout, .. } = Settings::default();
    let answer = nodes.response_timeout.unwrap_or(response_timeout);
    (answer, nodes.connect_timeout.unwrap_or(connect_timeout))
}

/// Returns how far each node is trusted after a restart.
fn restart_trust(nodes: &Nodes, count: usize) -> Result<Vec<RestartTrust>, Failure> {
    let words: Vec<RestartTrust> = nodes.restart_trust.iter().map(|&word| word.into()).collect();
    match words[..] {
        [] => Ok(vec![RestartTrust::default(); count]),
        [one] => Ok(vec![one; count]),
        _ if words.len() == count => Ok(words),
        _ => Err(Failure::usage(format_args!(
            "{} has {} words for {count} nodes: give one for all, or one for each",
            origin("--restart-trust", |value| value.split(',').count() == words.len()),
            words.len()
        ))),
    }
}

/// Returns the command that declares these nodes as new, to be copied.
pub(crate) fn init_command(nodes: &Nodes) -> String {
    command("init", nodes)
}

/// Returns the command `redbolt WORDS` for these nodes, to be copied. It omits options that the
/// environment gives, and addresses that contain a password.
pub(crate) fn command(words: &str, nodes: &Nodes) -> String {
    let mut words = vec![format!("redbolt {words}{}", addresses::options(nodes))];
    words.extend(times(nodes));
    if let Some(key) = &nodes.restart_guard_key
        && restart_guard_key_origin(nodes) == RESTART_GUARD_KEY
    {
        words.push(format!("{RESTART_GUARD_KEY} {}", word(OsStr::new(key))));
    }
    words.extend(other_options(nodes));
    words.join(" ")
}

/// Returns the options with times that the environment does not give.
fn times(nodes: &Nodes) -> impl Iterator<Item = String> {
    let all = [
        ("--max-ttl", nodes.max_ttl),
        ("--response-timeout", nodes.response_timeout),
        ("--connect-timeout", nodes.connect_timeout),
    ];
    all.into_iter().filter_map(|(option, time)| {
        let is_said = |value: &str| duration::parse(value).ok() == time;
        let is_typed = time.is_some() && origin(option, is_said) == option;
        is_typed.then(|| format!("{option} {}", duration::exact(time.unwrap_or_default())))
    })
}

/// Returns the other options that the environment does not give: for passwords, sentinels, and TLS.
fn other_options(nodes: &Nodes) -> Vec<String> {
    let trust: Vec<_> =
        nodes.restart_trust.iter().filter_map(ValueEnum::to_possible_value).collect();
    let trust: Vec<_> = trust.iter().map(PossibleValue::get_name).collect();
    let trust = (!trust.is_empty()).then(|| trust.join(",").into());
    let trust = ("--restart-trust", trust);
    let all = [trust, ("--password-file", path(&nodes.password_file))];
    let all = all.into_iter().chain(of_sentinels(&nodes.sentinels)).chain(of_tls(&nodes.tls));
    let typed = |(option, value): Given| {
        let value = value?;
        let is_typed = origin(option, |said| OsStr::new(said) == value) == option;
        is_typed.then(|| format!("{option} {}", word(&value)))
    };
    let danger = nodes.tls.danger_accept_any_certificate;
    let danger = danger.then(|| "--danger-accept-any-certificate".to_owned());
    all.filter_map(typed).chain(danger).collect()
}

/// An option, and its value if it or its variable has one.
type Given = (&'static str, Option<OsString>);

fn of_sentinels(sentinels: &SentinelArgs) -> [Given; 7] {
    let tls = sentinels.sentinel_tls.map(|word| word.word().into());
    [
        ("--sentinel-user", text(&sentinels.sentinel_user)),
        ("--sentinel-password-file", path(&sentinels.sentinel_password_file)),
        ("--sentinel-tls", tls),
        ("--sentinel-tls-ca", path(&sentinels.sentinel_tls_ca)),
        ("--sentinel-tls-cert", path(&sentinels.sentinel_tls_cert)),
        ("--sentinel-tls-key", path(&sentinels.sentinel_tls_key)),
        ("--sentinel-tls-server-name", text(&sentinels.sentinel_tls_server_name)),
    ]
}

fn of_tls(tls: &TlsArgs) -> [Given; 4] {
    [
        ("--tls-ca", path(&tls.tls_ca)),
        ("--tls-cert", path(&tls.tls_cert)),
        ("--tls-key", path(&tls.tls_key)),
        ("--tls-server-name", text(&tls.tls_server_name)),
    ]
}

fn path(path: &Option<PathBuf>) -> Option<OsString> {
    path.clone().map(PathBuf::into_os_string)
}

fn text(text: &Option<String>) -> Option<OsString> {
    text.clone().map(OsString::from)
}

const RESTART_GUARD_KEY: &str = "--restart-guard-key";

/// The longest timeout.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::args::RestartTrustWord;

    fn named(addresses: Vec<String>) -> Nodes {
        Nodes {
            addresses,
            nodes_file: None,
            password_file: None,
            given: OnceCell::new(),
            password: OnceCell::new(),
            max_ttl: None,
            restart_guard_key: None,
            restart_trust: Vec::new(),
            response_timeout: None,
            connect_timeout: None,
            verbose: false,
            sentinels: SentinelArgs::default(),
            tls: TlsArgs::default(),
        }
    }

    #[test]
    fn whoever_is_waited_for_is_not_given_up_before() {
        let mut nodes = named(vec!["a".to_owned()]);
        let told = |nodes: &Nodes| {
            let config = build(builder(nodes).unwrap(), nodes).unwrap();
            let Settings { response_timeout, connect_timeout, dead_peer_timeout, .. } =
                config.settings();
            (response_timeout.as_secs(), connect_timeout.as_secs(), dead_peer_timeout.as_secs())
        };
        assert_eq!(told(&nodes), (1, 5, 10));
        nodes.response_timeout = Some(Duration::from_secs(2));
        nodes.connect_timeout = Some(Duration::from_secs(20));
        assert_eq!(told(&nodes), (2, 20, 40));
        nodes.response_timeout = Some(Duration::ZERO);
        let error = build(builder(&nodes).unwrap(), &nodes).unwrap_err().to_string();
        assert!(error.contains("--response-timeout"), "{error}");
    }

    #[test]
    fn a_command_has_all_options_that_were_typed() {
        let mut nodes = named(vec!["[::1]:7000".to_owned()]);
        assert!(builder(&nodes).is_ok());
        nodes.max_ttl = Some(Duration::from_micros(2_500_500));
        nodes.restart_trust = vec![RestartTrustWord::Strict, RestartTrustWord::MarkerOnly];
        nodes.restart_guard_key = Some("my guard".to_owned());
        nodes.password_file = Some(OsStr::from_bytes(b"/a\xff").into());
        nodes.tls.tls_server_name = Some("it's".to_owned());
        let shown = [
            "redbolt unlock --force --node '[::1]:7000' --max-ttl 2500500us",
            "--restart-guard-key 'my guard' --restart-trust strict,marker-only",
            r"--password-file $'/a\377' --tls-server-name 'it'\''s'",
        ];
        assert_eq!(command("unlock --force", &nodes), shown.join(" "));
    }

    #[test]
    fn an_error_keeps_the_password_to_itself() {
        for address in ["redis://:hunter2@host:99999", "redis://u:hunter2@", "http://u:hunter2@h"] {
            let nodes = named(vec![address.to_owned()]);
            let error = builder(&nodes).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
