//! Token files on file systems that lack something: hard links, modes, room, or writes that arrive.
//!
//! A library that is loaded before the C library plays the file system.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Ran, World, run};

/// The calls of a file system, which fail as the environment requests.
const FILE_SYSTEM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
static int is(const char *fault) {
    const char *set = getenv("FAULT");
    return set && !strcmp(set, fault);
}
static int is_written(int fd) {
    struct stat s;
    return !fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_nlink && (s.st_mode & 0777) == 0600;
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
    const char *number = getenv("LINK_ERRNO");
    if (is("link answers late") && !REAL(linkat)(a, from, b, to, flags)) { errno = EEXIST; return -1; }
    if (!number) return REAL(linkat)(a, from, b, to, flags);
    errno = atoi(number);
    return -1;
}
int statx(int at, const char *path, int flags, unsigned mask, struct statx *s) {
    int result = REAL(statx)(at, path, flags, mask, s);
    if (!result && is("modes") && S_ISREG(s->stx_mode)) s->stx_mode |= 0777;
    if (!result && is("owners") && S_ISREG(s->stx_mode)) s->stx_uid = 65534;
    return result;
}
ssize_t write(int fd, const void *bytes, size_t count) {
    if (is("write") && is_written(fd)) return count;
    return REAL(write)(fd, bytes, count);
}
int close(int fd) {
    int fails = is("close") && is_written(fd) && lseek(fd, 0, SEEK_CUR) > 0;
    int result = REAL(close)(fd);
    if (!fails) return result;
    errno = EDQUOT;
    return -1;
}
"#;

/// Returns servers and the library, or `None` on a machine without a C compiler.
fn world() -> Option<(World, PathBuf)> {
    let world = World::of(1);
    let (source, library) = (world.path("fs.c"), world.path("fs.so"));
    fs::write(&source, FILE_SYSTEM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl");
    match compiler.status() {
        Ok(status) => assert!(status.success(), "the library is compiled"),
        Err(_) => return None,
    }
    fs::create_dir(world.path("tokens")).unwrap();
    Some((world, library))
}

fn with(world: &World, library: &PathBuf, variable: (&str, &str), words: &[&str]) -> Ran {
    let mut command = world.redbolt(words);
    command.env("LD_PRELOAD", library).env(variable.0, variable.1);
    run(command)
}

const ACQUIRE: [&str; 6] = ["acquire", "--ttl", "25s", "--token-file", "tokens/token", "job"];
const RELEASE: [&str; 3] = ["release", "--token-file", "tokens/token"];

fn tokens(world: &World) -> usize {
    fs::read_dir(world.path("tokens")).unwrap().count()
}

#[test]
fn a_token_file_needs_no_hard_links() {
    let Some((world, library)) = world() else { return };
    use nix::errno::Errno;
    let refusals = [
        Errno::EPERM,
        Errno::EOPNOTSUPP,
        Errno::ENOSYS,
        Errno::EACCES,
        Errno::EMLINK,
        Errno::EXDEV,
        Errno::EINVAL,
        Errno::EIO,
    ];
    for refusal in refusals {
        let number = (refusal as i32).to_string();
        let ran = with(&world, &library, ("LINK_ERRNO", &number), &ACQUIRE);
        assert_eq!(ran.status, Some(0), "{refusal}: {ran:?}");
        assert_eq!(tokens(&world), 1, "{refusal}");
        // The file is that of a lock that still lives.
        with(&world, &library, ("LINK_ERRNO", &number), &ACQUIRE).expect(64);
        world.run(&RELEASE).expect(0);
    }
}

/// NFS repeats a request whose answer was lost.
#[test]
fn a_link_that_was_made_before_its_answer_was_lost_counts() {
    let Some((world, library)) = world() else { return };
    with(&world, &library, ("FAULT", "link answers late"), &ACQUIRE).expect(0);
    assert_eq!(tokens(&world), 1);
    world.run(&RELEASE).expect(0);
}

#[test]
fn no_lock_is_taken_if_the_file_system_lets_others_read_each_file() {
    let Some((world, library)) = world() else { return };
    for (fault, words) in [("modes", "gives every file the mode 0777"), ("owners", "another user")]
    {
        let ran = with(&world, &library, ("FAULT", fault), &ACQUIRE).expect(64).expect_says(words);
        assert!(ran.stderr.contains("tokens/token") && !ran.stderr.contains("chmod"), "{ran:?}");
        assert_eq!((world.held_on("job"), tokens(&world)), (0, 0));
    }
}

#[test]
fn a_lock_is_released_if_its_token_file_does_not_hold_what_was_written() {
    let Some((world, library)) = world() else { return };
    for fault in ["write", "close"] {
        let ran = with(&world, &library, ("FAULT", fault), &ACQUIRE).expect(71);
        let ran = ran.expect_says("tokens/token: ").expect_says("the lock is released");
        assert_eq!((world.held_on("job"), tokens(&world)), (0, 0), "{ran:?}");
    }
    // An empty file of the user stays, and may be used the next time.
    world.run(&ACQUIRE).expect(0);
    world.run(&RELEASE).expect(0);
}

#[test]
fn an_extension_whose_token_file_cannot_be_written_says_so() {
    let Some((world, library)) = world() else { return };
    world.run(&ACQUIRE).expect(0);
    let text = fs::read(world.path("tokens/token")).unwrap();
    let extend = ["extend", "--ttl", "28s", "--token-file", "tokens/token"];
    with(&world, &library, ("FAULT", "close"), &extend).expect(71).expect_says("tokens/token: ");
    assert_eq!(fs::read(world.path("tokens/token")).unwrap(), text, "the record stays");
    world.run(&RELEASE).expect(0);
}

#[test]
fn the_name_of_a_token_file_may_have_255_bytes() {
    let world = World::of(1);
    for length in [255, 230, 200] {
        let name = "x".repeat(length);
        world.run(&["acquire", "--ttl", "25s", "--token-file", &name, "job"]).expect(0);
        world.run(&["extend", "--token-file", &name]).expect(0);
        world.run(&["release", "--token-file", &name]).expect(0);
    }
    let name = "x".repeat(256);
    world.run(&["acquire", "--token-file", &name, "job"]).expect(71).expect_says("name too long");
    let folder = ["acquire", "--token-file", "folder/", "job"];
    world.run(&folder).expect(64).expect_says("not the name of a file");
    assert_eq!(world.held_on("job"), 0);
}
