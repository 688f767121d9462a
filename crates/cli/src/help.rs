//! The texts of `--help` that are longer than a line: what each subcommand promises, its exit statuses and examples.
//!
//! No line is wider than 100 characters.

pub(crate) const NODE_HELP: &str = "\
A node: host, host:port, redis://[user[:password]@]host[:port][/db], the same over TLS with \
rediss://, unix:///path, or redis+sentinel://host[:port]+host.../master[/db] for the master that these sentinels name. Repeat the option for each node [env: REDBOLT_NODES, separated by commas]";

pub(crate) const NODES_FILE_HELP: &str = "\
A file with one node on each line, instead of --node. A line that begins with # is a comment. A file \
with passwords is refused if others than its owner and group can read it [env: REDBOLT_NODES_FILE]";

pub(crate) const PASSWORD_FILE_HELP: &str = "\
A file with the password for each node whose address has none: that of the user in it, or of the default user. It is \
refused if others than its owner and group can read it";

pub(crate) const FIRST_STEPS: &str = "\
First steps:
  redbolt demo                          see it work, no server needed
  redbolt node --port 7001              or start a node to try it on, and in another shell:
  redbolt init --node 127.0.0.1:7001    declare it as new, once in its life
  redbolt status --node 127.0.0.1:7001  whether it votes
  redbolt lock --node 127.0.0.1:7001 backup -- ./backup.sh
  redbolt status --node 127.0.0.1:7001 backup

Instead of repeating --node: export REDBOLT_NODES=10.0.0.1,10.0.0.2,10.0.0.3
or, for passwords, a file:   export REDBOLT_NODES_FILE=/etc/redbolt/nodes";

pub(crate) const LOCK_USAGE: &str = "\
redbolt lock [OPTIONS] KEY -- CMD [ARG]...
       redbolt lock [OPTIONS] KEY -c 'shell line'";

pub(crate) const LOCK_HELP: &str = "\
The command never outlives the lock: if the lock is lost or cannot be extended, the command and all
its descendants get SIGTERM, then SIGKILL. Signals to redbolt are passed on to the command, unless
it has them already: redbolt itself ends when the command does. It then releases the lock, and dies
of the signal that killed the command. It does not wait for what the command leaves running in the
background.

When the lock is known to be lost, SIGTERM comes at once, and SIGKILL after --kill-after. A lock
that cannot be extended ends with its TTL, of which 1 % and 2 ms are not relied on. SIGKILL comes
before that end, by a reserve of 5/32 of the TTL but at most 313 ms: on a busy machine it may come
late. SIGTERM comes --kill-after before SIGKILL. So with --no-extend --ttl 1s the command gets
SIGTERM after 0.58 s and SIGKILL after 0.83 s; with --ttl 10s after 7.1 s and 9.6 s.

redbolt runs as two processes, so that `kill -9` of either changes nothing: the other one ends the
command and its descendants before the lock ends. If redbolt itself is killed, the lock is released
as soon as they have ended. Two cases remain. If both processes are killed at once, only the
command itself gets SIGTERM, and a command that ignores it goes on. If both are stopped at once and
the command is not, the command goes on until one of them continues.

With --shared any number of commands that all use it run at once, and none beside a command
without it: readers and writers. Each of them counts for itself: one that dies keeps others out
for no longer than its own --ttl.

With --permits 10 at most ten commands that all use it run at once, on however many hosts, and none
beside a command without it. Each has a number of its own, from 0 to 9, in REDBOLT_SLOT.

The command gets REDBOLT_KEY and REDBOLT_TTL_MS in its environment, and with --fencing also
REDBOLT_FENCING_TOKEN. It does not get REDBOLT_NODES if there is a password in it. The store that
the command writes to should remember the largest token that it has seen and refuse smaller ones:
they come from holders whose lock is over.

With --at-least the lock stays taken for this long after the grant, whatever the command does. So a
short job that cron starts on many hosts runs on one of them, even if their clocks differ. When the
command has ended, redbolt leaves the lock on the nodes for the rest of the time and exits with the
command's status. It waits only while the rest is longer than --max-ttl. The lock may stay taken
for up to one TTL longer. While the command runs, redbolt must keep the lock: if redbolt is killed
or its host dies, the lock ends after --ttl, not after --at-least. If CMD cannot be run, redbolt
releases the lock at once.

