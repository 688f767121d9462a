//! `redbolt man`: the manual pages, made from the same words as `--help`.

use std::path::Path;
use std::{fs, io, iter};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{self, Failure};

/// Writes a page for the program and one for each subcommand.
pub(crate) fn run(directory: &Path) -> Result<u8, Failure> {
    let written = fs::create_dir_all(directory).and_then(|()| write_pages(directory));
    written.map_err(|error| Failure::system(format_args!("{}: {error}", directory.display())))?;
    Ok(exit::SUCCESS)
}

fn write_pages(directory: &Path) -> io::Result<()> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    iter::once(&program).chain(program.get_subcommands()).try_for_each(|command| {
        let man = manual(command);
        let mut page = Vec::new();
        man.render(&mut page)?;
        fs::write(directory.join(man.get_filename()), as_typed(&String::from_utf8_lossy(&page)))
    })
}

fn manual(command: &Command) -> Man {
    let source = concat!("redbolt ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).manual("redbolt")
}

/// A page with its indented lines kept as they are: examples and tables, which a formatter would fill.
fn as_typed(page: &str) -> String {
    let mut typed = String::with_capacity(page.len());
    let mut keeps = false;
    for line in page.lines() {
        let indented = line.starts_with(' ');
        if indented != keeps {
            typed.push_str(if indented { ".nf\n" } else { ".fi\n" });
            keeps = indented;
        }
        typed.push_str(if line == ".SH EXTRA" { ".SH NOTES" } else { line });
        typed.push('\n');
    }
    typed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_examples_keep_their_lines() {
        let page =
            ".SH EXTRA\nExit status:\n   64  usage\n   70  lost\n\nExamples:\n  one\n.SH VERSION\n";
        let typed = ".SH NOTES\nExit status:\n.nf\n   64  usage\n   70  lost\n.fi\n\nExamples:\n.nf\n  one\n.fi\n.SH VERSION\n";
        assert_eq!(as_typed(page), typed);
    }
}
