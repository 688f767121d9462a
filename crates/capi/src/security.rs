//! TLS and passwords: which servers are trusted as nodes, and the client's own credentials. The
//! library reads the files.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use redbolt::config::{Credentials, Secret};

use crate::config::{ConfigHandle, change};
use crate::failure::Failure;
use crate::foreign::{bytes, text, zero_ended};
use crate::status::Status;

/// Sets a file with the password for each node whose address has none, of the user in the address
/// or of the default user. One end of line after it is ignored. The file is read when the
/// configuration is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_password_file(
    config: Option<&mut ConfigHandle>,
    file: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.password_file(unsafe { path(file) }?))
    })
}

/// Sets the credentials for sentinels: a password of `length` bytes, of `user` or, if that is null,
/// of their default user. Those of a node are in its address, or in
/// `redbolt_config_set_password_file`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_sentinel_credentials(
    config: Option<&mut ConfigHandle>,
    user: *const c_char,
    password: *const u8,
    length: usize,
) -> Status {
    change(config, |builder| {
        let user = match user.is_null() {
            true => None,
            // SAFETY: the caller passes pointers that are valid, as the header requires.
            false => Some(unsafe { text(user, "user") }?.as_bytes().to_vec()),
        };
        // SAFETY: as above.
        let password = unsafe { bytes(password, length, "password") }?;
        let credentials = Credentials::new(user, Secret::new(password.to_vec()));
        Ok(builder.sentinel_credentials(credentials))
    })
}

/// Sets a file of CA certificates in PEM. Over TLS a server is trusted if one of them has issued
/// its certificate. Default the CAs that the system trusts. It is read again before each
/// connection, as the other files of TLS are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_tls_ca(
    config: Option<&mut ConfigHandle>,
    file: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.tls_ca(unsafe { path(file) }?))
    })
}

/// Sets a file with the client certificate in PEM, followed by those of its issuers, for servers
/// that require one. It needs `redbolt_config_set_tls_key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_tls_cert(
    config: Option<&mut ConfigHandle>,
    file: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.tls_cert(unsafe { path(file) }?))
    })
}

/// Sets a file with the key of the client certificate in PEM: PKCS #8, PKCS #1 or SEC1, without a
/// password.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_tls_key(
    config: Option<&mut ConfigHandle>,
    file: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.tls_key(unsafe { path(file) }?))
    })
}

/// Sets the name that the certificate of each node must have, and that is sent as SNI. Default the
/// host of its address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_tls_server_name(
    config: Option<&mut ConfigHandle>,
    name: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.tls_server_name(unsafe { text(name, "name") }?))
    })
}

/// Accepts every certificate of a server. The connections are encrypted, but an attacker between
/// client and server can read and change everything: passwords, tokens, answers. For tests only.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_danger_accept_any_certificate(
    config: Option<&mut ConfigHandle>,
) -> Status {
    change(config, |builder| Ok(builder.danger_accept_any_certificate()))
}

/// Returns a path of the host, which need not be UTF-8.
///
/// # Safety
///
/// As [`zero_ended`].
unsafe fn path<'a>(file: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { zero_ended(file, "file") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}
