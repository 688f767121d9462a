"""The binary interface, as Python sees it through ctypes: python3 abi.py libredbolt.so 10.0.0.1 ...

Nothing but the header's declarations, written down by hand: a function or a field that changes its shape fails here.
"""

import ctypes
import sys
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p

OK, CONTENDED, REQUEST = 0, 5, 4
GRANTED, RELEASED = 1, 9
HANDLE = c_void_p
OUT = POINTER(c_void_p)


class NodeError(ctypes.Structure):
    _fields_ = [("number", c_uint32), ("answer", c_int32), ("address", c_char_p), ("message", c_char_p)]


class Event(ctypes.Structure):
    _fields_ = [
        ("kind", c_int32),
        ("status", c_int32),
        ("loss", c_int32),
        ("node", c_uint32),
        ("confirmed", c_uint32),
        ("lock", c_uint64),
        ("view", c_uint64),
        ("data", c_void_p),
    ]


ACQUIRED = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_void_p)

FUNCTIONS = {
    "redbolt_abi_version": (c_uint32, []),
    "redbolt_version": (c_char_p, []),
    "redbolt_status_message": (c_char_p, [c_int32]),
    "redbolt_config_new": (HANDLE, []),
    "redbolt_config_add_node": (c_int32, [HANDLE, c_char_p, OUT]),
    "redbolt_config_set_new_nodes": (c_int32, [HANDLE]),
    "redbolt_config_set_response_timeout_ms": (c_int32, [HANDLE, c_uint64]),
    "redbolt_config_set_in_flight": (c_int32, [HANDLE, c_size_t]),
    "redbolt_config_free": (None, [HANDLE]),
    "redbolt_request_new": (HANDLE, [c_char_p]),
    "redbolt_request_set_permits": (c_int32, [HANDLE, c_uint16]),
    "redbolt_request_free": (None, [HANDLE]),
    "redbolt_client_new": (c_int32, [HANDLE, OUT, OUT]),
    "redbolt_client_lease": (c_int32, [HANDLE, c_char_p, c_uint64, OUT, OUT]),
    "redbolt_client_try_lease": (c_int32, [HANDLE, c_char_p, c_uint64, OUT, OUT]),
    "redbolt_client_free": (None, [HANDLE]),
    "redbolt_lock_is_valid": (c_bool, [HANDLE]),
    "redbolt_lock_remaining_ms": (c_uint64, [HANDLE]),
    "redbolt_lock_slot": (c_bool, [HANDLE, POINTER(c_uint16)]),
    "redbolt_lock_release": (c_int32, [HANDLE, OUT]),
    "redbolt_error_message": (c_char_p, [HANDLE]),
    "redbolt_error_node_count": (c_size_t, [HANDLE]),
    "redbolt_error_node": (c_int32, [HANDLE, c_size_t, POINTER(NodeError)]),
    "redbolt_error_free": (None, [HANDLE]),
    "redbolt_driver_new": (c_int32, [HANDLE, OUT, OUT]),
    "redbolt_driver_fd": (c_int, [HANDLE]),
    "redbolt_driver_timeout_ms": (c_int, [HANDLE]),
    "redbolt_driver_process": (c_int32, [HANDLE]),
    "redbolt_driver_acquire": (c_int32, [HANDLE, HANDLE, c_void_p, POINTER(c_uint64), OUT]),
    "redbolt_driver_release": (c_int32, [HANDLE, c_uint64]),
    "redbolt_driver_next_event": (c_bool, [HANDLE, POINTER(Event), OUT]),
    "redbolt_driver_free": (None, [HANDLE]),
    "redbolt_engine_new": (c_int32, [HANDLE, OUT, OUT]),
    "redbolt_engine_acquire_async": (c_int32, [HANDLE, HANDLE, ACQUIRED, c_void_p, OUT]),
    "redbolt_engine_free": (None, [HANDLE]),
}


class Failed(Exception):
    pass


def load(path):
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def done(library, call, *arguments):
    """Calls with a place for an error, and raises what was put there."""
    error = c_void_p()
    status = getattr(library, call)(*arguments, byref(error))
    message = library.redbolt_error_message(error).decode()
    library.redbolt_error_free(error)
    if status != OK:
        raise Failed(f"{call}: {status}: {message}")