Without --wait it waits without limit, for the holder and also for nodes that do not answer; it
reports those after a second. Only a problem that needs an operator ends a wait at once, with 69: a
wrong password or role, a forbidden command, other limits.

A node that was restarted, emptied or never used does not vote for --max-ttl, since it may have
forgotten a lock. redbolt reports it and waits. For new nodes there is `redbolt init`.

Exit status: that of the command (128 + signal if it was killed), or
   64  wrong usage                            70  lock lost, command stopped
   69  too few nodes vote; says why           75  held by somebody else (see -E)
   71  refused by the operating system       126  CMD cannot be executed
                                             127  CMD not found

Examples:
  redbolt lock nightly -- ./backup.sh --full
  redbolt lock --try nightly -- ./backup.sh || echo 'already running'
  redbolt lock --wait 30s --ttl 20s deploy -c 'git pull && make install'
  redbolt lock --shared data -- ./read.sh          (beside other readers, and never beside a writer)
  redbolt lock --permits 10 mail -- ./send.sh      (at most ten at once, on all hosts together)
  redbolt lock --try --at-least 30s nightly -- ./report.sh      (the crontab of each host)";

pub(crate) const LEAD_USAGE: &str = "\
redbolt lead [OPTIONS] KEY -- CMD [ARG]...
       redbolt lead [OPTIONS] KEY -c 'shell line'";

pub(crate) const LEAD_HELP: &str = "\
Of all that run it with the same KEY, one leads and runs its command; the others wait for it. As
with `redbolt lock`, the command never outlives the lead: if the lead is lost or cannot be extended,
the command and all its descendants get SIGTERM, then SIGKILL, and redbolt campaigns again. So it
runs the command once for each time that it is elected. With --once it exits with 70 instead.

When the command ends by itself, redbolt resigns and exits with the command's status. Signals are
passed on to the command; after SIGINT, SIGTERM or SIGQUIT, or when its terminal was closed,
redbolt does not campaign again, unless it ignores that signal. `kill -9` of redbolt changes
nothing: see `redbolt help lock`, which says as well when exactly the command gets its
signals, and what a wait reports.

The command gets REDBOLT_KEY, REDBOLT_TTL_MS and REDBOLT_TERM in its environment. The term is a
number that is larger for each later leader. The store that the command writes to should remember
the largest term that it has seen and refuse smaller ones: they come from leaders whose time is
over. `redbolt observe KEY` shows the leader's label and term.

Exit status: that of the command (128 + signal if it was killed), or
   64  wrong usage                            70  lead lost, command stopped (--once)
   69  too few nodes vote; says why           75  another one leads (--try, --wait; see -E)
   71  refused by the operating system       126  CMD cannot be executed
                                             127  CMD not found

Examples:
  redbolt lead --ttl 5s leader:shop -- ./lead.sh
  redbolt lead --label 10.0.0.7:8080 leader:shop -c './serve.sh --term \"$REDBOLT_TERM\"'";

pub(crate) const OBSERVE_HELP: &str = "\
Prints who leads, and a line for each change, until it is stopped or standard output has no reader.
It takes no part and writes nothing to the nodes. It is told of changes by a majority of the nodes,
within milliseconds; where they cannot or may not tell, it looks every other second.

What it prints is a hint: it may be over when it is read. Whoever acts on it must bear that. Writes
that only a leader may make carry its term, and the store refuses smaller terms.

With --json each line is an object: verdict is leader, nobody or unknown; leader is the leader's
label; term is null while no majority agrees on one, or if it has none; silent has the nodes that do
not tell, each with its reason. key_hex has the bytes of the name, and key is null if they are
not UTF-8.

Exit status: with --once 0 when somebody leads or nobody does, and 69 when that is not known. 69 as
well when only an operator can help, as after a wrong password. 64 for wrong usage.

Examples:
  redbolt observe leader:shop
  redbolt observe --once --json leader:shop | jq -r .leader";

