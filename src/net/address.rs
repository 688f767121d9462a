//! The address of a node, and the settings it carries, as text.
//!
//! The forms are `host`, `host:port`, `redis://[user[:password]@]host[:port][/db]` and
//! `unix:///path[?db=n]`. `valkey://` means `redis://`; `rediss://` and `valkeys://` add TLS. User,
//! password and path may be percent-encoded. `unix:/path`, the form in which sockets are displayed,
//! takes the path unchanged. `redis+sentinel://[user:password@]host[:port]+host…/master[/db]` is a
//! master known to these sentinels, and `rediss+sentinel://…` uses TLS for the master and, by
//! default, for the sentinels; user and password are for the node.
//!
//! Invariant: all other input is an error, and its text does not repeat anything that may be a
//! secret.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use super::host_port::{HostPort, shown};
use crate::proto::{Credentials, NodeSettings, Secret, is_printable, messages};

/// The address at which a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A host name, which is resolved, and a port.
    Name(String, u16),
    /// An IP address and a port.
    Ip(IpAddr, u16),
    /// A [`Name`](Self::Name) over TLS.
    TlsName(String, u16),
    /// An [`Ip`](Self::Ip) over TLS.
    TlsIp(IpAddr, u16),
    /// A Unix socket.
    Unix(PathBuf),
    /// A master known to sentinels.
    Sentinels(Sentinels),
}

/// A master, identified by its name in the configuration of its sentinels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sentinels {
    /// The hosts and ports, in the order given.
    pub(super) places: Vec<HostPort>,
    pub(super) master: String,
    /// Connections to the master use TLS; sentinels follow unless configured separately.
    pub(super) tls: bool,
}

impl Address {
    /// Returns the address of this host, which is resolved later unless it is an IP address.
    pub(super) fn of((host, port): &HostPort, is_tls: bool) -> Self {
        let address = match host.parse() {
            Ok(ip) => Self::Ip(ip, *port),
            Err(_) => Self::Name(host.clone(), *port),
        };
        if is_tls { address.over_tls() } else { address }
    }

    /// Parses an address and the settings it carries.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the address. The text omits every part that may be a secret.
    pub fn parse(text: &str) -> Result<(Self, NodeSettings), AddressError> {
        match Self::parse_in_part(text)? {
            (_, _, Some(missing)) => Err(missing),
            (address, settings, None) => Ok((address, settings)),
        }
    }

    /// Parses an address whose password may be configured elsewhere. For a user without a password,
    /// also returns the error to report if none is configured.
    pub(crate) fn parse_in_part(
        text: &str,
    ) -> Result<(Self, NodeSettings, Option<AddressError>), AddressError> {
        let wrong = |fault| AddressError { fault, shown: presentable(text) };
        let text = without_mark(text).map_err(wrong)?;
        let (address, settings) = parse(text, HAS_TLS).map_err(wrong)?;
        // `credentials` returns an empty password only if the text has none.
        let nothing = Secret::new(Vec::new());
        let is_missing = settings.credentials.as_ref().is_some_and(|it| it.password == nothing);
        Ok((address, settings, is_missing.then(|| wrong(AddressFault::PasswordMissing))))
    }

