//! The configuration from the environment variables that the command `redbolt` reads.
//!
//! Invariant: a value that cannot be used is a fault that names its variable and never repeats the
//! value, which may hold a password.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use super::config::{Config, ConfigBuilder, ConfigError, ConfigFault};
use crate::proto::RestartTrust;

impl Config {
    /// Reads the configuration from the `REDBOLT_*` variables of the environment, as the command
    /// `redbolt` does. [`ConfigBuilder::from_env`] lists them.
    ///
    /// ```no_run
    /// // REDBOLT_NODES=10.0.0.1,10.0.0.2,10.0.0.3 REDBOLT_PASSWORD_FILE=/run/secrets/redis
    /// let engine = redbolt::Engine::new(redbolt::Config::from_env()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all faults at once, each with the name of its variable, and those that
    /// [`ConfigBuilder::build`] reports.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::builder().from_env().build()
    }
}

impl ConfigBuilder {
    /// Adds the settings in the `REDBOLT_*` variables of the environment. An empty variable counts
    /// as unset. A value that cannot be used is reported by [`build`](Self::build).
    ///
    /// | variable | value |
    /// |---|---|
    /// | `REDBOLT_NODES` | addresses, separated by commas |
    /// | `REDBOLT_NODES_FILE` | a file with one address per line; a line that begins with `#` is a comment |
    /// | `REDBOLT_PASSWORD_FILE` | as [`password_file`](Self::password_file) |
    /// | `REDBOLT_LABEL` | as [`label`](Self::label) |
    /// | `REDBOLT_MAX_TTL`, `REDBOLT_RESPONSE_TIMEOUT`, `REDBOLT_CONNECT_TIMEOUT` | durations with a unit: `500ms`, `10s`, `1.5m`, `1h` |
    /// | `REDBOLT_RESTART_GUARD_KEY` | as [`restart_guard_key`](Self::restart_guard_key) |
    /// | `REDBOLT_RESTART_TRUST` | `strict`, `durable` or `marker-only`, once for all nodes or one for each, separated by commas |
    /// | `REDBOLT_SENTINEL_USER`, `REDBOLT_SENTINEL_PASSWORD_FILE` | the [credentials](Self::sentinel_credentials) of the sentinels |
    /// | `REDBOLT_TLS_CA`, `REDBOLT_TLS_CERT`, `REDBOLT_TLS_KEY`, `REDBOLT_TLS_SERVER_NAME` | see [TLS](crate::manual::tls) |
    /// | `REDBOLT_SENTINEL_TLS` | `on` or `off` |
    /// | `REDBOLT_SENTINEL_TLS_CA`, `…_CERT`, `…_KEY`, `…_SERVER_NAME` | the same for sentinels |
    ///
    /// The command also rejects a file with a password that other users can read; this does not.
    pub fn from_env(self) -> Self {
        self.with_variables(|name| env::var_os(name))
    }

    fn with_variables(mut self, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variables = Variables { variable };
        for (name, set) in OPTIONS {
            let value = variables.text(name).transpose();
            let set = value.map(|value| set(self.clone(), &value?).map_err(wrong(name)));
            match set {
                Some(Ok(builder)) => self = builder,
                Some(Err(fault)) => self.report(fault),
                None => {}
            }
        }
        match variables.nodes() {
            Ok(nodes) => nodes.iter().fold(self, |it, (node, trust)| it.node_with(node, *trust)),
            Err(fault) => {
                self.report(fault);
                self
            }
        }
    }
}

/// An option of TLS, which a build without TLS rejects.
#[cfg(feature = "tls")]
macro_rules! tls {
    ($set:expr) => {
        $set
    };
}

#[cfg(not(feature = "tls"))]
macro_rules! tls {
    ($set:expr) => {
        |_, _| Err("this program is built without redbolt's feature tls")
    };
}

struct Variables<F> {
    variable: F,
}

