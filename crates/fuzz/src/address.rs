//! Node addresses as users write them: an accepted one survives printing and parsing, and the error
//! of a refused one repeats no secret.
//!
//! If the first byte is even, the rest is the address as text. If it is odd, the rest chooses the
//! parts of a well-formed address, which must be accepted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use redbolt::net::{Address, AddressError};
use redbolt::proto::{Credentials, Secret};

use crate::input::Input;

/// Checks an address, arbitrary or well formed.
pub fn body(input: &[u8]) {
    let mut input = Input::new(input);
    if input.byte() & 1 == 0 {
        arbitrary(&String::from_utf8_lossy(input.rest()));
    } else {
        well_formed(&mut input);
    }
}

fn arbitrary(text: &str) {
    match Address::parse(text) {
        Ok((address, settings)) => {
            let shown = address.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            assert_eq!(shown.parse(), Ok(address.clone()));
            assert_eq!(Address::parse(&written(&address)).map(|(same, _)| same), Ok(address));
            if let Some(credentials) = settings.credentials {
                assert_eq!(format!("{:?}", credentials.password), "Secret(..)");
            }
        }
        Err(error) => reports_nothing(text, &error),
    }
}

/// Returns the address as text that parses again.
fn written(address: &Address) -> String {
    match address {
        Address::Unix(path) => {
            let path = path.to_str().expect("the path was made of text");
            format!("unix://{}", encoded(path.as_bytes(), b"/"))
        }
        address => address.to_string(),
    }
}

/// Checks that the error contains no text before the last `@`, and no control characters.
fn reports_nothing(text: &str, error: &AddressError) {
    let reported = error.to_string();
    assert!(!reported.contains(char::is_control), "{reported:?}");
    let Some(secret) = user_info(text) else { return };
    let shown =
        reported.strip_prefix("node address `").and_then(|reported| reported.rsplit_once("`: "));
    let (shown, _) = shown.expect("the form of an error");
    let leaks = |piece: &str| piece.contains(secret);
    assert!(!shown.split("(hidden)").any(leaks), "{reported}");
    if secret.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let debugged = format!("{error:?}");
        let (_, shown) = debugged.split_once("shown: ").expect("the form of an error");
        assert!(!shown.split("(hidden)").any(leaks), "{debugged}");
    }
}

/// Returns the text in the position of a password, if it is long enough to be recognised and occurs
/// only once.
fn user_info(text: &str) -> Option<&str> {
    let (before, _) = text.rsplit_once('@')?;
    let secret = match before.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => rest,
        _ => before,
    };
    // Errors escape the text that they quote, and an escape sequence may look like the secret, too.
    let plain = secret.escape_debug().eq(secret.chars());
    let escaped = text.escape_debug().to_string();
    let alone = occurrences(text, secret) == 1 && occurrences(&escaped, secret) == 1;
    (secret.len() >= SHORTEST_SECRET && plain && alone).then_some(secret)
}

fn occurrences(text: &str, part: &str) -> usize {
    text.as_bytes().windows(part.len().max(1)).filter(|window| *window == part.as_bytes()).count()
}

/// Checks any user, password, host, port and database, with as little or as much percent-encoding
/// as possible.
fn well_formed(input: &mut Input<'_>) {
    let scheme = input.choose(&["redis", "valkey"]);
    let bare: &[u8] = input.choose(&[&b""[..], b"@", b"!$&'()*+,;=~", b"/?#[]@"]);
    let port = u16::from_be_bytes([input.byte(), input.byte()]).max(1);
    let database = u32::from_be_bytes([input.byte(), input.byte(), input.byte(), input.byte()]);
    let address = host(input, port);
    let user_len = usize::from(input.byte() % 16);
    let user = Some(input.bytes(user_len).to_vec()).filter(|user| !user.is_empty());
    let password = input.rest();
    let mut text = format!("{scheme}://");
    if !password.is_empty() {
        let user = encoded(user.as_deref().unwrap_or_default(), bare);
        text += &format!("{user}:{}@", encoded(password, bare));
    }
    text += &format!("{address}/{database}");
    let (read, settings) = Address::parse(&text).expect(&text);
    assert_eq!(read.to_string().parse().as_ref(), Ok(&read), "{text}");
    assert_eq!((read, settings.database), (address, database), "{text}");
    let password = Secret::new(password.to_vec());
    let expected = Some(Credentials::new(user, password)).filter(|_| text.contains('@'));
    assert!(settings.credentials == expected, "{text}");
}

fn host(input: &mut Input<'_>, port: u16) -> Address {
    match input.byte() % 3 {
        0 => {
            let letter = |&byte: &u8| char::from(HOST_LETTERS[usize::from(byte) % 38]);
            let len = usize::from(input.byte());
            let name: String = input.bytes(len.min(200)).iter().map(letter).collect();
            // A number at the end could make the name an IP address.
            Address::Name(name + "x", port)
        }
        1 => {
            let mut bits = [0; 4];
            bits.fill_with(|| input.byte());
            Address::Ip(IpAddr::V4(Ipv4Addr::from(bits)), port)
        }
        _ => {
            let mut bits = [0; 16];
            bits.fill_with(|| input.byte());
            Address::Ip(IpAddr::V6(Ipv6Addr::from(bits)), port)
        }
    }
}

/// Returns the percent-encoding; letters, digits and `bare` stay unchanged.
fn encoded(bytes: &[u8], bare: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || bare.contains(&byte) {
            out.push(char::from(byte));
        } else if byte % 2 == 0 {
            out += &format!("%{byte:02x}");
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

const HOST_LETTERS: &[u8; 38] = b"abcdefghijklmnopqrstuvwxyz0123456789-.";

/// The length below which a text may occur by chance.
const SHORTEST_SECRET: usize = 4;

/// The maximum length of an input: longer than the longest host name and the longest socket path.
pub const MAX_LEN: usize = 384;