    /// Returns whether connections to the node at this address use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            Self::TlsName(..) | Self::TlsIp(..) => true,
            Self::Sentinels(sentinels) => sentinels.tls,
            Self::Name(..) | Self::Ip(..) | Self::Unix(_) => false,
        }
    }

    /// Returns this address with TLS; a Unix socket stays unchanged.
    fn over_tls(self) -> Self {
        match self {
            Self::Name(host, port) => Self::TlsName(host, port),
            Self::Ip(ip, port) => Self::TlsIp(ip, port),
            Self::Sentinels(sentinels) => Self::Sentinels(Sentinels { tls: true, ..sentinels }),
            other => other,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address without settings, including every form that `Display` writes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse`](Address::parse), and an error for a user, password or
    /// database.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fault = match without_mark(text).and_then(|text| parse(text, HAS_TLS)) {
            Ok((address, settings)) if settings == NodeSettings::default() => return Ok(address),
            Ok(_) => AddressFault::NotAlone,
            Err(fault) => fault,
        };
        Err(AddressError { fault, shown: presentable(text) })
    }
}

/// Writes the address in the form that [`FromStr`] parses.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self, Self::TlsName(..) | Self::TlsIp(..)) {
            f.write_str("rediss://")?;
        }
        match self {
            Self::Name(host, port) | Self::TlsName(host, port) => write!(f, "{host}:{port}"),
            Self::Ip(IpAddr::V6(ip), port) | Self::TlsIp(IpAddr::V6(ip), port) => {
                write!(f, "[{ip}]:{port}")
            }
            Self::Ip(ip, port) | Self::TlsIp(ip, port) => write!(f, "{ip}:{port}"),
            Self::Unix(path) => unix(f, &path.display().to_string()),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss+sentinel://" } else { "redis+sentinel://" })?;
        for (at, place) in self.places.iter().enumerate() {
            let plus = if at > 0 { "+" } else { "" };
            write!(f, "{plus}{}", shown(place))?;
        }
        write!(f, "/{}", self.master)
    }
}

/// Writes a path, percent-encoded if it contains characters that a terminal would act on.
fn unix(f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
    if path.chars().all(is_printable) {
        return write!(f, "unix:{path}");
    }
    f.write_str("unix://")?;
    for char in path.chars() {
        // % and ? have a meaning in `unix://` addresses.
        match is_printable(char) && !matches!(char, '%' | '?') {
            true => f.write_char(char)?,
            false => {
                char.encode_utf8(&mut [0; 4]).bytes().try_for_each(|it| write!(f, "%{it:02x}"))?
            }
        }
    }
    Ok(())
}

/// Why an address could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    fault: AddressFault,
    shown: String,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node address `{}`: {}", self.shown, self.fault)
    }
}

impl Error for AddressError {}

messages! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum AddressFault {
        ByteOrderMark: "it begins with a byte order mark (BOM): save the text as UTF-8 without one",
        Database: "the database is not a number",
        Empty: "it is empty",
        Host: "the host is missing or has characters that no host has",
        Master: "the name of the master is missing, or has characters that none has",
        NotAlone: "a user, a password or a database is no part of an address",
        PasswordMissing: "a user without a password (write user:password@, or :password@ for the default \
            user, or name a file with the password)",
        Path: "a Unix socket needs an absolute path of at most 107 bytes",
        Percent: "a % is not followed by two hexadecimal digits",
        Port: "the port is not a number from 1 to 65535",
        Query: "the only option behind a ? is db=n, of a unix:// address",
        Scheme: "the scheme is none of redis://, valkey://, rediss://, valkeys://, redis+sentinel://, \
            rediss+sentinel:// and unix://",
        Sentinels: "a sentinel is named twice, or there are more than 32",
        SlashWithoutScheme: "a path needs unix:// before it, a host with a database redis://",
        Tls: "this redbolt was built without TLS: rediss:// and valkeys:// need its feature `tls`",
        UnixUser: "a user or a password is not supported in the address of a Unix socket: name a file \
            with the password of the default user",
        UserWithoutScheme: "a user or password needs redis:// before it",
        Zone: "an IPv6 zone (% and an interface) is not supported: use an address that is not \
            link-local, or a host name",
    }
}

/// Whether this build has TLS.
const HAS_TLS: bool = cfg!(feature = "tls");

/// Rejects the invisible byte order mark with which some editors begin a text.
fn without_mark(text: &str) -> Result<&str, AddressFault> {
    if text.starts_with(BYTE_ORDER_MARK) { Err(AddressFault::ByteOrderMark) } else { Ok(text) }
}

