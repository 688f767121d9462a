//! Assembles the texts of scripts from Lua files at compile time.
//!
//! A Lua file consists of sections. Three kinds of lines are directives:
//!
//! - `--@script NAME` begins the body of a script;
//! - `--@part NAME PARAMETER…` begins lines that several scripts share;
//! - `--@use NAME ARGUMENT | …` is replaced by a part, in which `$PARAMETER` stands for its
//!   argument.
//!
//! The text that is sent to a node has no comments and no layout: lines that begin with `--` are
//! left out, and the other lines are trimmed and joined by single spaces. Invariant: the same
//! sections give the same bytes, because a node identifies a script by its digest.

#[derive(Clone, Copy)]
pub(crate) struct Section {
    name: &'static [u8],
    /// The names of the parameters, separated by spaces.
    parameters: &'static [u8],
    /// The lines up to the next section.
    body: &'static [u8],
}

/// The sections that a script can use. The first file that has a name wins.
pub(crate) type Library<'a> = &'a [&'a [Section]];

/// Reads the sections of a Lua file next to the Rust file.
macro_rules! sections {
    ($file:literal) => {{
        const FILE: &str = include_str!($file);
        const SECTIONS: [$crate::proto::script::lua::Section;
            $crate::proto::script::lua::count(FILE)] = $crate::proto::script::lua::read(FILE);
        &SECTIONS
    }};
}

/// Returns the script of this name with its text. The caller sets the other properties.
macro_rules! assemble {
    ($library:expr, $name:literal) => {{
        use $crate::proto::script::{definition::Script, lua::Text};
        const TEXT: Text = Text::assemble($library, $name);
        const BYTES: [u8; TEXT.size()] = TEXT.bytes();
        Script::with_text($name, &BYTES)
    }};
}

/// Declares the scripts of a library, each with its number, digest, role, name and other
/// properties, and a table of them.
macro_rules! scripts {
    (
        $library:expr;
        $($(#[$doc:meta])+ $script:ident = $number:literal, $digest:literal, $role:expr, $name:literal
            $({ $($field:ident: $value:expr),+ })?;)+
    ) => {
        $(
            $(#[$doc])+
            pub static $script: $crate::proto::script::definition::Script = $crate::proto::script::definition::Script {
                digest: $digest,
                number: $number,
                role: $role,
                $($($field: $value,)+)?
                ..$crate::proto::script::lua::assemble!($library, $name)
            };
        )+

        pub(super) static SCRIPTS: &[&$crate::proto::script::definition::Script] = &[$(&$script),+];
    };
}

pub(crate) use {assemble, scripts, sections};

pub(crate) const fn count(file: &str) -> usize {
    let mut rest = file.as_bytes();
    let mut count = 0;
    while !rest.is_empty() {
        let (line, behind) = split(rest, b'\n');
        count += header(line).is_some() as usize;
        rest = behind;
    }
    count
}

/// Returns the `N` sections of a file.
pub(crate) const fn read<const N: usize>(file: &'static str) -> [Section; N] {
    let mut sections = [const { Section { name: b"", parameters: b"", body: b"" } }; N];
    let (mut rest, mut lines) = (file.as_bytes(), file.as_bytes());
    let mut begun = 0;
    while !rest.is_empty() {
        let (line, behind) = split(rest, b'\n');
        if let Some(header) = header(line) {
            let (name, parameters) = split(header, b' ');
            sections[begun] = Section { name, parameters, body: behind };
            if begun > 0 {
                (sections[begun - 1].body, _) = lines.split_at(lines.len() - rest.len());
            }
            lines = behind;
            begun += 1;
        }
        rest = behind;
    }
    sections
}

/// Returns the name and the parameters of the section that begins with this line, if one does.
const fn header(line: &[u8]) -> Option<&[u8]> {
    match line {
        [b'-', b'-', b'@', ..] => match behind(line, b"--@script ") {
            None => behind(line, b"--@part "),
            script => script,
        },
        _ => None,
    }
}

pub(crate) struct Text {
    bytes: [u8; MAX_SIZE],
    size: usize,
}

const MAX_SIZE: usize = 16_384;

impl Text {
    pub(crate) const fn assemble(library: Library<'_>, name: &str) -> Self {
        let mut text = Self { bytes: [0; MAX_SIZE], size: 0 };
        text.add_lines(find(library, name.as_bytes()).body, None, library);
        text
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Returns the whole text, which has `N` bytes.
    pub(crate) const fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.bytes.split_at(self.size).0);
        bytes
    }

    const fn add_lines(&mut self, lines: &[u8], frame: Option<&Call<'_>>, library: Library<'_>) {
        let mut rest = lines;
        while !rest.is_empty() {
            let (line, behind_it) = split(rest, b'\n');
            let line = line.trim_ascii();
            match line {
                [b'-', b'-', ..] => {
                    if let Some(used) = behind(line, b"--@use ") {
                        self.add_part(used, frame, library);
                    }
                }
                _ => self.add_line(line, frame),
            }
            rest = behind_it;
        }
    }

    const fn add_part(&mut self, used: &[u8], frame: Option<&Call<'_>>, library: Library<'_>) {
        let (name, arguments) = split(used, b' ');
        let part = match (behind(name, b"$"), frame) {
            (Some(parameter), Some(frame)) => find(library, frame.argument(parameter)),
            _ => find(library, name),
        };
        let inner = Call { parameters: part.parameters, arguments, outer: frame };
        self.add_lines(part.body, Some(&inner), library);
    }

    /// Adds a space and a line, unless the line is empty.
    const fn add_line(&mut self, line: &[u8], frame: Option<&Call<'_>>) {
        let before = self.size;
        if before > 0 {
            self.push(b" ");
        }
        let begun = self.size;
        self.add(line, frame);
        if self.size == begun {
            self.size = before;
        }
    }

    /// Adds the content of a line, with each parameter replaced by its argument.
    const fn add(&mut self, line: &[u8], frame: Option<&Call<'_>>) {
        let mut rest = line;
        while !rest.is_empty() {
            let (literal, behind_it) = split(rest, b'$');
            self.push(literal);
            if literal.len() == rest.len() {
                return;
            }
            let (name, behind_name) = behind_it.split_at(length_of_name(behind_it));
            match frame {
                Some(frame) if !name.is_empty() => {
                    self.add(frame.argument(name), frame.outer);
                    rest = behind_name;
                }
                _ => {
                    // A dollar sign that does not name a parameter belongs to the Lua text.
                    self.push(b"$");
                    rest = behind_it;
                }
            }
        }
    }

    const fn push(&mut self, bytes: &[u8]) {
        let (_, free) = self.bytes.split_at_mut(self.size);
        free.split_at_mut(bytes.len()).0.copy_from_slice(bytes);
        self.size += bytes.len();
    }
}

/// The arguments of a part. An argument that is a parameter of the outer part is looked up there.
struct Call<'a> {
    parameters: &'a [u8],
    arguments: &'a [u8],
    outer: Option<&'a Self>,
}

impl<'a> Call<'a> {
    const fn argument(&self, name: &[u8]) -> &'a [u8] {
        let (mut parameters, mut arguments) = (self.parameters, self.arguments);
        loop {
            // At compile time this is a compile error.
            assert!(!parameters.is_empty(), "a part uses only its own parameters");
            let (parameter, more_parameters) = split(parameters, b' ');
            let (argument, more_arguments) = split(arguments, b'|');
            if is_equal(parameter, name) {
                return argument.trim_ascii();
            }
            (parameters, arguments) = (more_parameters, more_arguments);
        }
    }
}

