//! Runs the commands of the READMEs and of the manual as they are written.
//!
//! A block marked ```` ```sh ```` is a script and has to succeed. In one marked ```` ```console
//! ```` each command is followed by its output, in which figures may differ. Lines of ````
//! ```crontab ```` and the service of ```` ```ini ```` are run as well, with the environment that cron and
//! systemd give. Each block gets three servers in place of 10.0.0.1 to 10.0.0.3, folders of its own in place of `/usr/local/bin`,
//! `/opt/shop` and `/etc/redbolt`, and scripts that do nothing in place of the user's.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Ran, World, redbolt, run};

/// A block of commands, and its place.
struct Block {
    place: String,
    kind: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The READMEs and the pages of the manual, with their text.
fn pages() -> Vec<(String, String)> {
    let parts = ["docs/use", "docs/how-it-works", "docs/evidence"].into_iter();
    let manual = parts.flat_map(|part| {
        let entries = fs::read_dir(root().join(part)).unwrap();
        entries.map(move |entry| format!("{part}/{}", entry.unwrap().file_name().display()))
    });
    let pages = manual.filter(|page| page.ends_with(".md")).chain(READMES.map(str::to_owned));
    let read = |page: &String| fs::read_to_string(root().join(page)).unwrap();
    pages.map(|page| (page.clone(), read(&page))).collect()
}

const READMES: [&str; 2] = ["README.md", "crates/cli/README.md"];

fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => {
                let place = format!("{page}:{}", at + 1);
                open = Some(Block { place, kind: kind.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

/// Returns the only block of this kind on a page that contains these words.
pub(crate) fn block(page: &str, kind: &str, words: &str) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let blocks = blocks(page, &text).into_iter();
    let mut found = blocks.filter(|block| block.kind == kind && block.text.contains(words));
    let block = found.next().unwrap_or_else(|| panic!("{page} has no {kind} with {words:?}"));
    assert!(found.next().is_none(), "{page} has more than one {kind} with {words:?}");
    block.text
}

/// The environment of a block: servers, and everything that its commands call.
fn world_of(block: &Block) -> World {
    let sets_up = block.text.contains("redbolt init") && !block.text.contains("init --change");
    let world = if sets_up { World::fresh(3) } else { World::of(3) };
    let words = block.text.split(|c: char| c.is_whitespace() || "';&".contains(c));
    for script in words.filter(|word| word.ends_with(".sh")) {
        let name = script.strip_prefix("./").or_else(|| script.strip_prefix("/opt/shop/"));
        name.into_iter().for_each(|name| executable(&world.path(name), "exit 0"));
    }
    provide_programs(&world);
    executable(&world.path("bin/cargo"), CARGO);
    // A stand-in for what the command would do on the host of a node.
    executable(&world.path("bin/ssh"), "exit 0");
    world
}

/// The folders of the manual: `/usr/local/bin` with `redbolt`, and `/etc/redbolt` with the nodes.
pub(crate) fn provide_programs(world: &World) {
    fs::create_dir(world.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_redbolt"), world.path("bin/redbolt")).unwrap();
    let nodes = world.addresses().replace(',', "\n");
    fs::create_dir(world.path("etc")).unwrap();
    fs::write(world.path("etc/nodes"), nodes).unwrap();
}

pub(crate) fn executable(path: &Path, line: &str) {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Replaces cargo: its commands would build this program, run this test, or run `redbolt demo`.
const CARGO: &str = r#"
case "$*" in
  "xtask demo" | "xtask test" | "install --path crates/cli") ;;
  *) echo "cargo $*?" >&2; exit 1 ;;
esac"#;

/// Returns the text with the test's servers in it.
pub(crate) fn at_home(world: &World, text: &str) -> String {
    let mut text = text.to_owned();
    for (number, node) in (1..).zip(&world.nodes) {
        let address = node.address();
        text = text.replace(&format!("10.0.0.{number}:6379"), &address);
        text = text.replace(&format!("10.0.0.{number}"), &address);
    }
    let home = world.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    text = text.replace("/usr/local/bin", &format!("{home}/bin"));
    text = text.replace("/opt/shop", &home).replace("/etc/redbolt", &format!("{home}/etc"));
    if text.contains("7001") {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        text = text.replace("7001", &port.to_string());
        // The node also ends if the script does not reach the line that ends it.
        text = text.replace("redbolt node", "timeout 60 redbolt node");
    }
    text
}

fn shell(world: &World, options: &str, script: &str) -> Ran {
    run(shell_command(world, options, script))
}

/// Returns a shell that runs a script with the test's programs.
pub(crate) fn shell_command(world: &World, options: &str, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_redbolt")).parent().unwrap();
    let path =
        [&world.path("bin"), program].map(|path| path.to_str().unwrap().to_owned()).join(":");
    let mut shell = world.command("sh");
    shell.args([options, "-c", script]);
    shell.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()));
    // A machine that is busy with other tests answers late, and the manual is not about that.
    shell.envs([("REDBOLT_RESPONSE_TIMEOUT", "10s"), ("REDBOLT_CONNECT_TIMEOUT", "15s")]);
    shell
}

/// Returns the fault of a script, if any.
fn script_fails(block: &Block, script: &str) -> Option<String> {
    let world = world_of(block);
    let ran = shell(&world, "-eu", &at_home(&world, script));
    (ran.status != Some(0)).then(|| format!("{}: {ran:?}\n{script}", block.place))
}

/// Returns where the output of a console differs, if it does.
fn console_differs(block: &Block) -> Option<String> {
    let world = world_of(block);
    let mut script = String::new();
    let mut expected: Vec<String> = Vec::new();
    for line in block.text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => {
                script += &format!("{command}\nstatus=$?; echo {MARK}; (exit $status)\n");
                expected.push(String::new());
            }
            None => *expected.last_mut().expect("a command first") += &format!("{line}\n"),
        }
    }
    let ran = shell(&world, "-u", &format!("{{ {}\n}} 2>&1", at_home(&world, &script)));
    let said: Vec<&str> = ran.stdout.split(&format!("{MARK}\n")).collect();
    let same = said.len() == expected.len() + 1
        && expected.iter().zip(&said).all(|(expected, said)| shape(expected) == shape(said));
    (!same).then(|| format!("{}: the output is\n{}", block.place, said.concat()))
}