pub(crate) const ACQUIRE_HELP: &str = "\
For a script that holds a lock over several commands. It gets a lease, which nothing extends when
redbolt has exited: it ends after --ttl, and the last 1 % and 2 ms must not be relied on. Choose a
TTL that covers the script (up to --max-ttl, 30s unless all users of the nodes set another), or call
`redbolt extend` between its steps and stop when it fails. If one command can do all the work,
`redbolt lock` is safer: it extends the lock itself, and stops the command when the lock is lost.

FILE must not exist, or be empty, or belong to a lock that is over; the file of a lock that is
still held is refused. It gets mode 0600. Whoever can read it can release the lock, so it is
refused later if others can read it. A file system where others can read every file is refused
before the lock is taken. If FILE cannot be written and read back, the lock is released and the
error says so. The lock can be extended and released on this machine only, and only until the
machine is restarted: then the lock is lost.

With --shared others who use it too can take the lock beside this one, and with --permits N so many
of them. On standard output --permits prints the number of the permit, from 0 on, and --fencing the
fencing token, each on a line of its own.

Exit status: 0 when the lock is taken, or
   64  wrong usage, FILE cannot be used       71  refused by the operating system
   69  too few nodes vote; says why           75  held by somebody else (see -E)
   70  ran out before FILE was written       128 + signal that ended the wait

Example:
  dir=$(mktemp -d) || exit
  trap '[ ! -e \"$dir/lock\" ] || redbolt release --token-file \"$dir/lock\"; rmdir \"$dir\"' EXIT
  trap 'exit 130' INT; trap 'exit 143' TERM
  redbolt acquire nightly --ttl 30s --token-file \"$dir/lock\" || exit
  ./dump.sh || exit
  redbolt extend --token-file \"$dir/lock\" || exit
  ./upload.sh || exit
  redbolt release --token-file \"$dir/lock\" || exit";

pub(crate) const HOLD_HELP: &str = "\
Takes the lock, and exits with 0 when it is held. A process in the background then extends it, and
releases it when the process PID ends: by default the one that called redbolt, such as a script.
In a subshell give --pid $$, or the lock ends with the subshell. A shell may also start one for what
is in $(...): if redbolt notices that, it fails with 64.

If the lock is lost or cannot be extended, the process and its descendants get SIGTERM, and SIGKILL
--kill-after later, before the lock ends. With --on-loss warn they go on without it. Descendants
that are not waited for, such as `job &`, may go on when PID has ended by itself, and its lock is
released then. A process that is stopped with Ctrl-Z keeps its lock.

SIGTERM to the process in the background releases the lock earlier. Do not kill it with SIGKILL:
then the lock ends after --ttl, and nothing stops the script. `redbolt lock` is safer, because it
is two processes that watch each other.

With --sh it prints variables for `eval`: REDBOLT_KEY, REDBOLT_HOLD_PID (the process in the
background), with --fencing REDBOLT_FENCING_TOKEN, and with --permits REDBOLT_SLOT. If the lock is
not taken, it prints `exit STATUS`, so the script does not go on. Without --sh it prints the permit
and the token alone, each on a line of its own.

Exit status: 0 when the lock is held, or
   64  wrong usage                            71  refused by the operating system
   69  too few nodes vote; says why           75  held by another client (see -E)
   70  PID has ended, or the lock ran out    128 + signal that ended the wait

Examples, in a script:
  redbolt hold nightly || exit
  eval \"$(redbolt hold nightly --sh --fencing)\"";

pub(crate) const EXTEND_HELP: &str = "\
Give the same nodes as to `redbolt acquire`, in the same order.

Exit status: 0 when it is held for another TTL, or
   64  wrong usage, FILE cannot be used       70  the lock is lost: stop what it protects
   69  too few nodes confirm; says how        71  refused by the operating system
       long the lock still lasts";

pub(crate) const RELEASE_HELP: &str = "\
Give the same nodes as to `redbolt acquire`, in the same order. FILE is removed when a quorum of
the nodes has confirmed the release, or if the lock was already lost. If too few nodes confirm,
FILE stays, so that you can try again until the TTL is over.

