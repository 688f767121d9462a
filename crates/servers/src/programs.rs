//! Finds server programs, and the name that a running one reports. `redbolt_test_servers::programs`
//! finds the system's own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use redbolt_test_servers::{Reply, Server};

/// Returns the servers in a folder: each file with the name of a server, and each subfolder with
/// such a file in it.
///
/// # Errors The folder cannot be read.
pub fn in_folder(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        let inside = if path.is_dir() { entries(&path)? } else { vec![path] };
        found.extend(inside.into_iter().find(|path| is_server(path)).map(PathBuf::into_os_string));
    }
    Ok(found)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let all = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut all = all.collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

fn is_server(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_program = |file: fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    NAMES.iter().any(|known| name.starts_with(known)) && fs::metadata(path).is_ok_and(is_program)
}

const NAMES: [&str; 4] = ["redis-server", "valkey-server", "keydb-server", "dragonfly"];

/// Returns a server's kind and version, such as `Redis 7.0.15`. All of them report some version of
/// Redis as well, so that clients of Redis work; KeyDB can be recognised only by its program's
/// name.
pub fn kind_of(program: &OsStr, server: &Server) -> String {
    let info = match server.cmd("INFO server") {
        Reply::Bulk(info) => String::from_utf8_lossy(&info).into_owned(),
        _ => String::new(),
    };
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.trim().trim_start_matches(['d', 'f', '-', 'v']).to_owned())
    };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let redis = field("redis_version").unwrap_or_default();
    if let Some(version) = field("dragonfly_version") {
        return format!("Dragonfly {version}");
    }
    if let Some(version) = field("valkey_version") {
        return format!("Valkey {version}");
    }
    let words = match name {
        name if name.starts_with("keydb") => "KeyDB",
        // The first version of Valkey reports no name, so the program's name decides.
        name if name.starts_with("valkey") => "Valkey",
        _ => "Redis",
    };
    format!("{words} {redis}")
}

/// The servers that redbolt is meant for, by how [`kind_of`] begins.
pub(crate) const WANTED: [(&str, &[&str]); 11] = [
    ("Redis 6.2", &["Redis 6.2."]),
    ("Redis 7.0", &["Redis 7.0."]),
    ("Redis 7.2", &["Redis 7.2."]),
    ("Redis 7.4", &["Redis 7.4."]),
    ("Redis 8.0 to 8.3", &["Redis 8.0.", "Redis 8.1.", "Redis 8.2.", "Redis 8.3."]),
    ("Redis 8.4 or later", &["Redis 8.4.", "Redis 8.5.", "Redis 8.6.", "Redis 8.7.", "Redis 8.8."]),
    ("Valkey 7.2", &["Valkey 7.2."]),
    ("Valkey 8", &["Valkey 8."]),
    ("Valkey 9", &["Valkey 9."]),
    ("KeyDB", &["KeyDB "]),
    ("Dragonfly", &["Dragonfly "]),
];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn put(file: &Path, mode: u32) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn programs_are_found_by_name_in_a_folder_and_one_below() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["valkey-server-9", "b/keydb-server", "c/dragonfly-x86_64", "a/redis-server"] {
            put(&at(name), 0o755);
        }
        for name in ["a/redis-cli", "redis-cli", "d/e/redis-server"] {
            put(&at(name), 0o755);
        }
        put(&at("redis-server.conf"), 0o644);
        let found = in_folder(home.path()).unwrap();
        let expected =
            ["a/redis-server", "b/keydb-server", "c/dragonfly-x86_64", "valkey-server-9"];
        assert_eq!(found, expected.map(|name| at(name).into_os_string()));
    }
}