const MARK: &str = "=-=-=";

/// Returns a text without what differs between runs: times, addresses, processes, hashes and
/// fencing tokens.
fn shape(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| shapes(&line.split_whitespace().collect::<Vec<_>>())).collect()
}

fn shapes<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let is_unit = |at: usize| {
        let word = words.get(at).map(|word| word.trim_end_matches([';', ':']));
        matches!(word, Some("us" | "ms" | "s"))
    };
    let is_count = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let shape = |(at, &word): (usize, &&'a str)| match word {
        _ if is_unit(at) => "UNIT",
        _ if word.starts_with('#') => "HASH",
        _ if is_count(word) && word.len() < 16 && !is_unit(at + 1) => word,
        _ if word.contains(|c: char| c.is_ascii_digit()) => "FIGURE",
        _ => word,
    };
    words.iter().enumerate().map(shape).collect()
}

#[test]
fn commands_of_the_manual_do_what_it_says() {
    let mut faults = Vec::new();
    let mut count = 0;
    for (page, text) in pages() {
        for block in blocks(&page, &text) {
            let fault = || match block.kind.as_str() {
                "sh" => script_fails(&block, &block.text),
                "console" => console_differs(&block),
                "crontab" => crontab_fails(&block),
                "ini" => unit_fails(&block),
                _ => None,
            };
            count += usize::from(KINDS.contains(&&*block.kind));
            // On a busy machine a node may answer late, and the output reports it.
            faults.extend(fault().and_then(|_| fault()));
        }
    }
    assert!(count > 15, "the manual has only {count} blocks with commands");
    assert!(faults.is_empty(), "{} of {count} blocks:\n{}", faults.len(), faults.join("\n"));
}

/// Returns the fault of a crontab, if any. Each command gets the few variables that cron sets, and
/// those of the crontab.
fn crontab_fails(block: &Block) -> Option<String> {
    let world = world_of(block);
    let mut variables = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    for line in at_home(&world, &block.text).lines() {
        match line.split_once('=').filter(|(name, _)| !name.contains(' ')) {
            Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
            None => {
                let words: Vec<_> = line.split_whitespace().skip(5).collect();
                let ran = run_with(&world, &variables, &["/bin/sh", "-c", &words.join(" ")]);
                if ran.status != Some(0) || !ran.stderr.is_empty() {
                    return Some(format!("{}: {ran:?}\n{line}", block.place));
                }
            }
        }
    }
    None
}