impl<F: Fn(&str) -> Option<OsString>> Variables<F> {
    fn text(&self, name: &'static str) -> Result<Option<String>, ConfigFault> {
        let value = (self.variable)(name).filter(|value| !value.is_empty());
        let text =
            value.map(|value| value.into_string().map_err(|_| wrong(name)("it is not UTF-8")));
        text.transpose()
    }

    /// Returns the addresses, and how far each node is trusted after a restart.
    fn nodes(&self) -> Result<Vec<(String, RestartTrust)>, ConfigFault> {
        let addresses = match (self.text(NODES)?, self.text(NODES_FILE)?) {
            (Some(_), Some(_)) => Err(wrong(NODES_FILE)("REDBOLT_NODES is set as well"))?,
            (Some(list), None) => list.replace(',', "\n"),
            (None, Some(file)) => fs::read_to_string(file)
                .map_err(|_| wrong(NODES_FILE)("the file cannot be read as text"))?,
            (None, None) => String::new(),
        };
        let addresses = addresses.lines().map(str::trim);
        let addresses: Vec<_> =
            addresses.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let words = self.text(RESTART_TRUST)?.unwrap_or_else(|| "strict".to_owned());
        let trust: Option<Vec<_>> = words.split(',').map(restart_trust).collect();
        let trust = trust.filter(|all| all.len() == 1 || all.len() == addresses.len());
        let trust = trust.ok_or_else(|| wrong(RESTART_TRUST)(NO_TRUST))?;
        let of_node = trust.into_iter().cycle();
        Ok(addresses.into_iter().map(str::to_owned).zip(of_node).collect())
    }
}

fn wrong(name: &'static str) -> impl Fn(&'static str) -> ConfigFault {
    move |problem| ConfigFault::Variable { name, problem }
}

fn restart_trust(word: &str) -> Option<RestartTrust> {
    match word.trim() {
        "strict" => Some(RestartTrust::Strict),
        "durable" => Some(RestartTrust::Durable),
        "marker-only" => Some(RestartTrust::MarkerOnly),
        _ => None,
    }
}

/// Parses a duration. A number without a unit is rejected, because guessing the wrong unit is worse
/// than an error.
fn span(text: &str) -> Result<Duration, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(NO_SPAN),
    };
    let span = number.parse::<f64>().map(|number| Duration::try_from_secs_f64(number * seconds));
    span.ok().and_then(Result::ok).ok_or(NO_SPAN)
}

/// Sets an option to the value of its variable.
type Set = fn(ConfigBuilder, &str) -> Result<ConfigBuilder, &'static str>;

const OPTIONS: [(&str, Set); 17] = [
    ("REDBOLT_CONNECT_TIMEOUT", |it, value| {
        Ok(it.connect_timeout(span(value)?).outlast(span(value)?))
    }),
    ("REDBOLT_LABEL", |it, value| Ok(it.label(value))),
    ("REDBOLT_MAX_TTL", |it, value| Ok(it.max_ttl(span(value)?))),
    ("REDBOLT_PASSWORD_FILE", |it, value| Ok(it.password_file(value))),
    ("REDBOLT_RESPONSE_TIMEOUT", |it, value| {
        Ok(it.response_timeout(span(value)?).outlast(span(value)?))
    }),
    ("REDBOLT_RESTART_GUARD_KEY", |it, value| Ok(it.restart_guard_key(value))),
    ("REDBOLT_SENTINEL_PASSWORD_FILE", |it, value| Ok(it.sentinel_password_file(value))),
    (
        "REDBOLT_SENTINEL_TLS",
        tls!(|it, value| match value {
            "on" | "off" => Ok(it.sentinel_tls(value == "on")),
            _ => Err("it must be on or off"),
        }),
    ),
    ("REDBOLT_SENTINEL_TLS_CA", tls!(|it, value| Ok(it.sentinel_tls_ca(value)))),
    ("REDBOLT_SENTINEL_TLS_CERT", tls!(|it, value| Ok(it.sentinel_tls_cert(value)))),
    ("REDBOLT_SENTINEL_TLS_KEY", tls!(|it, value| Ok(it.sentinel_tls_key(value)))),
    ("REDBOLT_SENTINEL_TLS_SERVER_NAME", tls!(|it, value| Ok(it.sentinel_tls_server_name(value)))),
    ("REDBOLT_SENTINEL_USER", |it, value| Ok(it.sentinel_user(value))),
    ("REDBOLT_TLS_CA", tls!(|it, value| Ok(it.tls_ca(value)))),
    ("REDBOLT_TLS_CERT", tls!(|it, value| Ok(it.tls_cert(value)))),
    ("REDBOLT_TLS_KEY", tls!(|it, value| Ok(it.tls_key(value)))),
    ("REDBOLT_TLS_SERVER_NAME", tls!(|it, value| Ok(it.tls_server_name(value)))),
];
const NODES: &str = "REDBOLT_NODES";
const NODES_FILE: &str = "REDBOLT_NODES_FILE";
const RESTART_TRUST: &str = "REDBOLT_RESTART_TRUST";

