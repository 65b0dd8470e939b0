//! A DNS server that does not answer every name, and hosts that ask it: a library that is preloaded points the
//! resolver of the system at it.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::host::HostOptions;
use crate::skew::library;

/// A server on a free port of 127.0.0.1. Names that end in `silent.test` have no answer, ever; every other name is
/// 127.0.0.1.
#[derive(Debug)]
pub struct Dns {
    library: PathBuf,
    _dir: tempfile::TempDir,
    port: u16,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Dns {
    /// # Panics
    ///
    /// If there is no C compiler, or no free port.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        let (library, dir) = library("dns");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = socket.local_addr().expect("it is bound").port();
        let asked = Arc::<Mutex<BTreeSet<String>>>::default();
        let noted = Arc::clone(&asked);
        // It ends with the process.
        std::thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let Some((name, end)) = question(&packet[..length]) else {
                    continue;
                };
                let is_silent = name.ends_with("silent.test");
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(name);
                if !is_silent {
                    drop(socket.send_to(&answer(&packet[..end]), from));
                }
            }
        });
        Self {
            library,
            _dir: dir,
            port,
            asked,
        }
    }

    /// This host, which asks this server.
    #[must_use]
    pub fn asked_by(&self, host: HostOptions) -> HostOptions {
        host.variable("LD_PRELOAD", &self.library.display().to_string())
            .variable("TEST_DNS_PORT", &self.port.to_string())
    }

    /// The names that it was asked for.
    pub fn asked(&self) -> BTreeSet<String> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The name in a question, and where the question ends.
fn question(packet: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*packet.get(at)?);
        let label = packet.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        match length {
            0 => break,
            _ => labels.push(String::from_utf8_lossy(label).to_ascii_lowercase()),
        }
    }
    packet.get(at..at + 4)?;
    Some((labels.join("."), at + 4))
}

/// The answer to this question: an address of IPv4, and none of any other type.
fn answer(question: &[u8]) -> Vec<u8> {
    let is_ipv4 = question[question.len() - 4..] == [0, 1, 0, 1];
    let answers = u8::from(is_ipv4);
    let mut answer = question.to_vec();
    // A response without an error, to one question.
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    if is_ipv4 {
        // The name of the question, for no time.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
