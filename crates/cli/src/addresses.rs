//! Reads the addresses of the nodes from options, a file, or the environment.
//!
//! Options override the environment. Each address keeps its origin, so that an error can name it.
//! Addresses can contain passwords, so a file with such addresses is refused if others can read it.
//! The library parses the addresses.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use redbolt::net::Address;

use crate::args::{Nodes, SentinelArgs};
use crate::exit::Failure;
use crate::given::{Given, Origin};
use crate::name::word;
use crate::variables::{self, NODES_FILE_VARIABLE, NODES_VARIABLE};

/// Returns all addresses, in order. A file is read only once because it may be a pipe.
pub(crate) fn given(nodes: &Nodes) -> Result<&[Given], Failure> {
    if let Some(given) = nodes.given.get() {
        return Ok(given);
    }
    let found = find(nodes)?;
    if let Some(failure) = found.windows(2).find_map(|pair| comma_in_password(&pair[0], &pair[1])) {
        return Err(failure);
    }
    if found.is_empty() {
        return Err(Failure::usage(NO_NODES));
    }
    Ok(nodes.given.get_or_init(|| found))
}

/// Returns an error if a comma in a password has split an address of a list.
fn comma_in_password(first: &Given, second: &Given) -> Option<Failure> {
    if let Origin::Line(..) = second.origin {
        return None;
    }
    let (scheme, rest) = first.text.split_once("://")?;
    let (_, place) = second.text.rsplit_once('@')?;
    if rest.contains('@') || second.text.contains("://") || !rest.contains(':') {
        return None;
    }
    let (place, _) = Address::parse(&format!("{scheme}://{place}")).ok()?;
    Some(second.wrong(format_args!("node address of {place}: {COMMA}")))
}

fn find(nodes: &Nodes) -> Result<Vec<Given>, Failure> {
    if let Some(path) = &nodes.nodes_file {
        return of_file(path);
    }
    if !nodes.addresses.is_empty() {
        return Ok(nodes
            .addresses
            .iter()
            .flat_map(|list| of_list(list, &Origin::Option))
            .collect());
    }
    let listed = variables::value(NODES_VARIABLE);
    let file = variables::value(NODES_FILE_VARIABLE);
    match (listed, file) {
        (Some(_), Some(_)) => Err(Failure::usage(BOTH)),
        (None, Some(path)) => of_file(Path::new(&path)),
        (Some(list), None) => {
            let list = list.into_string();
            let list = list.map_err(|_| Failure::usage(format!("{NODES_VARIABLE}: not UTF-8")))?;
            Ok(of_list(&list, &Origin::Variable).collect())
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Splits a list at its commas, without blanks and empty parts.
fn of_list<'a>(list: &'a str, origin: &'a Origin) -> impl Iterator<Item = Given> + 'a {
    let parts = list.split(',').map(str::trim).filter(|text| !text.is_empty());
    parts.map(|text| Given { text: text.to_owned(), origin: origin.clone() })
}

fn of_file(path: &Path) -> Result<Vec<Given>, Failure> {
    let (file, metadata) = open(path)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| refusal(path, &error))?;
    let is_secret = may_be_secret(&String::from_utf8_lossy(&bytes));
    let access =
        if is_secret { secret_access(path, &metadata) } else { public_access(path, &metadata) };
    access.map_err(|reason| refusal(path, &reason))?;
    of_bytes(path, bytes)
}

/// Returns the addresses in the contents of a file.
pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Vec<Given>, Failure> {
    let refuse = |reason: &dyn fmt::Display| refusal(path, reason);
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(refuse(&"it begins with a byte order mark (BOM) of UTF-16: save it as UTF-8"));
    }
    if bytes.len() as u64 > LONGEST {
        return Err(refuse(&format_args!("longer than {} KiB", LONGEST >> 10)));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse(&"it is not UTF-8"))?;
    let given = lines(path, &text);
    if let Some(commented) = given.iter().find(|given| given.before_comment().is_some()) {
        return Err(commented.wrong(""));
    }
    if given.is_empty() { Err(refuse(&"it names no node")) } else { Ok(given) }
}

/// Returns the password for nodes whose address has none, if a file is named.
pub(crate) fn password(nodes: &Nodes) -> Result<Option<&[u8]>, Failure> {
    password_once(nodes.password_file.as_deref(), &nodes.password)
}

/// Returns the password of the sentinels, if a file is named.
pub(crate) fn sentinel_password(sentinels: &SentinelArgs) -> Result<Option<&[u8]>, Failure> {
    password_once(sentinels.sentinel_password_file.as_deref(), &sentinels.sentinel_password)
}

/// Reads the password only once because the file may be a pipe.
fn password_once<'a>(
    path: Option<&Path>,
    read: &'a OnceCell<Vec<u8>>,
) -> Result<Option<&'a [u8]>, Failure> {
    let Some(path) = path else { return Ok(None) };
    if let Some(password) = read.get() {
        return Ok(Some(password));
    }
    let password = password_in(path)?;
    Ok(Some(read.get_or_init(|| password)))
}

