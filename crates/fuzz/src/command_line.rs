//! The texts that users type and write for the program `redbolt`: each command line, variable,
//! nodes file, token file and duration is accepted or refused with a message, and none panics. The
//! program's own parser is tested, without files and sockets.
//!
//! The first byte chooses. `t`: the rest is a token file. `d`: the rest is a duration. Any other: a
//! command line. Then one byte each gives the numbers of words and variables; these follow, each
//! ended by a zero byte, and the rest is the nodes file. The first byte of a variable chooses its
//! name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use redbolt_cli::read_any;

use crate::input::{Input, pick};

/// Reads the text that the input describes.
pub fn body(input: &[u8]) {
    let mut input = Input::new(input);
    match input.byte() {
        b't' => read_any::token_file(input.rest()),
        b'd' => read_any::duration(&String::from_utf8_lossy(input.rest())),
        _ => command_line(&mut input),
    }
}

fn command_line(input: &mut Input<'_>) {
    let (words, variables) = (input.byte() % MOST, input.byte() % MOST);
    let words = (0..words).map(|_| OsString::from_vec(text(input)));
    let words: Vec<_> = [OsString::from("redbolt")].into_iter().chain(words).collect();
    let names = read_any::variable_names();
    let variables = (0..variables).map(|_| {
        let name = pick(&names, input.byte());
        (name, OsString::from_vec(text(input)))
    });
    let variables: Vec<_> = variables.collect();
    read_any::command_line(&words, variables, input.rest());
}

/// Returns the bytes before the next zero, which neither a word nor a variable can contain.
fn text(input: &mut Input<'_>) -> Vec<u8> {
    std::iter::from_fn(|| input.next().filter(|&byte| byte != 0)).collect()
}

/// The maximum number of words or variables; more add nothing.
const MOST: u8 = 12;

/// The maximum length of an input: longer than a token file of several resources.
pub const MAX_LEN: usize = 1024;
