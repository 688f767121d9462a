//! `redbolt.h` is the header that cbindgen generates from the present sources.

use std::{collections::BTreeSet, env, fs, path::Path};

use redbolt_capi::status::Status;

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = made(folder);
    let file = folder.join("include/redbolt.h");
    // `cargo xtask capi --header` asks for it to be written.
    if env::var_os("REDBOLT_WRITE_HEADER").is_some() {
        fs::write(&file, &made).expect("the header can be written");
    }
    let committed = fs::read_to_string(&file).expect("the header is there");
    assert!(
        made == committed,
        "redbolt.h is not of these sources: run `cargo xtask capi --header`"
    );
}

/// Every exported function is in the header, and every line of it is plain.
#[test]
fn the_header_declares_all_that_is_exported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = made(folder);
    let files = fs::read_dir(folder.join("src")).expect("the sources").map(|file| file.unwrap());
    let sources = files.map(|file| fs::read_to_string(file.path()).unwrap());
    let source = sources.collect::<Vec<_>>().concat();
    let exported: Vec<&str> = source
        .split("#[unsafe(no_mangle)]")
        .skip(1)
        .filter_map(|rest| rest.split_once(" fn ")?.1.split_once('('))
        .map(|(name, _)| name)
        .collect();
    assert!(exported.len() > 40, "{exported:?}");
    let missing: Vec<_> =
        exported.iter().filter(|name| !header.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "not in the header: {missing:?}");
}

/// Calls without an error report only this text.
#[test]
fn every_status_has_a_different_text() {
    let header = made(Path::new(env!("CARGO_MANIFEST_DIR")));
    let defined = header.lines().filter_map(|line| line.trim().strip_prefix("REDBOLT_STATUS_"));
    let numbers = defined.filter_map(|line| line.strip_suffix(',')?.split_once(" = "));
    let numbers: Vec<i32> = numbers.map(|(_, number)| number.parse().unwrap()).collect();
    assert!(numbers.len() >= 19, "{numbers:?}");
    let mut said: BTreeSet<_> = [Status::words(-1)].into();
    for number in numbers {
        let words = Status::words(number);
        assert!(said.insert(words), "{number}: {words:?}");
    }
    assert_eq!(Status::words(i32::MAX), Status::words(-1));
}

#[test]
fn names_that_the_manual_has_are_in_the_header() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(folder.join("../../docs/use/c-library.md")).expect("the page");
    let header = made(folder);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = header.split(|c: char| !is_of_name(c)).collect();
    let words = page.split(|c: char| !is_of_name(c));
    let named = words.filter(|word| word.to_lowercase().starts_with("redbolt_"));
    let unknown: BTreeSet<&str> = named.filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "not in the header: {unknown:?}");
}

/// Authors of C programs look for the names there.
#[test]
fn the_header_has_the_name_of_every_format() {
    let header = made(Path::new(env!("CARGO_MANIFEST_DIR")));
    let before = header.split_once("redbolt_request_set_format(").expect("the function").0;
    let comment = before.rsplit_once("\n\n").expect("a function has a comment").1;
    for format in redbolt::Profile::ALL {
        let name = format!("`{}`", format.name());
        assert!(comment.contains(&name), "{name} is not in: {comment}");
    }
}

fn made(folder: &Path) -> String {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let builder = cbindgen::Builder::new().with_crate(folder).with_config(config);
    let mut header = Vec::new();
    builder.generate().expect("the sources have a header").write(&mut header);
    String::from_utf8(header).expect("a header is text")
}