/// Parses an address for a build with or without TLS.
fn parse(text: &str, has_tls: bool) -> Result<(Address, NodeSettings), AddressFault> {
    if text.is_empty() {
        return Err(AddressFault::Empty);
    }
    // Not percent-decoded, so that every displayed path parses to itself.
    if let Some(path) = text.strip_prefix("unix:/").filter(|path| !path.starts_with('/')) {
        return Ok((socket(path)?, NodeSettings::default()));
    }
    match text.split_once("://") {
        None if text.contains('@') => Err(AddressFault::UserWithoutScheme),
        None if text.contains('/') => Err(AddressFault::SlashWithoutScheme),
        None => Ok((host_and_port(text)?, NodeSettings::default())),
        Some(("redis" | "valkey", rest)) => over_tcp(rest),
        Some(("unix", rest)) => over_unix(rest),
        Some(("redis+sentinel" | "valkey+sentinel", rest)) => by_sentinels(rest),
        Some(("rediss" | "valkeys" | "rediss+sentinel" | "valkeys+sentinel", _)) if !has_tls => {
            Err(AddressFault::Tls)
        }
        Some(("rediss" | "valkeys", rest)) => over_tcp(rest).map(over_tls),
        Some(("rediss+sentinel" | "valkeys+sentinel", rest)) => by_sentinels(rest).map(over_tls),
        Some(_) => Err(AddressFault::Scheme),
    }
}

fn over_tls((address, settings): (Address, NodeSettings)) -> (Address, NodeSettings) {
    (address.over_tls(), settings)
}

fn over_tcp(rest: &str) -> Result<(Address, NodeSettings), AddressFault> {
    let (user_info, place) = without_user(rest)?;
    let (host, database) = place.split_once('/').unwrap_or((place, ""));
    let credentials = user_info.map(credentials).transpose()?;
    Ok((host_and_port(host)?, settings(credentials, database)?))
}

fn without_user(rest: &str) -> Result<(Option<&str>, &str), AddressFault> {
    // The last @ separates, so that a bare @ in a password is accepted.
    let (user_info, place) = match rest.rsplit_once('@') {
        Some((user_info, place)) => (Some(user_info), place),
        None => (None, rest),
    };
    match place.contains(['?', '#']) {
        true => Err(AddressFault::Query),
        false => Ok((user_info, place)),
    }
}

fn settings(
    credentials: Option<Credentials>,
    database: &str,
) -> Result<NodeSettings, AddressFault> {
    let database = database_number(database)?;
    Ok(NodeSettings { credentials, database, ..NodeSettings::default() })
}

/// Parses `[user:password@]host[:port]+host…/master[/db]`. User and password are for the node.
fn by_sentinels(rest: &str) -> Result<(Address, NodeSettings), AddressFault> {
    let (user_info, place) = without_user(rest)?;
    let (hosts, rest) = place.split_once('/').ok_or(AddressFault::Master)?;
    let (master, database) = rest.split_once('/').unwrap_or((rest, ""));
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if master.is_empty() || !master.bytes().all(fits) {
        return Err(AddressFault::Master);
    }
    let places = hosts.split('+').map(sentinel).collect::<Result<Vec<_>, _>>()?;
    // Each sentinel has one vote, so it must be listed once. Each is queried in its own thread, so
    // their number is limited.
    let is_twice = |at: usize| places[..at].contains(&places[at]);
    if places.len() > MOST_SENTINELS || (0..places.len()).any(is_twice) {
        return Err(AddressFault::Sentinels);
    }
    let settings = settings(user_info.map(credentials).transpose()?, database)?;
    let sentinels = Sentinels { places, master: master.to_owned(), tls: false };
    Ok((Address::Sentinels(sentinels), settings))
}

fn sentinel(text: &str) -> Result<HostPort, AddressFault> {
    match host_or_default(text, SENTINEL_PORT)? {
        // Host names ignore case: a duplicate would have two votes.
        Address::Name(host, port) => Ok((host.to_ascii_lowercase(), port)),
        Address::Ip(ip, port) => Ok((ip.to_string(), port)),
        _ => Err(AddressFault::Host),
    }
}