def made(library, call, *arguments):
    handle = c_void_p()
    done(library, call, *arguments, byref(handle))
    return handle


def client(library, config):
    client = made(library, "redbolt_client_new", config)
    lock = made(library, "redbolt_client_lease", client, b"job", 10_000)
    assert library.redbolt_lock_is_valid(lock)
    assert 0 < library.redbolt_lock_remaining_ms(lock) <= 10_000
    slot = c_uint16(7)
    assert not library.redbolt_lock_slot(lock, byref(slot)) and slot.value == 7

    other, none, error = made(library, "redbolt_client_new", config), c_void_p(), c_void_p()
    assert library.redbolt_client_try_lease(other, b"job", 10_000, byref(none), byref(error)) == CONTENDED
    assert none.value is None and library.redbolt_error_node_count(error) == 3
    node = NodeError()
    assert library.redbolt_error_node(error, 2, byref(node)) == OK
    assert node.number == 3 and node.address in node.message, (node.address, node.message)
    library.redbolt_error_free(error)

    done(library, "redbolt_lock_release", lock)
    library.redbolt_client_free(other)
    library.redbolt_client_free(client)
    print("client")


def driver(library, config):
    import select

    driver, request = made(library, "redbolt_driver_new", config), library.redbolt_request_new(b"job")
    assert library.redbolt_request_set_permits(request, 0xFFFF) == OK
    lock = c_uint64()
    try:
        done(library, "redbolt_driver_acquire", driver, request, None, byref(lock))
    except Failed as failed:
        assert "65535" in str(failed), failed
    else:
        raise AssertionError("65535 permits were taken for another number")
    assert library.redbolt_request_set_permits(request, 3) == OK
    done(library, "redbolt_driver_acquire", driver, request, 0x1234_5678_9ABC, byref(lock))
    poll = select.poll()
    poll.register(library.redbolt_driver_fd(driver), select.POLLIN)
    seen = []
    while seen[-1:] != [RELEASED]:
        event, error = Event(), c_void_p()
        while library.redbolt_driver_next_event(driver, byref(event), byref(error)):
            library.redbolt_error_free(error)
            if event.lock == lock.value:
                assert event.data == 0x1234_5678_9ABC and event.status == OK
                seen.append(event.kind)
                if event.kind == GRANTED:
                    assert library.redbolt_driver_release(driver, lock) == OK
                else:
                    assert event.confirmed >= 2
        if seen[-1:] != [RELEASED]:
            deadline = library.redbolt_driver_timeout_ms(driver)
            poll.poll(None if deadline < 0 else deadline)
            assert library.redbolt_driver_process(driver) == OK
    assert seen == [GRANTED, RELEASED], seen
    library.redbolt_request_free(request)
    library.redbolt_driver_free(driver)
    print("driver")


def engine(library, config):
    import queue

    outcomes = queue.Queue()
    callback = ACQUIRED(lambda data, status, lock, error: outcomes.put((data, status, lock, error)))
    engine, request = c_void_p(), library.redbolt_request_new(b"job")
    done(library, "redbolt_engine_new", config, byref(engine))
    assert library.redbolt_engine_acquire_async(engine, request, callback, 42, None) == OK
    data, status, lock, error = outcomes.get(timeout=60)
    assert (data, status, error) == (42, OK, None), (data, status, error)
    done(library, "redbolt_lock_release", lock)
    library.redbolt_request_free(request)
    library.redbolt_engine_free(engine)
    print("engine")


def main():
    path, *addresses = sys.argv[1:]
    library = load(path)
    assert library.redbolt_abi_version() == 1
    assert library.redbolt_version().count(b".") == 2
    assert library.redbolt_status_message(CONTENDED) == b"another client holds the resource"
    config = library.redbolt_config_new()
    for address in addresses:
        done(library, "redbolt_config_add_node", config, address.encode())
    assert library.redbolt_config_set_new_nodes(config) == OK
    assert library.redbolt_config_set_response_timeout_ms(config, 15_000) == OK
    assert library.redbolt_config_set_in_flight(config, 64) == OK
    client(library, config)
    driver(library, config)
    engine(library, config)
    library.redbolt_config_free(config)


main()
