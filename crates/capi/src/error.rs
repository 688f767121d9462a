//! Errors as a host reads them: their text, and each node's part in them.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use crate::call::{call, given, look};
use crate::failure::{Failure, NodeAnswer};
use crate::status::Status;

/// The part of one node in an error. The texts live as long as the error.
#[repr(C)]
pub struct NodeError {
    /// The number of the node, from one, in the order in which nodes were added.
    pub number: u32,
    /// The answer of the node.
    pub answer: NodeAnswer,
    /// The address of the node.
    pub address: *const c_char,
    /// The number, the address and the reason in one line.
    pub message: *const c_char,
}

/// Returns the status that the call returned with the error; `REDBOLT_STATUS_OK` for null.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_status(error: Option<&Failure>) -> Status {
    error.map_or(Status::Ok, Failure::status)
}

/// Returns one line of UTF-8, without an end of line, empty for null. It lives as long as the
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_message(error: Option<&Failure>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Returns true if a quorum of the nodes has voted and another client held the resource, and false
/// if too few nodes voted. This also distinguishes the two after a timeout.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_is_contended(error: Option<&Failure>) -> bool {
    error.is_some_and(|error| error.is_contended)
}

/// Returns the number of nodes in the error: all of the configuration, or 0 if it does not concern
/// nodes.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_node_count(error: Option<&Failure>) -> usize {
    error.map_or(0, |error| error.nodes.len())
}

/// Writes the part of one node, from index 0 on. Returns `REDBOLT_STATUS_INVALID_ARGUMENT` if there
/// is none at that index.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_node(
    error: Option<&Failure>,
    index: usize,
    node: Option<&mut MaybeUninit<NodeError>>,
) -> Status {
    call(None, || {
        let node = given(node, "node")?;
        let nodes = &given(error, "error")?.nodes;
        let part = nodes.get(index).ok_or_else(|| Failure::argument("no node at this index"))?;
        node.write(NodeError {
            number: part.number,
            answer: part.vote,
            address: part.address.as_ptr(),
            message: part.message.as_ptr(),
        });
        Ok(())
    })
}

/// Ends an error. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_error_free(error: Option<Box<Failure>>) {
    look((), || drop(error));
}