fn over_unix(rest: &str) -> Result<(Address, NodeSettings), AddressFault> {
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, q)| (path, Some(q)));
    let database = match query {
        None => 0,
        Some(query) => {
            let number = query.strip_prefix("db=").filter(|n| !n.is_empty());
            database_number(number.ok_or(AddressFault::Query)?)?
        }
    };
    let path = String::from_utf8(decoded(path)?).map_err(|_| AddressFault::Path)?;
    let has_user = !path.starts_with('/') && path.contains("@/");
    let path = path.strip_prefix('/').ok_or(if has_user {
        AddressFault::UnixUser
    } else {
        AddressFault::Path
    })?;
    Ok((socket(path)?, NodeSettings { database, ..NodeSettings::default() }))
}

/// Returns a Unix socket address; `path` may lack its leading slash.
fn socket(path: &str) -> Result<Address, AddressFault> {
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.len() > LONGEST_SOCKET_PATH || path.contains('\0') {
        return Err(AddressFault::Path);
    }
    Ok(Address::Unix(path.into()))
}

/// Parses `user[:password]`. Returns an empty password for a user alone.
fn credentials(user_info: &str) -> Result<Credentials, AddressFault> {
    let (user, password) = match user_info.split_once(':') {
        Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
        None => (decoded(user_info)?, None),
    };
    // `user:@` and `@` are mistakes: neither names a password.
    if password.as_ref().map_or(user.is_empty(), Vec::is_empty) {
        return Err(AddressFault::PasswordMissing);
    }
    let password = password.unwrap_or_default();
    let user = Some(user).filter(|user| !user.is_empty());
    Ok(Credentials { user, password: Secret::new(password) })
}

fn host_and_port(text: &str) -> Result<Address, AddressFault> {
    host_or_default(text, DEFAULT_PORT)
}

fn host_or_default(text: &str, default_port: u16) -> Result<Address, AddressFault> {
    if has_zone(text) {
        return Err(AddressFault::Zone);
    }
    // Before looking for a port, because an IPv6 address contains colons.
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Ok(Address::Ip(ip.into(), default_port));
    }
    if let Some(bracketed) = text.strip_prefix('[') {
        let (ip, port) = bracketed.split_once(']').ok_or(AddressFault::Host)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| AddressFault::Host)?;
        let port = match port {
            "" => default_port,
            port => port_number(port.strip_prefix(':').ok_or(AddressFault::Port)?)?,
        };
        return Ok(Address::Ip(ip.into(), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port_number(port)?),
        None => (text, default_port),
    };
    if let Ok(ip) = host.parse() {
        return Ok(Address::Ip(ip, port));
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > LONGEST_HOST || !host.bytes().all(fits) {
        return Err(AddressFault::Host);
    }
    Ok(Address::Name(host.to_owned(), port))
}

/// Returns whether this is an IPv6 address with a zone, with or without a port.
fn has_zone(text: &str) -> bool {
    let Some((ip, _)) = text.split_once('%') else { return false };
    ip.strip_prefix('[').unwrap_or(ip).parse::<Ipv6Addr>().is_ok()
}

fn port_number(text: &str) -> Result<u16, AddressFault> {
    match digits(text) {
        Some(port @ 1..=65_535) => Ok(port as u16),
        _ => Err(AddressFault::Port),
    }
}

fn database_number(text: &str) -> Result<u32, AddressFault> {
    if text.is_empty() { Ok(0) } else { digits(text).ok_or(AddressFault::Database) }
}

/// Parses digits only: `str::parse` would accept a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn decoded(text: &str) -> Result<Vec<u8>, AddressFault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) =
            (digit().ok_or(AddressFault::Percent)?, digit().ok_or(AddressFault::Percent)?);
        // The value fits, because each digit is below 16.
        out.push((high * 16 + low) as u8);
    }
    Ok(out)
}