/// Reads the password from a file that only this user can read, without the end of its line.
fn password_in(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut password = Vec::new();
    let read = secret_file(path)?.take(LONGEST).read_to_end(&mut password);
    read.map_err(|error| refusal(path, &error))?;
    // Ends the line as the library does.
    if password.pop_if(|byte| *byte == b'\n').is_some() {
        password.pop_if(|byte| *byte == b'\r');
    }
    if password.starts_with("\u{feff}".as_bytes()) {
        return Err(refusal(path, &"it begins with a byte order mark (BOM): save it without one"));
    }
    if password.is_empty() { Err(refusal(path, &"it is empty")) } else { Ok(password) }
}

/// Opens a file that others cannot read.
fn secret_file(path: &Path) -> Result<File, Failure> {
    let (file, metadata) = open(path)?;
    secret_access(path, &metadata).map_err(|reason| refusal(path, &reason))?;
    Ok(file)
}

fn open(path: &Path) -> Result<(File, Metadata), Failure> {
    let file = File::open(path).map_err(|error| refusal(path, &error))?;
    let metadata = file.metadata().map_err(|error| refusal(path, &error))?;
    match metadata.is_file() || metadata.file_type().is_fifo() {
        true => Ok((file, metadata)),
        false => Err(refusal(path, &"neither a file nor a pipe")),
    }
}

fn refusal(path: &Path, reason: &dyn fmt::Display) -> Failure {
    Failure::usage(format!("{}: {reason}", path.display()))
}

/// Returns one address for each line. Skips empty lines and lines that begin with #.
fn lines(path: &Path, text: &str) -> Vec<Given> {
    let lines = text.lines().map(str::trim).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(line, number)| Given {
            text: line.to_owned(),
            origin: Origin::Line(path.to_owned(), number),
        })
        .collect()
}

/// Returns whether a file of addresses, or one of its comments, may contain a password.
fn may_be_secret(text: &str) -> bool {
    let is_secret = |line: &str| match line.strip_prefix('#') {
        None => line.contains('@') && !has_no_password(line),
        Some(words) => words
            .split_whitespace()
            .any(|word| word.contains("://") && word.contains('@') && !has_no_password(word)),
    };
    text.lines().map(str::trim).any(is_secret)
}

/// Fails unless the owner is this user or root, and others have no access. The group may read the
/// file.
fn secret_access(path: &Path, file: &Metadata) -> Result<(), String> {
    let mode = file.permissions().mode() & 0o777;
    if ![nix::unistd::geteuid().as_raw(), 0].contains(&file.uid()) {
        return Err("it belongs to another user, and may have passwords in it".to_owned());
    }
    if mode & !0o740 == 0 {
        return Ok(());
    }
    Err(format!(
        "its mode is {mode:04o}, and others must not be able to read or write it, for it may have \
         passwords in it\nif nobody has read them: chmod 600 {} (in Kubernetes: defaultMode: 0440)",
        word(path.as_os_str())
    ))
}

/// Checks a file of addresses without passwords. All users may read it. A user who can write it
/// decides where locks are taken.
fn public_access(path: &Path, file: &Metadata) -> Result<(), String> {
    let mode = file.permissions().mode() & 0o777;
    if mode & 0o002 == 0 || file.file_type().is_fifo() {
        return Ok(());
    }
    Err(format!(
        "its mode is {mode:04o}, and others must not be able to write it\nchmod o-w {}, or name the \
         nodes in {NODES_VARIABLE}",
        word(path.as_os_str())
    ))
}

/// Returns whether the addresses in the environment may contain a password.
pub(crate) fn environment_is_secret() -> bool {
    let Some(list) = variables::value(NODES_VARIABLE) else { return false };
    match list.to_str() {
        Some(list) => may_have_password(list),
        None => list.as_encoded_bytes().contains(&b'@'),
    }
}