const NO_SPAN: &str = "it must be a duration with a unit, such as 500ms, 10s, 1.5m or 1h";
const NO_TRUST: &str = "it must be strict, durable or marker-only, once or for each node";

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Config, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Config::builder().with_variables(variable).build().map_err(|error| error.to_string())
    }

    #[test]
    fn variables_give_what_the_options_of_the_command_give() {
        let config = with(&[
            (NODES, "10.0.0.1, redis://10.0.0.2:7000,"),
            (RESTART_TRUST, "durable,strict"),
            ("REDBOLT_LABEL", "worker 7"),
            ("REDBOLT_MAX_TTL", "1.5m"),
            ("REDBOLT_RESPONSE_TIMEOUT", "7s"),
            ("REDBOLT_CONNECT_TIMEOUT", "20ms"),
            ("REDBOLT_SENTINEL_USER", ""),
        ]);
        let config = config.unwrap();
        let addresses: Vec<_> = config.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:6379", "10.0.0.2:7000"]);
        let settings = config.settings();
        assert_eq!((&settings.label[..], settings.max_ttl.as_secs()), (&b"worker 7"[..], 90));
        assert_eq!(
            (settings.response_timeout.as_secs(), settings.dead_peer_timeout.as_secs()),
            (7, 14)
        );
        let trust: Vec<_> = settings.nodes.iter().map(|node| node.restart_trust).collect();
        assert_eq!(trust, [RestartTrust::Durable, RestartTrust::Strict]);
    }

    #[test]
    fn a_file_names_one_node_per_line() {
        let file = env::temp_dir().join(format!("redbolt-nodes-{}", std::process::id()));
        fs::write(&file, "# ours\n10.0.0.1\n\n 10.0.0.2 \n").unwrap();
        let config = with(&[(NODES_FILE, file.to_str().unwrap())]);
        fs::remove_file(&file).unwrap();
        assert_eq!(config.unwrap().node_count(), 2);
    }

    #[test]
    fn every_fault_names_its_variable_and_no_value() {
        let error = with(&[
            (NODES, "10.0.0.1"),
            (NODES_FILE, "/secret"),
            ("REDBOLT_MAX_TTL", "10"),
            ("REDBOLT_RESPONSE_TIMEOUT", "-1s"),
        ]);
        let error = error.unwrap_err();
        for part in
            ["REDBOLT_NODES_FILE: ", "REDBOLT_MAX_TTL: it must be", "REDBOLT_RESPONSE_TIMEOUT: "]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("/secret"), "{error}");
        let error = with(&[(NODES, "10.0.0.1"), (RESTART_TRUST, "strict,strict")]).unwrap_err();
        assert!(error.starts_with("REDBOLT_RESTART_TRUST: it must be strict"), "{error}");
        let error = with(&[(NODES_FILE, "/nowhere/at/all")]).unwrap_err();
        assert!(error.contains("REDBOLT_NODES_FILE: the file cannot be read"), "{error}");
    }
}
