//! The login of a connection. The library does not return passwords, so they are read again from
//! the addresses.

/// A password, with a user if one was named.
#[derive(PartialEq, Eq)]
pub(super) struct Login {
    user: Option<Vec<u8>>,
    password: Vec<u8>,
}

impl Login {
    /// Reads the login from an address that the library has accepted. `shared` is the password of
    /// an address that has none.
    pub(super) fn of(address: &str, shared: Option<&[u8]>) -> Option<Self> {
        let info = address
            .split_once("://")
            .filter(|(scheme, _)| *scheme != "unix")
            .and_then(|(_, rest)| rest.rsplit_once('@'))
            .map(|(info, _)| info);
        let (user, password) = match info.map(|info| info.split_once(':').ok_or(info)) {
            None => (Vec::new(), shared?.to_vec()),
            Some(Err(user)) => (decoded(user), shared?.to_vec()),
            Some(Ok((user, password))) => (decoded(user), decoded(password)),
        };
        Some(Self { user: Some(user).filter(|user| !user.is_empty()), password })
    }

    /// Returns the command that logs in.
    pub(super) fn words(&self) -> Vec<&[u8]> {
        let user = self.user.as_deref();
        [&b"AUTH"[..]].into_iter().chain(user).chain([&self.password[..]]).collect()
    }
}

/// Percent-decodes a text in which two digits follow every %.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let code = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let (meant, tail) = match code.filter(|_| byte == b'%') {
            Some(code) => (code, &tail[2..]),
            None => (byte, tail),
        };
        out.push(meant);
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_what_stands_before_the_last_at() {
        let words = |address: &str| {
            let login = Login::of(address, None)?;
            Some(login.words().iter().map(|word| word.to_vec()).collect::<Vec<_>>())
        };
        let expected = |words: &[&str]| Some(words.iter().map(|w| w.as_bytes().to_vec()).collect());
        assert_eq!(words("redis://:pa@ss@host"), expected(&["AUTH", "pa@ss"]));
        assert_eq!(words("valkey://me:a%3Ab%25@host:1/2"), expected(&["AUTH", "me", "a:b%"]));
        assert_eq!(words("redis://host"), None);
        assert_eq!(words("host:6379"), None);
        assert_eq!(words("unix:///run/a:b@c"), None);
        let words = |address: &str| {
            let login = Login::of(address, Some(b"pw")).unwrap();
            login.words().iter().map(|word| word.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(words("redis://me@host"), [&b"AUTH"[..], b"me", b"pw"]);
        for address in ["host", "redis://host", "unix:///run/a:b@c"] {
            assert_eq!(words(address), [&b"AUTH"[..], b"pw"]);
        }
        assert_eq!(words("redis://:own@host"), [&b"AUTH"[..], b"own"]);
    }
}
