//! Compares the modules that ARCHITECTURE.md names with those that exist.

use std::collections::BTreeSet;

/// Returns the `.rs` files and the folders that a text names in backticks. A folder ends with a
/// slash.
pub(crate) fn named(text: &str) -> BTreeSet<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        !name.contains(char::is_whitespace) && (name.ends_with(".rs") || name.ends_with('/'))
    };
    quoted.filter(is_name).collect()
}

/// Returns `true` if there is such a file or folder; a file can be named without its folders.
pub(crate) fn exists(name: &str, files: &BTreeSet<String>) -> bool {
    match name.ends_with('/') {
        true => files.iter().any(|file| file.starts_with(name)),
        false => files.iter().any(|file| {
            file.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        }),
    }
}

pub(crate) fn folders(files: &BTreeSet<String>) -> BTreeSet<&str> {
    files.iter().filter_map(|file| file.rfind('/').map(|end| &file[..=end])).collect()
}

mod tests {
    use super::*;

    #[test]
    fn names_are_files_and_folders_in_backticks() {
        let text = "| `src/a/` | `b.rs`, `Core`, `cargo test src/` | c.rs `src/a/d.rs`";
        assert_eq!(named(text), ["b.rs", "src/a/", "src/a/d.rs"].into());
    }

    #[test]
    fn a_name_exists_if_it_ends_a_path() {
        let files = ["src/a/xb.rs", "src/a/b/c.rs"].map(str::to_owned).into();
        for (name, is_there) in
            [("c.rs", true), ("b/c.rs", true), ("src/a/", true), ("b.rs", false), ("a/", false)]
        {
            assert_eq!(exists(name, &files), is_there, "{name}");
        }
        assert_eq!(folders(&files), ["src/a/", "src/a/b/"].into());
    }
}
