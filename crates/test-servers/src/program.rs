//! Programs for tests, started with default signal dispositions.
//!
//! A background job of a script inherits that SIGINT and SIGQUIT are ignored, a program under
//! `nohup` that SIGHUP is. Tests send these signals, so the programs that they start get the
//! default dispositions back.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const DEFAULTS: &str = "--default-signal=HUP,INT,QUIT,TERM";

/// Returns a command whose program ignores none of the signals that end it, no matter how the test
/// was started.
///
/// It goes through `env`, which keeps the process id. If `env` lacks the option (only GNU has it),
/// the program inherits the test's dispositions.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    static CAN_RESET: OnceLock<bool> = OnceLock::new();
    let can_reset = || {
        let mut probe = Command::new("env");
        probe.args([DEFAULTS, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    if !*CAN_RESET.get_or_init(can_reset) {
        return Command::new(name);
    }
    let mut command = Command::new("env");
    command.args([DEFAULTS, "--"]).arg(name);
    command
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns the signals of `DEFAULTS` that a command ignores if its caller ignores all of them.
    fn ignored(command: &Command) -> u64 {
        let mut sh = Command::new("sh");
        sh.args(["-c", "trap '' HUP INT QUIT TERM; exec \"$@\"", "sh"]);
        sh.arg(command.get_program()).args(command.get_args());
        let shown =
            String::from_utf8(sh.args(["SigIgn", "/proc/self/status"]).output().unwrap().stdout);
        let mask = shown.unwrap().split_whitespace().nth(1).map(str::to_owned).unwrap();
        u64::from_str_radix(&mask, 16).unwrap() & ALL
    }

    /// The bits of these signals, as Linux numbers them.
    const ALL: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14;

    #[test]
    fn signals_that_the_caller_ignores_are_not_ignored() {
        assert_eq!(ignored(&Command::new("grep")), ALL);
        assert_eq!(ignored(&program("grep")), 0);
    }
}