/// Returns the part of an address that is safe to show: without text before an `@` or after a `?`,
/// and after a colon only a host's port.
fn presentable(text: &str) -> String {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    // Text that does not look like a scheme may be a password or control a terminal.
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    let is_path = scheme == "unix://" && rest.starts_with('/');
    let (hidden, place) = match rest.rsplit_once('@') {
        Some((user_info, place)) if !is_path => (user_shown(&scheme, user_info), place),
        _ => (String::new(), rest),
    };
    let (place, options) = match place.split_once(['?', '#']) {
        Some((place, _)) => (place, "?(hidden)"),
        None => (place, ""),
    };
    let head = place.split('/').next().unwrap_or(place);
    let shown = match host_and_port(head) {
        // A number without a host before it may be a password.
        Ok(Address::Name(..) | Address::Ip(..)) => place,
        _ if has_mistyped_port(head) || has_zone(head) => place,
        _ if scheme == "unix://" => place,
        _ => place.split([':', ']']).next().unwrap_or_default(),
    };
    let cut = match place[shown.len()..].chars().next() {
        None => "",
        Some(':') => ":(hidden)",
        Some(_) => "(hidden)",
    };
    format!("{scheme}{hidden}{}{cut}{options}", shown.escape_debug())
}

/// Returns the user to show. A user before a password is not secret; a single word may be a
/// misplaced password.
fn user_shown(scheme: &str, user_info: &str) -> String {
    let is_plain =
        |user: &str| user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    match user_info.split_once(':') {
        Some((user, _)) if !scheme.is_empty() && !user.is_empty() && is_plain(user) => {
            format!("{user}:(hidden)@")
        }
        _ => "(hidden)@".to_owned(),
    }
}