/// Returns whether a list of addresses may contain a password: an address has one, or the list has
/// an `@` and an address cannot be parsed. A comma in a password splits an address into two parts,
/// which cannot be parsed.
fn may_have_password(list: &str) -> bool {
    let is_public = |given: Given| has_no_password(&given.text);
    list.contains('@') && !of_list(list, &Origin::Variable).all(is_public)
}

/// Returns whether this is an address without a password. A user name alone is not a secret.
fn has_no_password(address: &str) -> bool {
    let credentials = |address: &str| Address::parse(address).map(|(_, node)| node.credentials);
    if let Ok(None) = credentials(address) {
        return true;
    }
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    let Some((user, place)) = rest.rsplit_once('@') else { return false };
    !user.contains(':') && matches!(credentials(&format!("{scheme}://{place}")), Ok(None))
}

/// Returns the options that name these nodes to another `redbolt`, without a password. Returns an
/// empty string if the environment names them.
pub(crate) fn options(nodes: &Nodes) -> String {
    if let Some(path) = &nodes.nodes_file {
        return format!(" --nodes-file {}", word(path.as_os_str()));
    }
    if nodes.addresses.is_empty() {
        return String::new();
    }
    let given = nodes.given.get().map(Vec::as_slice).unwrap_or_default();
    if !given.iter().all(|given| has_no_password(&given.text)) {
        return " --node ...".to_owned();
    }
    given.iter().map(|given| format!(" --node {}", word(OsStr::new(&given.text)))).collect()
}

const COMMA: &str = "a comma ends an address; in a password, write it as %2C";

const NO_NODES: &str = "no nodes given
name each with --node HOST:PORT, or all in REDBOLT_NODES, separated by commas
to see it work without any server: redbolt demo";

const BOTH: &str = "both REDBOLT_NODES and REDBOLT_NODES_FILE are set: unset one of them";

/// The limit of a file, above the longest addresses of the largest set of nodes.
const LONGEST: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_address_and_a_comment_is_none() {
        let text = "# the lock nodes\n\n10.0.0.1\r\n  redis://:pa#ss,w@10.0.0.2 \n\t# 10.0.0.9\n";
        let given = lines(Path::new("nodes"), text);
        let texts: Vec<_> = given.iter().map(|given| given.text.as_str()).collect();
        assert_eq!(texts, ["10.0.0.1", "redis://:pa#ss,w@10.0.0.2"]);
        assert_eq!(given[1].wrong("no").to_string(), "nodes line 4: no");
    }

    #[test]
    fn a_file_is_secret_if_a_password_may_be_in_it() {
        for public in [
            "",
            "10.0.0.1\n10.0.0.2\n",
            "# ask ops@example.org\nredis://ann@10.0.0.1\r\n",
            "# was redis://ann@10.0.0.9\n  unix:///run/redis@jobs.sock",
            "not an address\n:::\n",
        ] {
            assert!(!may_be_secret(public), "{public:?}");
        }
        for secret in [
            "10.0.0.1\nredis://:pw@10.0.0.2\n",
            "10.0.0.1\n# redis://ann:old@10.0.0.2\n",
            "  #redis://:old@10.0.0.2",
            "\u{feff}redis://ann:p,w@h",
            "ann:pw@h",
        ] {
            assert!(may_be_secret(secret), "{secret:?}");
        }
    }

    #[test]
    fn blanks_and_empty_parts_are_no_nodes() {
        let texts: Vec<_> =
            of_list(" a, ,b:1 ,", &Origin::Option).map(|given| given.text).collect();
        assert_eq!(texts, ["a", "b:1"]);
    }
    #[test]
    fn a_list_has_a_password_unless_every_address_is_known_to_have_none() {
        let public = [
            "10.0.0.1,[::1]:7000",
            "redis://ann@10.0.0.1, valkey://bob%40home@h:7000/3",
            "redis+sentinel://ann@h1+h2/jobs,",
            "unix:///run/redis@jobs.sock?db=3,unix:/run/redis@a:b.sock",
        ];
        for list in public {
            assert!(!may_have_password(list), "{list}");
        }
        let secret = [
            "redis://ann:pw@10.0.0.1",
            "10.0.0.1,redis://:pw@10.0.0.2",
            "redis+sentinel://:pw@h1+h2/jobs",
            // A comma in the password.
            "redis://:p,w@h",
            "redis://ann:12,34@h",
            // Not addresses, and yet may have a password.
            "ann:pw@h",
            "pw@h",
            "http://ann:pw@h",
            "redis://ann:p@w@h:x",
            "unix://ann:pw@/run/redis.sock",
        ];
        for list in secret {
            assert!(may_have_password(list), "{list}");
        }
    }
}
