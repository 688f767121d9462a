//! Tests random arguments, variables, durations, nodes files and token files: each is accepted or
//! refused with a message, and none panics. The fuzz target `command_line` does the same without
//! files and nodes.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use redbolt::{Client, Config, LockRequest};
use redbolt_node::Node;
use tempfile::TempDir;

use crate::args::{Cli, Command};
use crate::{addresses, duration, environment, read_any, token_file};

/// 256 cases, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Words of the command line: each subcommand and option, in all ways in which it can be written.
fn known_words() -> Vec<OsString> {
    let mut words = Vec::new();
    for command in Cli::command().get_subcommands() {
        words.push(command.get_name().into());
        for argument in command.get_arguments() {
            let long = argument.get_long().map(|name| format!("--{name}"));
            words.extend(long.iter().map(OsString::from));
            words.extend(long.map(|name| (name + "=").into()));
            words.extend(argument.get_short().map(|name| format!("-{name}").into()));
        }
    }
    words
}

/// Numbers and spans at which arithmetic may end.
fn value() -> impl Strategy<Value = String> {
    let numbers = [
        "0",
        "1",
        "3",
        "0.5",
        "65535",
        "4294967296",
        "9223372036854775807",
        "18446744073709551616",
    ];
    let units = ["", "us", "ms", "s", "m", "h", "d", "S"];
    let number = || prop_oneof![select(numbers.to_vec()).prop_map(str::to_owned), "[0-9.]{0,24}"];
    let span = (number(), select(units.to_vec())).prop_map(|(number, unit)| number + unit);
    let words = [
        "on",
        "off",
        "all",
        "quorum",
        "strict,durable",
        "redisson",
        "spring",
        "a:b",
        "unix:",
        "[::1]:1",
        "redis://u:p@h:1/2",
        "redis+sentinel://h+h/m",
        "rediss://h#x",
        "",
        "-",
        "--",
        "-1",
    ];
    prop_oneof![3 => span, 2 => select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

/// The value of a variable: a value of an option, an address, or any bytes.
fn text() -> impl Strategy<Value = OsString> {
    let bytes = vec(1..=u8::MAX, 0..12).prop_map(OsString::from_vec);
    let addresses = address_lines().prop_map(|mut lines| {
        lines.retain(|&byte| byte != 0);
        OsString::from_vec(lines)
    });
    prop_oneof![3 => value().prop_map(OsString::from), 3 => addresses, 1 => bytes]
}

fn word() -> impl Strategy<Value = OsString> {
    let bytes = vec(any::<u8>(), 0..12).prop_map(OsString::from_vec);
    let joined = (select(known_words()), value()).prop_map(|(mut word, value)| {
        word.push(value);
        word
    });
    prop_oneof![
        4 => select(known_words()),
        3 => joined,
        3 => value().prop_map(OsString::from),
        1 => bytes,
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_duration_is_read_or_refused(text in prop_oneof![value(), any::<String>()]) {
        read_any::duration(&text);
    }

    #[test]
    fn arguments_and_variables_are_understood_or_refused(
        command in select(known_words()),
        words in vec(word(), 0..8),
        variables in vec((select(read_any::variable_names()), text()), 0..4),
        nodes_file in address_lines(),
    ) {
        let line: Vec<_> = [OsString::from("redbolt"), command].into_iter().chain(words).collect();
        read_any::command_line(&line, variables, &nodes_file);
    }
}

/// Lines of addresses, some of them almost right.
fn address_line() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "redis://",
        "rediss://",
        "valkey://",
        "redis+sentinel://",
        "unix://",
        "ann",
        ":",
        "pw",
        "@",
        "h",
        "127.0.0.1",
        "[::1]",
        "[fe80::1%eth0]",
        ":6379",
        ":65536",
        "/",
        "3",
        "?db=",
        "#",
        ",",
        "%",
        "%4",
        "%zz",
        " ",
        "+",
        "\u{feff}",
        "\0",
    ];
    let made = vec(select(parts.to_vec()), 0..8).prop_map(|parts| parts.concat().into_bytes());
    prop_oneof![3 => made, 1 => vec(any::<u8>(), 0..40)]
}

fn address_lines() -> impl Strategy<Value = Vec<u8>> {
    vec(address_line(), 0..6).prop_map(|lines| lines.join(&b'\n'))
}

fn write_secret(path: &Path, bytes: &[u8]) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_nodes_file_is_read_or_refused(bytes in address_lines()) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("nodes");
        write_secret(&path, &bytes);
        let words = ["redbolt", "status", "--nodes-file"].map(OsString::from);
        let words: Vec<_> = words.into_iter().chain([path.clone().into_os_string()]).collect();
        read_any::command_line(&words, [], &bytes);
        // Tests the same file on its own.
        let Command::Status(args) = environment::parse(words).unwrap().command else {
            panic!("another command");
        };
        let of_bytes = addresses::of_bytes(&path, bytes).map(|given| given.len());
        let of_file = addresses::given(&args.nodes).map(<[_]>::len);
        prop_assert_eq!(of_file.is_ok(), of_bytes.is_ok());
    }
}

/// A change of a token file: in a line, or in the bytes.
#[derive(Clone, Debug)]
enum Change {
    /// Another number, or other words, behind the name of a line.
    Value(Index, String),
    /// A line is missing, or there twice.
    Line(Index, bool),
    Byte(Index, u8),
    CutOff(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        6 => (index(), value()).prop_map(|(at, value)| Change::Value(at, value)),
        2 => (index(), any::<bool>()).prop_map(|(at, twice)| Change::Line(at, twice)),
        2 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => index().prop_map(Change::CutOff),
    ]
}

fn changed(record: &str, changes: &[Change]) -> Vec<u8> {
    let mut bytes = record.as_bytes().to_vec();
    for change in changes {
        let mut lines: Vec<Vec<u8>> =
            bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        match change {
            Change::Value(at, value) => {
                let at = at.index(lines.len());
                let line = &mut lines[at];
                let name = line.iter().position(|&byte| byte == b' ').unwrap_or(0);
                line.truncate(name);
                line.extend_from_slice(format!(" {value}").as_bytes());
                bytes = lines.join(&b'\n');
            }
            Change::Line(at, twice) => {
                let line = lines.remove(at.index(lines.len()));
                if *twice {
                    lines.extend([line.clone(), line]);
                }
                bytes = lines.join(&b'\n');
            }
            Change::Byte(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Change::CutOff(at) if !bytes.is_empty() => bytes.truncate(at.index(bytes.len())),
            _ => {}
        }
    }
    bytes
}

#[test]
fn a_token_file_is_read_or_refused() {
    let node = Node::set(1).unwrap().remove(0);
    let of_node = Config::builder().node(&node.address().to_string()).build().unwrap();
    let client = Client::new(of_node).unwrap();
    let request = LockRequest::new("job").fenced().ttl(Duration::from_secs(20));
    let record = client.acquire(request).unwrap().detach().unwrap().to_text();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("token");
    proptest!(config(), |(changes in vec(change(), 0..4))| {
        let bytes = changed(&record, &changes);
        read_any::token_file(&bytes);
        write_secret(&path, &bytes);
        let read = token_file::read(&path, Duration::ZERO);
        let Ok(Some((held, _))) = read else { return Ok(()) };
        if let Ok(lock) = client.attach(&held.detached) {
            duration::show(lock.remaining());
            // Nothing is sent about it.
            drop(lock.detach());
        }
        fs::remove_file(&path).unwrap();
    });
}