Exit status: 0 when the lock was held until now and is released, or
   64  wrong usage, FILE cannot be used       70  the lock was lost before: what it protected may
   69  too few nodes confirm that, or that        have been in other hands
       it was held until now; says why        71  refused by the operating system";

pub(crate) const UNLOCK_HELP: &str = "\
For a holder that hangs, or that exited without releasing a lock with a long TTL. It reads who
holds the lock on every node, deletes exactly that, and reports whose lock it deleted: by label,
and by a short hash that is the same on all nodes. Whoever takes the lock meanwhile keeps it. Where
others wait in the queue, they are shown, and the lock is kept for the first of them. The
holder is not told: it goes on until it checks its lock. So make sure that it is gone, or that the
store it writes to checks its fencing token.

A key that is not a lock of redbolt is left alone: it is a lock or data of another program. It is
shown by its type, and deleted only with --foreign, or if it has the form of a lock of the --profile
that is given; whoever waits in that library's way is told.

A lock that is free is a success, with --force and without, so a script can repeat the command. As
a misspelled name is free too, a line on standard error says that nothing was deleted.

Exit status: 0 when a quorum of the nodes no longer has that lock, also if it was free before; 69
when too few nodes answer; 64 for a lock that is held, without --force, for a key that is not a lock
of redbolt, and for wrong usage.";

pub(crate) const STATUS_HELP: &str = "\
It takes no lock, and writes nothing without --wait. Each node's line says who holds the lock there,
how many wait in the queue for it, whether its restart guard lets it vote, and how long its answer
took. Waiters are listed in their order, with how long each has waited. A name is shown on one line,
with escapes such as \\n and \\xff. In --json, key_hex has its bytes, and key is null if they are
not UTF-8; verdict is free, held, shared, permits, foreign or undecided. While too few nodes
vote to take a lock, reason says so, and no_key stands for free: nodes that do not vote may have
forgotten a lock.

A lock of another library is named by its form, with the profile that takes part in its locks. With
--profile, whatever has another form than the profile's is said to be none of its.

Without KEY, each node's line says whether it votes and why not, whether it notifies waiters of a
release (which needs a second connection), and how long its answer took.

With --wait it waits until all nodes vote, or a quorum of them. A node that was restarted is
quarantined for --max-ttl from the first connection of a client that takes locks; --wait counts as
one, and writes the restart guards that are missing or of an earlier run. It names the nodes that
it waits for on standard error. It exits with 69 when TIME has passed, or if only an operator can
help. For a rolling restart: restart a node, run `redbolt status --wait all 2m`, and so on.

Exit status: 0 when a quorum of the nodes agrees that the lock is held, that it is free, or that
the key is not a lock of redbolt; without KEY, when a quorum votes. 69 otherwise, 64 for wrong
usage. With --exit-status the state decides:
    0  free: `redbolt lock --try` would take it
   69  not known, or too few nodes vote to take it
   75  held, also shared or as a permit, or the key has data of another program

Example:
  redbolt status --exit-status nightly > /dev/null
  case $? in 0) echo free ;; 75) echo held ;; *) echo 'not known' ;; esac";

pub(crate) const LIST_HELP: &str = "\
Prints a line for each lock: its name, how it is held, its holder as `redbolt status NAME` shows
it, how long it lasts unless it is extended, how many wait in the queue, and on how many nodes it
is. Behind a lock that fewer than a quorum of the nodes have stands `no quorum`: nobody holds it,
and it ends with its TTL. `undecided` means that nodes which did not answer decide. Locks of other
libraries are listed if their form is known.

It takes no lock and writes nothing. Each node is walked through with SCAN, which the user must be
allowed, up to 100,000 keys in steps of 500. The last line says if it stopped earlier than that or
at --limit: then give a longer --prefix. Locks change during the walk, so the list is a hint; what
is between two of its steps may be missing.

Exit status: 0 when a quorum of the nodes was walked through, or
   64  wrong usage                            71  refused by the operating system
   69  too few nodes were; says why

Examples:
  redbolt list --prefix deploy:
  redbolt list --json | jq -r '.locks[] | select(.has_quorum | not) | .key'";

