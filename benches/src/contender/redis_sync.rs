//! The redis crate's blocking connections.
//!
//! Its queries wait for their answers, and so would go from node to node. But a caller may write
//! and read separately, and a lock on several nodes would do that.

use anyhow::{Result, ensure};
use redis::{Client, Cmd, Connection, Pipeline, Value, cmd, pipe};

use super::contract::{Contender, PATIENCE, Task, redis_clients};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let connect = |client: &Client| {
        let connection = client.get_connection()?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    };
    let connections = redis_clients(&task.nodes)?.iter().map(connect).collect::<Result<_>>()?;
    let requests = requests(task)?;
    let (ask, undo) = (requests.ask.get_packed_pipeline(), requests.undo.get_packed_command());
    Ok(Box::new(Redis { connections, ask, undo }))
}

/// A lock's requests to each node.
pub(super) struct Requests {
    pub(super) ask: Pipeline,
    pub(super) undo: Cmd,
}

pub(super) fn requests(task: &Task) -> Result<Requests> {
    write_restart_guards(&task.nodes)?;
    let (digest, ttl) = (load_undo(&task.nodes)?, task.ttl.as_millis() as u64);
    let (mut ask, mut undo) = (pipe(), cmd("EVALSHA"));
    ask.cmd("SET").arg(&task.resource).arg(TOKEN).arg("NX").arg("PX").arg(ttl);
    ask.cmd("PTTL").arg(GUARD);
    undo.arg(digest).arg(1).arg(&task.resource).arg(TOKEN);
    Ok(Requests { ask, undo })
}

struct Redis {
    connections: Vec<Connection>,
    ask: Vec<u8>,
    undo: Vec<u8>,
}

impl Contender for Redis {
    fn acquire(&mut self) -> Result<()> {
        say(&mut self.connections, &self.ask)?;
        for connection in &mut self.connections {
            ensure!(connection.recv_response()? == Value::Okay, "not granted");
            connection.recv_response()?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        say(&mut self.connections, &self.undo)?;
        for connection in &mut self.connections {
            ensure!(connection.recv_response()? == Value::Int(1), "not held");
        }
        Ok(())
    }
}

fn say(connections: &mut [Connection], request: &[u8]) -> Result<()> {
    Ok(connections.iter_mut().try_for_each(|node| node.send_packed_command(request))?)
}