const fn find(library: Library<'_>, name: &[u8]) -> Section {
    let mut file = 0;
    while file < library.len() {
        let mut at = 0;
        while at < library[file].len() {
            if is_equal(library[file][at].name, name) {
                return library[file][at];
            }
            at += 1;
        }
        file += 1;
    }
    // At compile time this is a compile error.
    panic!("no section of the Lua files has this name")
}

/// Returns the text before the first such byte, and the text after it.
const fn split(text: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let (before, rest) = text.split_at(position(text, byte));
    match rest {
        [_, behind @ ..] => (before, behind),
        [] => (before, rest),
    }
}

/// Returns the number of bytes before the first such byte.
const fn position(text: &[u8], byte: u8) -> usize {
    let mut rest = text;
    // The compiler interprets this, and every check of a bound costs it a step.
    while let [a, b, c, d, e, f, g, h, behind @ ..] = rest {
        if *a == byte || *b == byte || *c == byte || *d == byte {
            break;
        }
        if *e == byte || *f == byte || *g == byte || *h == byte {
            break;
        }
        rest = behind;
    }
    while let [first, behind @ ..] = rest {
        if *first == byte {
            break;
        }
        rest = behind;
    }
    text.len() - rest.len()
}

/// Returns the text after this beginning, if it begins so.
const fn behind<'a>(text: &'a [u8], beginning: &[u8]) -> Option<&'a [u8]> {
    if text.len() < beginning.len() {
        return None;
    }
    let (first, rest) = text.split_at(beginning.len());
    if is_equal(first, beginning) { Some(rest) } else { None }
}

const fn length_of_name(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && (text[at].is_ascii_lowercase() || text[at] == b'_') {
        at += 1;
    }
    at
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "-- Some file.\n\n--@part twice first second\n$first = $second\n\
        --@part both\n-- A comment.\n--@use twice a | '$'\n--@use twice b | 1 + 1\n\
        --@part around part line\n$line\n--@use $part $line | 2\n--@script it\nif x then\n  --@use both\nend\n\
        --@use around twice | c\n--@use around both |\nreturn '$x'\n";
    const SECTIONS: [Section; count(FILE)] = read(FILE);
    const LIBRARY: Library<'_> = &[&SECTIONS];

    #[test]
    fn a_text_has_its_parts_with_their_arguments_and_no_layout() {
        let script = assemble!(LIBRARY, "it");
        assert_eq!(
            script.text,
            "if x then a = '$' b = 1 + 1 end c c = 2 a = '$' b = 1 + 1 return '$x'"
        );
    }
}
