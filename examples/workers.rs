//! At most ten workers at a time, of any number of hosts: each acquires a permit, and works in the
//! place with the permit's number.
//!
//! ```text
//! cargo run --example workers
//! cargo run --example workers -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, ConfigBuilder, LockRequest};

use crate::nodes::{addresses, embedded_nodes};

/// The number of hosts that may work at once, each in a numbered place, such as a port or an
/// account.
const PLACES: u16 = 10;

/// The number of hosts with work to do, each with its own client.
const HOSTS: usize = 25;

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: workers [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // All hosts start at the same time, so the nodes must be declared new before that. In
    // production an operator runs `redbolt init`, once.
    let operator = Client::new(configure(&addresses).new_nodes().build()?)?;
    operator.warm_up(Duration::from_secs(5));
    let site = Site::default();
    thread::scope(|scope| {
        let hosts: Vec<_> = (1..=HOSTS)
            .map(|host| {
                let (addresses, site) = (&addresses, &site);
                scope.spawn(move || work(host, addresses, site).map_err(|error| error.to_string()))
            })
            .collect();
        hosts.into_iter().try_for_each(|host| host.join().map_err(|_| "a host panicked")?)
    })?;
    println!("{HOSTS} jobs done, {} at once at the most", site.most());
    Ok(())
}

/// Works as one host: waits for a permit, works in the place with its number, and releases it.
fn work(host: usize, addresses: &[String], site: &Site) -> Result<(), Box<dyn Error>> {
    let client = Client::new(configure(addresses).label(format!("host-{host}")).build()?)?;
    // Every host's request has the number of permits, so nothing has to be set up.
    let request = LockRequest::new(RESOURCE).permits(PLACES).ttl(Duration::from_secs(10));
    let permit = client.acquire(request.wait(Duration::from_secs(20)))?;
    let place = permit.slot().ok_or("the permit is over")?;
    site.enter(place, host)?;
    println!("host {host} works in place {place}");
    thread::sleep(Duration::from_millis(20));
    site.leave(place);
    permit.release()?;
    Ok(())
}

/// The places, and the host in each. It only checks that no two hosts meet.
#[derive(Default)]
struct Site {
    places: Mutex<([Option<usize>; PLACES as usize], usize)>,
}

impl Site {
    fn enter(&self, place: u16, host: usize) -> Result<(), Box<dyn Error>> {
        let (places, most) = &mut *self.places.lock().map_err(|_| "another host panicked")?;
        if let Some(other) = places[usize::from(place)].replace(host) {
            return Err(format!("hosts {other} and {host} are both in place {place}").into());
        }
        *most = (*most).max(places.iter().flatten().count());
        Ok(())
    }

    fn leave(&self, place: u16) {
        if let Ok(mut places) = self.places.lock() {
            places.0[usize::from(place)] = None;
        }
    }

    fn most(&self) -> usize {
        self.places.lock().map_or(0, |places| places.1)
    }
}

fn configure(addresses: &[String]) -> ConfigBuilder {
    // A node that takes longer than this to answer fails its vote. In your own network, choose
    // less.
    Config::builder().response_timeout(Duration::from_secs(5)).nodes(addresses)
}

const RESOURCE: &[u8] = b"redbolt-example-workers";
