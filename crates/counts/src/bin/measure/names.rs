//! The name of a function: its path, without the compiler's additions.
//!
//! A name must not change when a type gets a parameter, a closure another number, or a C library a
//! variant for another processor.

/// Returns a path without types, hashes and closures.
pub(crate) fn plain(name: &str) -> String {
    let is_hash = |part: &str| part.len() == 17 && part.starts_with('h') && is_hex(&part[1..]);
    let is_named = |part: &&str| !part.is_empty() && !part.starts_with('{') && !is_hash(part);
    parts(name).into_iter().map(implementor).filter(is_named).collect::<Vec<_>>().join("::")
}

fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the parts of a path. A part includes its angle brackets.
fn parts(name: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    let bytes = name.as_bytes();
    for at in 0..bytes.len() {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        match bytes[at] {
            b'<' | b'{' => depth += 1,
            // This is the arrow of a function type.
            b'>' if before == Some(b'-') => {}
            b'>' | b'}' => depth -= 1,
            b':' if depth == 0 && before == Some(b':') => {
                parts.push(&name[from..at - 1]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&name[from..]);
    parts
}

/// Returns the `T` of `<T as Trait>`, the `f` of `f<T>`, and nothing of `<impl T>`, whose module is
/// in the path.
fn implementor(part: &str) -> &str {
    let Some(inside) = part.strip_prefix('<') else { return before(part, '<') };
    if inside.starts_with("impl ") {
        return "";
    }
    let end = inside.find(" as ").unwrap_or_else(|| inside.len().saturating_sub(1));
    before(&inside[..end], '<').trim_start_matches(['&', '['])
}

fn before(text: &str, end: char) -> &str {
    text.split(end).next().unwrap_or_default()
}

/// Returns a function of a C library, without the suffix of its processor variant.
pub(crate) fn of_library(name: &str) -> String {
    let name = before(name, '\'').trim_start_matches('_');
    let end = VARIANTS.iter().filter_map(|variant| name.find(variant)).min();
    format!("libc {}", &name[..end.unwrap_or(name.len())])
}

const VARIANTS: [&str; 5] = ["_avx", "_erms", "_evex", "_sse", "_unaligned"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_the_source() {
        let cases = [
            ("redbolt::resp::encode::header", "redbolt::resp::encode::header"),
            (
                "redbolt::proto::core::answer::<impl redbolt::proto::core::Core>::received",
                "redbolt::proto::core::answer::received",
            ),
            ("redbolt::proto::slab::Slab<T>::find", "redbolt::proto::slab::Slab::find"),
            ("redbolt::net::read::{{closure}}::h0123456789abcdef", "redbolt::net::read"),
            ("<redbolt::proto::Votes as core::fmt::Debug>::fmt", "redbolt::proto::Votes::fmt"),
            ("a::call<fn(u8) -> b::C>::d", "a::call::d"),
        ];
        for (name, path) in cases {
            assert_eq!(plain(name), path);
        }
    }

    #[test]
    fn a_variant_for_a_processor_has_the_function_s_name() {
        assert_eq!(of_library("__memcpy_avx_unaligned_erms"), "libc memcpy");
        assert_eq!(of_library("_int_malloc"), "libc int_malloc");
        assert_eq!(of_library("realloc'2"), "libc realloc");
    }
}