/// Returns the fault of a unit of systemd, if any, and the messages of systemd itself.
fn unit_fails(block: &Block) -> Option<String> {
    let world = world_of(block);
    let unit = at_home(&world, &block.text);
    let values = |name: &'static str| {
        unit.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let mut variables = vec![("PATH".to_owned(), SYSTEMD_PATH.to_owned())];
    let pairs = values("Environment").map(|pair| pair.split_once('=').expect("NAME=VALUE"));
    variables.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let start = values("ExecStart").next().expect("a service").replace("%H", "web-1");
    let ran = run_with(&world, &variables, &start.split(' ').collect::<Vec<_>>());
    let file = world.path("recipe.service");
    fs::write(&file, &unit).unwrap();
    let verdict = Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let is_sound = verdict.as_ref().is_ok_and(|it| it.status.success() && it.stderr.is_empty());
    let is_verified = is_sound || verdict.is_err();
    (ran.status != Some(0) || !ran.stderr.is_empty() || !is_verified)
        .then(|| format!("{}: {ran:?}, {verdict:?}\n{unit}", block.place))
}

/// Runs a program with these variables and no others, except for the longer timeouts of a busy
/// machine.
fn run_with(world: &World, variables: &[(String, String)], words: &[&str]) -> Ran {
    let mut command = world.command(words[0]);
    command.args(&words[1..]).env_clear().envs(variables.iter().cloned());
    command.envs([("REDBOLT_RESPONSE_TIMEOUT", "10s"), ("REDBOLT_CONNECT_TIMEOUT", "15s")]);
    run(command)
}

const SYSTEMD_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin";

/// The blocks that have commands.
const KINDS: [&str; 4] = ["sh", "console", "crontab", "ini"];

/// Returns the code spans of a page's prose, and the words of its command blocks.
fn code(page: &str, text: &str) -> String {
    let of_blocks = blocks(page, text).into_iter().filter(|block| KINDS.contains(&&*block.kind));
    let mut code: String = of_blocks.map(|block| block.text).collect();
    let mut is_block = false;
    let is_prose = |line: &&str| {
        let fence = line.starts_with("```");
        is_block ^= fence;
        !is_block && !fence
    };
    let prose = text.lines().filter(is_prose).collect::<Vec<_>>().join("\n");
    prose.split('`').skip(1).step_by(2).for_each(|span| code += &format!("{span}\n"));
    code
}

#[test]
fn options_and_subcommands_of_the_manual_exist() {
    let help = run(redbolt(&["--help"])).expect(0).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let known: BTreeSet<&str> =
        list.lines().filter_map(|line| line.split_whitespace().next()).chain(["help"]).collect();
    let helps = known.iter().map(|name| run(redbolt(&["help", name])).expect(0).stdout);
    let helps: String = helps.collect();
    let options: BTreeSet<&str> = helps.split(|c| !is_of_option(c)).chain(OF_OTHERS).collect();
    for (page, text) in pages() {
        let code = code(&page, &text);
        let named = code.split(|c| !is_of_option(c)).filter(|word| word.len() > 2);
        for option in named.filter(|word| word.starts_with("--")) {
            assert!(options.contains(option), "{page}: there is no option {option}");
        }
        let calls =
            code.split("redbolt ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        for name in calls.filter(|name| name.chars().all(|c| c.is_ascii_lowercase())) {
            assert!(known.contains(name), "{page}: there is no subcommand redbolt {name}");
        }
    }
}

fn is_of_option(c: char) -> bool {
    c.is_ascii_lowercase() || c == '-'
}

/// Options of `cargo xtask` and of other programs.
const OF_OTHERS: [&str; 13] = [
    "--beside",
    "--contender",
    "--counts",
    "--example",
    "--nocapture",
    "--nodes",
    "--path",
    "--placement",
    "--quick",
    "--release",
    "--test",
    "--waiting",
    "--write",
];

#[test]
fn a_wrong_command_is_found() {
    let block = |kind: &str, text: &str| Block {
        place: "x".to_owned(),
        kind: kind.to_owned(),
        text: text.to_owned(),
    };
    let wrong = block("sh", "redbolt lock --trie x -- ./a.sh\n");
    assert!(script_fails(&wrong, &wrong.text).unwrap().contains("--trie"));
    assert!(console_differs(&block("console", "$ redbolt status x\nx: held\n")).is_some());
    assert!(console_differs(&block("console", "$ echo 2 of 3\n1 of 3\n")).is_some());
    let figures = block(
        "console",
        "$ echo web-2:77 in 1.5 ms; echo in 9 us:\nweb-1:4711 in 102 us\nin 1 ms:\n",
    );
    assert_eq!(console_differs(&figures), None);
    let token = block("console", "$ echo token 1795948773425242\ntoken 1795948773534182\n");
    assert_eq!(console_differs(&token), None);
    let status = block("console", "$ (exit 3)\n$ echo $?\n3\n");
    assert_eq!(console_differs(&status), None);
}