fn is_scheme(text: &str) -> bool {
    let name = text.strip_suffix("+sentinel").unwrap_or(text);
    name.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Returns whether the text after a host's colon can only be a mistyped port: no longer than a
/// port, and at least half digits.
fn has_mistyped_port(place: &str) -> bool {
    let Some((host, port)) = place.rsplit_once(':') else { return false };
    let digits = port.bytes().filter(u8::is_ascii_digit).count();
    let is_host = host.starts_with('[') || !host.contains(':');
    let is_port =
        port.bytes().all(|b| b.is_ascii_graphic()) && digits > 0 && 2 * digits >= port.len();
    is_host && is_port && port.len() <= LONGEST_PORT && host_and_port(&format!("{host}:1")).is_ok()
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The maximum length of a port, in digits.
const LONGEST_PORT: usize = 5;

const DEFAULT_PORT: u16 = 6379;

const SENTINEL_PORT: u16 = 26379;

const MOST_SENTINELS: usize = 32;

/// The maximum length of a host name (RFC 1035).
const LONGEST_HOST: usize = 253;

/// The maximum length of a socket path: `sun_path` holds 108 bytes including the final NUL.
const LONGEST_SOCKET_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Address::parse(text).unwrap().0.to_string()
    }

    fn fault(text: &str) -> AddressFault {
        Address::parse(text).expect_err(text).fault
    }

    #[test]
    fn all_forms() {
        assert_eq!(shown("10.0.0.1"), "10.0.0.1:6379");
        assert_eq!(shown("redis-1.example"), "redis-1.example:6379");
        assert_eq!(shown("localhost:7000"), "localhost:7000");
        assert_eq!(shown("::1"), "[::1]:6379");
        assert_eq!(shown("[::1]:7000"), "[::1]:7000");
        assert_eq!(shown("redis://h"), "h:6379");
        assert_eq!(shown("valkey://h:1/"), "h:1");
        assert_eq!(shown("unix:///run/r.sock"), "unix:/run/r.sock");
        assert_eq!(shown("unix:///run/a%20b"), "unix:/run/a b");
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for text in [
            "10.0.0.1",
            "redis-1.example:7000",
            "localhost",
            "::1",
            "[fe80::1]:7000",
            "::ffff:10.0.0.1",
            "valkey://h:1/0",
            "unix:///run/redis.sock",
            "unix:///run/a%20b%25%3F%40",
            "unix:///run/%1b%5b2J%0a%25%3f%c2%9b",
            "unix:/run/%3f\x1b",
            "unix:////run//r.sock",
            "unix:/run/100%?@://",
            "redis+sentinel://10.0.0.1+s-2.example:26380+[::1]:7/jobs.1",
        ] {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(address.to_string().parse(), Ok(address), "{text}");
        }
        assert_eq!("unix:/a%20b".parse(), Ok(Address::Unix("/a%20b".into())));
    }

    #[test]
    fn the_path_of_a_socket_does_not_erase_the_screen() {
        assert_eq!(shown("unix:///run/%1b%5b2J%0a?db=0"), "unix:///run/%1b[2J%0a");
    }

    #[test]
    fn an_address_alone_has_no_settings() {
        for text in ["redis://:s3cret@h", "redis://h/3", "unix:///run/r.sock?db=1"] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.fault, AddressFault::NotAlone);
            assert!(!format!("{error} {error:?}").contains("s3"), "{error}");
        }
        assert_eq!("h:x".parse::<Address>().unwrap_err(), Address::parse("h:x").unwrap_err());
    }

    #[test]
    fn settings_come_with_it() {
        let (_, settings) = Address::parse("redis://ann:p%40ss%3a@h:7/3").unwrap();
        let credentials = settings.credentials.unwrap();
        assert_eq!(credentials.user.as_deref(), Some(&b"ann"[..]));
        assert_eq!(credentials.password, Secret::new(b"p@ss:".to_vec()));
        assert_eq!(settings.database, 3);
        let (_, settings) = Address::parse("redis://:pw@h").unwrap();
        assert_eq!(settings.credentials.unwrap().user, None);
        let (address, settings) = Address::parse("unix:///s?db=9").unwrap();
        assert_eq!((address, settings.database), (Address::Unix("/s".into()), 9));
        let (address, _) = Address::parse("redis://u:a@b@h").unwrap();
        assert_eq!(address.to_string(), "h:6379", "a bare @ in a password is understood");
    }

    #[test]
    fn everything_else_is_an_error() {
        for (text, expected) in [
            ("", AddressFault::Empty),
            ("http://h", AddressFault::Scheme),
            ("user:pw@h", AddressFault::UserWithoutScheme),
            ("redis://", AddressFault::Host),
            ("redis://:7000", AddressFault::Host),
            ("a b", AddressFault::Host),
            ("h:", AddressFault::Port),
            ("h:0", AddressFault::Port),
            ("h:65536", AddressFault::Port),
            ("h:1/0", AddressFault::SlashWithoutScheme),
            ("/run/redis.sock", AddressFault::SlashWithoutScheme),
            ("h:+1", AddressFault::Port),
            ("[::1]7", AddressFault::Port),
            ("[::1", AddressFault::Host),
            ("redis://h/x", AddressFault::Database),
            ("redisss://h", AddressFault::Scheme),
            ("redis+sentinel://h", AddressFault::Master),
            ("redis+sentinel://h/", AddressFault::Master),
            ("redis+sentinel://h+/m", AddressFault::Host),
            ("redis+sentinel://a+b+A:26379/m", AddressFault::Sentinels),
            ("redis://h/1/2", AddressFault::Database),
            ("redis://h?db=1", AddressFault::Query),
            ("redis://user@h", AddressFault::PasswordMissing),
            ("redis://user:@h", AddressFault::PasswordMissing),
            ("redis://@h", AddressFault::PasswordMissing),
            ("redis://u:%zz@h", AddressFault::Percent),
            ("redis://u:%4@h", AddressFault::Percent),
            ("unix://run/x", AddressFault::Path),
            ("unix://", AddressFault::Path),
            ("unix:///x?db=", AddressFault::Query),
            ("unix:///x?timeout=1", AddressFault::Query),
            ("unix:///x?db=-1", AddressFault::Database),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn a_build_without_tls_names_the_missing_feature() {
        for text in ["rediss://h", "valkeys://u:s3cret@h", "rediss+sentinel://h/m"] {
            let fault = parse(text, false).unwrap_err();
            assert_eq!(fault, AddressFault::Tls);
            assert!(fault.to_string().contains("feature `tls`"), "{fault}");
            assert_eq!(Address::parse(text).is_ok(), HAS_TLS);
            assert!(parse(text, true).is_ok());
        }
        assert!(parse("redis://h", false).is_ok());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn over_tls_everything_else_is_the_same() {
        let (address, settings) = Address::parse("rediss://ann:pw@h/3").unwrap();
        assert_eq!(address, Address::TlsName("h".to_owned(), 6379));
        assert_eq!((settings.credentials.is_some(), settings.database), (true, 3));
        for text in [
            "valkeys://h:1",
            "rediss://10.0.0.1:2",
            "rediss://[::1]:3",
            "valkeys+sentinel://a:1+[::1]:2/m",
        ] {
            let address: Address = text.parse().unwrap();
            assert!(address.is_tls());
            assert_eq!(address.to_string(), text.replace("valkeys", "rediss"));
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        assert_ne!("rediss://h".parse::<Address>(), "redis://h".parse());
        let [with, without] = ["rediss", "redis"].map(|scheme| format!("{scheme}+sentinel://h/m"));
        assert_ne!(with.parse::<Address>(), without.parse());
        assert_eq!(fault("rediss://user@h"), AddressFault::PasswordMissing);
    }

    /// Hiding the port would hide that it contains the letter O instead of a zero.
    #[test]
    fn a_port_with_a_slip_in_it_is_shown() {
        for (text, expected) in [
            ("redis-1:637O", "redis-1:637O"),
            ("10.0.0.1:63790", "10.0.0.1:63790"),
            ("redis-1:70000", "redis-1:70000"),
            ("redis://:hunter2@redis-1:6379o/0", "redis://(hidden)@redis-1:6379o/0"),
            ("[::1]:637O", "[::1]:637O"),
            ("redis-1:0", "redis-1:0"),
            ("redis-1:hunter2", "redis-1:(hidden)"),
            ("redis-1:x", "redis-1:(hidden)"),
            ("user:123456", "user:(hidden)"),
            ("redis-1:12:34", "redis-1:(hidden)"),
            ("redis-1:63\x1b9", "redis-1:(hidden)"),
        ] {
            match Address::parse(text) {
                Ok((address, _)) => assert_eq!(address.to_string(), expected),
                Err(error) => {
                    let shown = format!("node address `{expected}`: the port is not a number from");
                    assert!(error.to_string().starts_with(&shown), "{error}");
                }
            }
        }
    }

    #[test]
    fn no_error_repeats_a_secret() {
        for text in [
            "redis://u:s3cret@h:x",
            "redis://u:s3cret@h/x",
            "redis://:s3cret",
            "redis://u:s3cret",
            "u:s3cret",
            "u:s3cret@h",
            "http://u:s3cret@h",
            "redis://u:s3/cret@h:1:2",
            "redis://s3cret@h",
            "rediss://u:s3cret@h:x",
            "redis+sentinel://u:s3cret@h",
            "redis+sentinel://u:s3cret@h/m/x",
            "redis+sentinel://u:s3cret",
            "u:s3cret@redis://h",
            "\x1b[31m://h",
        ] {
            let error = Address::parse(text).unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(!told.contains("s3"), "{told}");
            assert!(!told.contains(char::is_control), "{told:?}");
        }
        let error = Address::parse("redis://:123456").unwrap_err().to_string();
        assert!(!error.contains("123"), "{error}");
        let (_, settings) = Address::parse("redis://u:s3cret@h").unwrap();
        assert!(!format!("{settings:?}").contains("s3"));
    }
}
