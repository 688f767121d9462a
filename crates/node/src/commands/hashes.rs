//! Commands on hashes that show the holders of a semaphore's permits, or of a lock in Redisson's
//! format. Only the lock scripts write hashes.

use super::call::{Call, Outcome};

pub(super) fn hlen(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let count = call.keys().fields(key)?.map_or(0, |fields| fields.len());
    call.int(count as i64)
}

pub(super) fn hget(call: &mut Call<'_>) -> Outcome {
    let (key, field) = (call.args[1], call.args[2]);
    let (mut keys, reply) = call.keys_and_reply();
    match keys.fields(key)?.and_then(|fields| fields.value_of(field)) {
        Some(value) => reply.bulk(value),
        None => reply.nil(),
    }
    Ok(())
}

/// Replies in the order of the fields' bytes; a server has another order.
pub(super) fn hkeys(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let (mut keys, reply) = call.keys_and_reply();
    let Some(fields) = keys.fields(key)? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(fields.len());
    fields.names().for_each(|name| reply.bulk(name));
    Ok(())
}
