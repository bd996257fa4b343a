//! Listeners and their sockets at an upgrade: each is in one process's hands, and so is whoever waits there.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairlead_config::{GatewayConfig, ListenerConfig, SocketConfig};
use rustix::process::Signal;
use tokio::net::{TcpStream, UnixStream};

use super::{API, Knocking, Line, over, the_gateway, waiting};
use crate::program::until_gone;
use crate::world::{eventually, free_address, listener, until_refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_asked_for_during_an_upgrade_opens_after_it() {
    for (what, then, stays) in
        [("one that succeeds", the_gateway(), false), ("one that fails", "exit 3".to_owned(), true)]
    {
        let (more, last) = (free_address().await, free_address().await);
        let mut line = Line::begin(|config, directory| {
            config.upgrade.program = Some(waiting(directory, &then).into());
        })
        .await;
        let first = line.state.read().pid;
        let knocking = Knocking::at(&line, line.address);
        let with = |config: &GatewayConfig, name: &str, address: SocketAddr| {
            let mut new = listener(config, name);
            new.serving.address = address;
            let mut config = config.clone();
            config.listeners.push(new);
            config
        };
        line.gateway.says("the index is synced").await;
        line.successor_that_waits().await;
        let mut config = with(&line.config, "more", more);
        line.write(&config);
        line.state.signal(Signal::HUP);
        line.gateway.says("not reloaded while it is held").await;
        if stays {
            line.go();
            line.state.until(|state| state.upgrades_failed == 1 && state.reloads_done > 1).await;
        } else {
            // The successor has read the file before it changes once more, and the signal is its predecessor's.
            line.state.signal(Signal::STOP);
            line.go();
            line.gateway.says("the index is synced").await;
            config = with(&config, "last", last);
            line.write(&config);
            line.state.signal(Signal::HUP);
            line.state.signal(Signal::CONT);
            line.taken_over_from(first).await;
            line.state.until(|state| state.reloads_done > 0).await;
        }
        for listener in &config.listeners[1..] {
            let answer = line.client_at(listener.serving.address).await.get(API).await;
            assert_eq!(answer.status, 200, "{what}: {}", listener.name);
        }
        assert_eq!(line.state.read().pid == first, stays, "{what}");
        knocking.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_a_listener_that_the_successor_does_not_have_is_served() {
    let goes = free_address().await;
    let mut line = Line::begin(|config, _| {
        let mut listener = listener(config, "goes");
        listener.serving.address = goes;
        config.listeners.push(listener);
        config.limits.max_connections = 1;
        config.drain.window = "20s".parse().unwrap();
    })
    .await;
    let mut config = line.config.clone();
    config.listeners.pop();
    line.write(&config);
    // The only place is taken, so that the next one waits in the kernel.
    let first = line.client_at(goes).await;
    assert_eq!(first.get(API).await.status, 200);
    let stream = TcpStream::connect(goes).await.unwrap();
    let before = line.state.read().pid;
    line.upgrade().await;
    assert_eq!(over(line.tls(), stream).await.get(API).await.status, 200);
    until_refused(goes).await;
    line.gateway.says("the successor has no listener here").await;
    drop(first);
    until_gone(before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sockets_file_goes_with_the_listener_that_has_it_whatever_it_is_called() {
    let line = Line::begin(|config, directory| {
        for name in ["one", "two"] {
            let path = directory.join(name).into();
            let socket = SocketConfig { path, mode: "0660".to_owned() };
            config.listeners.push(ListenerConfig { socket: Some(socket), ..listener(config, name) });
        }
    })
    .await;
    let (one, two) = (line.path("one"), line.path("two"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // The names change places, and a name is not what a socket is known by.
    let mut config = line.config.clone();
    config.listeners[1].name = "two".to_owned();
    config.listeners[2].name = "one".to_owned();
    let first = line.state.read().pid;
    line.write(&config);
    let second = line.upgrade().await;
    until_gone(first).await;
    UnixStream::connect(&one).await.unwrap();
    // Permissions change with the settings, as if it had made the file.
    config.listeners[1].socket.as_mut().unwrap().mode = "0600".to_owned();
    config.listeners.pop();
    line.write(&config);
    line.state.signal(Signal::HUP);
    eventually("the permissions are others", async || mode(&one) == 0o600).await;
    eventually("the other file is gone", async || !two.exists()).await;
    config.listeners[1].name = "three".to_owned();
    line.write(&config);
    let third = line.upgrade().await;
    until_gone(second).await;
    UnixStream::connect(&one).await.unwrap();
    line.state.signal(Signal::TERM);
    until_gone(third).await;
    assert!(!one.exists());
}
