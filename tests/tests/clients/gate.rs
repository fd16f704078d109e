//! A port of this machine that leads to the Unix socket of a server: for clients that know no Unix sockets, and as the one
//! address of servers that take over from each other.

use std::env;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

/// Lets connections through as long as this value is there.
pub struct Gate {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Where it leads to; nowhere, and it is closed.
    socket: Option<PathBuf>,
    /// Both ends of what goes through.
    open: Vec<(TcpStream, UnixStream)>,
}

impl Gate {
    /// One that leads to a socket.
    pub fn to(socket: PathBuf) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State { socket: Some(socket), open: Vec::new() }));
        let shared = Arc::downgrade(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Some(state) = shared.upgrade() else { return };
                let mut state = state.lock().unwrap();
                // A client that is not let through is turned away: it is dropped here.
                let Some(Ok(server)) = state.socket.as_ref().map(UnixStream::connect) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || carry(from, to));
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || carry(from, to));
                state.open.push((client, server));
            }
        });
        Gate { port, state }
    }

    /// Puts one between a program in Java and the server that its environment names by a folder of sockets.
    pub fn if_wanted(command: &mut Command) -> Option<Gate> {
        let set = |name: &str| {
            let own = command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
            own.map(|value| value.to_owned()).or_else(|| env::var_os(name))
        };
        let folder = PathBuf::from(set("PGHOST").expect("PGHOST is set"));
        if command.get_program() != "java" || !folder.is_absolute() {
            return None;
        }
        let port = set("PGPORT").map_or_else(|| "5432".to_owned(), |port| port.into_string().unwrap());
        let gate = Gate::to(folder.join(format!(".s.PGSQL.{port}")));
        gate.show(command);
        Some(gate)
    }

    /// Tells a command of this address.
    pub fn show(&self, command: &mut Command) {
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string());
    }

    /// Cuts what goes through, and leads elsewhere from now on, or nowhere.
    pub fn lead(&self, socket: Option<PathBuf>) {
        let mut state = self.state.lock().unwrap();
        state.socket = socket;
        for (client, server) in state.open.drain(..) {
            client.shutdown(Shutdown::Both).ok();
            server.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.lead(None);
        // The listener waits for one more, and finds that there is no gate any longer; unless it has just found out.
        let port = self.port;
        let state = std::mem::replace(
            &mut self.state,
            Arc::new(Mutex::new(State { socket: None, open: Vec::new() })),
        );
        drop(state);
        drop(TcpStream::connect(("127.0.0.1", port)));
    }
}

/// Until either end is closed; then both are.
fn carry(mut from: impl Read + Cut, mut to: impl Write + Cut) {
    std::io::copy(&mut from, &mut to).ok();
    from.cut();
    to.cut();
}

trait Cut {
    fn cut(&self);
}

impl Cut for TcpStream {
    fn cut(&self) {
        self.shutdown(Shutdown::Both).ok();
    }
}

impl Cut for UnixStream {
    fn cut(&self) {
        self.shutdown(Shutdown::Both).ok();
    }
}
