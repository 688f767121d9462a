//! From words to a configuration: which nodes, and who we are.
//!
//! The library reads the addresses. Its errors name the place in an address that is wrong, never
//! the password in it.

use std::env;
use std::fs;
use std::process;

use redbolt::{Config, ConfigBuilder, Trust};

use crate::args::{self, Nodes};
use crate::duration;
use crate::exit::Failure;

/// A configuration of these nodes, and of what is the same in all of this program.
pub(crate) fn builder(nodes: &Nodes) -> Result<ConfigBuilder, Failure> {
    builder_for(nodes, process::id())
}

/// The same for locks that are held by the process `holder`.
pub(crate) fn builder_for(nodes: &Nodes, holder: u32) -> Result<ConfigBuilder, Failure> {
    let builder = Config::builder()
        .label(label(holder).as_bytes())
        .client_name(b"redbolt-cli")
        // The command bounds the hold: a lock is extended only while its command runs.
        .max_hold(None);
    let mut builder = settings(builder, nodes);
    let addresses = addresses(nodes);
    if addresses.is_empty() {
        return Err(Failure::usage(NO_NODES));
    }
    for (address, trust) in addresses.iter().zip(trust(nodes, addresses.len())?) {
        builder = builder.node_with(address, trust).map_err(Failure::usage)?;
    }
    Ok(builder)
}

fn settings(mut builder: ConfigBuilder, nodes: &Nodes) -> ConfigBuilder {
    if let Some(max_ttl) = nodes.max_ttl {
        builder = builder.max_ttl(max_ttl);
    }
    if let Some(key) = &nodes.guard_key {
        builder = builder.guard_key(key.as_bytes());
    }
    builder
}

/// What was given, without blanks and empty parts.
pub(crate) fn addresses(nodes: &Nodes) -> Vec<&str> {
    let addresses = nodes.addresses.iter().map(|address| address.trim());
    addresses.filter(|address| !address.is_empty()).collect()
}

/// How much of each node's guard is believed.
fn trust(nodes: &Nodes, count: usize) -> Result<Vec<Trust>, Failure> {
    let words: Vec<Trust> = nodes.trust.iter().map(|&word| word.into()).collect();
    match words[..] {
        [] => Ok(vec![Trust::default(); count]),
        [one] => Ok(vec![one; count]),
        _ if words.len() == count => Ok(words),
        _ => Err(Failure::usage(format_args!(
            "--trust has {} words for {count} nodes: give one for all, or one for each",
            words.len()
        ))),
    }
}

/// The command that says that these nodes are new, to be copied. It repeats no option that the
/// environment gives, and no address with a password in it.
pub(crate) fn init_command(nodes: &Nodes) -> String {
    let mut words = vec!["redbolt init".to_owned()];
    let addresses = addresses(nodes);
    let is_secret = |address: &&str| address.contains('@');
    let is_said = |value: &str| value.split(',').map(str::trim).eq(addresses.iter().copied());
    match is_in(args::NODES_VARIABLE, is_said) {
        true => {}
        false if addresses.iter().any(is_secret) => words.push("--node ...".to_owned()),
        false => words.extend(addresses.iter().map(|address| format!("--node {address}"))),
    }
    if let Some(max_ttl) = nodes.max_ttl
        && !is_in(args::MAX_TTL_VARIABLE, |value| duration::parse(value) == Ok(max_ttl))
    {
        words.push(format!("--max-ttl {}", duration::exact(max_ttl)));
    }
    if let Some(key) = &nodes.guard_key
        && !is_in(args::GUARD_KEY_VARIABLE, |value| value == key)
    {
        words.push(format!("--guard-key {key}"));
    }
    words.join(" ")
}

/// Whether the environment says this.
fn is_in(variable: &str, says: impl Fn(&str) -> bool) -> bool {
    env::var(variable).is_ok_and(|value| says(&value))
}

/// Who holds a lock, for whoever looks at it: `host:pid`.
fn label(holder: u32) -> String {
    let host = ["/proc/sys/kernel/hostname", "/etc/hostname"].into_iter().find_map(|path| {
        let name = fs::read_to_string(path).ok()?;
        Some(printable(name.trim())).filter(|name| !name.is_empty())
    });
    format!("{}:{holder}", host.as_deref().unwrap_or("unknown-host"))
}

/// What a label may hold, and short enough to leave room for the process id.
fn printable(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(HOST_LENGTH).collect()
}

/// The longest host name of Linux.
const HOST_LENGTH: usize = 64;

const NO_NODES: &str = "no nodes given
name each with --node HOST:PORT, or all in REDBOLT_NODES, separated by commas
to see it work without any server: redbolt demo";

#[cfg(test)]
mod tests {
    use super::*;

    fn named(addresses: Vec<String>) -> Nodes {
        Nodes { addresses, max_ttl: None, guard_key: None, trust: Vec::new() }
    }

    #[test]
    fn the_label_is_host_and_process() {
        let label = label(process::id());
        let (host, pid) = label.rsplit_once(':').unwrap();
        assert_eq!(pid, process::id().to_string());
        assert!(!host.is_empty());
    }

    #[test]
    fn a_strange_host_name_is_made_printable() {
        assert_eq!(printable("web-1.example\x1b[2J\u{fc}"), "web-1.example[2J");
        assert_eq!(printable(&"x".repeat(300)).len(), HOST_LENGTH);
    }

    #[test]
    fn blanks_and_empty_parts_are_no_nodes() {
        let nodes = |words: &[&str]| named(words.iter().map(ToString::to_string).collect());
        assert!(builder(&nodes(&["", " "])).unwrap_err().to_string().contains("redbolt demo"));
        assert_eq!(builder(&nodes(&["a", " b:1 ", ""])).unwrap().build().unwrap().nodes(), 2);
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