pub(crate) const DOCTOR_HELP: &str = "\
Examines every node and the set, and prints a line for each check: pass, warn, fail, or skip for
what the user may not read, with the reason. Below a warning or a failure it prints what to do.

A node is asked for 200 round trips (for 2 s at most), its version, role, replicas, persistence,
memory, eviction and hz, its clock, its slow log and latency events, and locks that never expire.
The clock is compared with this host's, to within half of the shortest round trip. Locks that never
expire are looked for among the first 10,000 keys. Persistence is judged by --restart-guard and
--restart-trust, so give those that the users of the nodes give.

It changes nothing on the nodes. Whether the user may run a command is found out by calls that no
server executes as a write; a refusal leaves an entry in the server's ACL log. No password, token or
argument of a command is printed.

Exit status: 0 when all checks pass (skipped checks count as passed), or
    1  a warning                              64  wrong usage
    2  a failure                              71  refused by the operating system

Examples:
  redbolt doctor
  redbolt doctor --json | jq -r '.nodes[].checks[] | select(.result == \"fail\") | .todo'";

pub(crate) const INIT_HELP: &str = "\
A node without a restart guard is new or has lost its memory, and redbolt cannot tell which. So it
does not vote for --max-ttl: then every lock that it may have forgotten is over. `init` declares
that these nodes never held a lock, so they vote at once. Run it once in their life, for all nodes,
with the --max-ttl that all users will set. Never put it into a start script: a node that lost its
memory in a restart also looks new, and would be believed. It does not prompt. It writes nothing
unless all nodes answer and none of them votes.

With --change it moves nodes that are in use to another --max-ttl or another number of nodes. Give
all users of the nodes the new options too. It closes all connections to the nodes, and no node
votes until the longer of both --max-ttl is over; keep the nodes running until then. If it fails,
run it again until it succeeds: while only some of the nodes are moved, old and new users might
both find a quorum.

Exit status: 0 when it is done, or
   64  wrong usage; a node is in use and      71  refused by the operating system
       another is not, or has other limits    73  all nodes are already set up with these
   69  a node does not answer or cannot be        options: nothing was written
       set up

After 73 nothing is left to do, so a script that may run twice accepts it. It is not 0, so that
`init` in a start script is noticed before the day on which it believes nodes that lost their data.

Examples:
  redbolt init || [ $? -eq 73 ]
  redbolt init --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
  redbolt init --change --max-ttl 2m";

pub(crate) const BENCH_HELP: &str = "\
Takes and releases locks, each on a key of its own, and reports how long that takes from this host:
the acquisition, until a quorum has granted; the release, until a quorum has confirmed it; and the
pair of both. With --concurrency 8 it has eight locks in flight. Each begins again when it is
released, so slow nodes get fewer requests.

The table of nodes has the number of answers of each, the mean time to an answer, the times within
which 50 % and 99 % of them came, and the share of locks in which its grant came in time to count.
One thread does all the work, with the library's Driver in an event loop. `client CPU` is the
processor time of that thread.

Keys are named redbolt:bench:RANDOM:NUMBER. Nothing else is written, not even restart guards: new
nodes need `redbolt init` first. Ctrl-C ends it early: it releases all locks and reports what it
has measured.

Nodes that seem to be in use (they have keys, replicas, or more than one other client) are refused
unless --yes is given. Do not measure while others depend on these servers.

Exit status: 0 when it was measured, or
   64  wrong usage, or nodes in use           71  refused by the operating system
   69  too few nodes vote, or no lock was     128 + signal that ended it early
       granted; says why

Examples:
  redbolt bench --duration 5s
  redbolt bench --concurrency 64 --json > bench.json";

pub(crate) const MAN_HELP: &str = "\
redbolt man ~/.local/share/man/man1    and then: man redbolt-lock";

pub(crate) const COMPLETION_HELP: &str = "\
bash:  redbolt completions bash > ~/.local/share/bash-completion/completions/redbolt
zsh:   redbolt completions zsh > \"${fpath[1]}/_redbolt\"
fish:  redbolt completions fish > ~/.config/fish/completions/redbolt.fish";
