//! Listeners and their sockets at an upgrade: each socket belongs to one process, and the connections that wait there are served.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairlead_config::{GatewayConfig, ListenerConfig, SocketConfig};
use rustix::process::Signal;
use tokio::net::{TcpStream, UnixStream};

use super::{API, BackgroundRequests, ProcessChain, gateway_command, over, waiting};
use crate::program::until_gone;
use crate::world::{eventually, free_address, listener, until_refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_added_during_an_upgrade_opens_after_it() {
    for (what, then, stays) in
        [("one that succeeds", gateway_command(), false), ("one that fails", "exit 3".to_owned(), true)]
    {
        let (more, last) = (free_address().await, free_address().await);
        let mut chain = ProcessChain::begin(|config, directory| {
            config.upgrade.program = Some(waiting(directory, &then).into());
        })
        .await;
        let first = chain.state.read().pid;
        let background = BackgroundRequests::at(&chain, chain.address);
        let with = |config: &GatewayConfig, name: &str, address: SocketAddr| {
            let mut new = listener(config, name);
            new.serving.address = address;
            let mut config = config.clone();
            config.listeners.push(new);
            config
        };
        chain.gateway.says("the index is synced").await;
        chain.successor_that_waits().await;
        let mut config = with(&chain.config, "more", more);
        chain.write(&config);
        chain.state.signal(Signal::HUP);
        chain.gateway.says("reloads are suspended; the files are checked when they resume").await;
        if stays {
            chain.go();
            chain.state.until(|state| state.upgrades_failed == 1 && state.reloads_done > 1).await;
        } else {
            // The successor has read the file before it changes once more, and the signal goes to the predecessor.
            chain.state.signal(Signal::STOP);
            chain.go();
            chain.gateway.says("the index is synced").await;
            config = with(&config, "last", last);
            chain.write(&config);
            chain.state.signal(Signal::HUP);
            chain.state.signal(Signal::CONT);
            chain.taken_over_from(first).await;
            chain.state.until(|state| state.reloads_done > 0).await;
        }
        for listener in &config.listeners[1..] {
            let answer = chain.client_at(listener.serving.address).await.get(API).await;
            assert_eq!(answer.status, 200, "{what}: {}", listener.name);
        }
        assert_eq!(chain.state.read().pid == first, stays, "{what}");
        background.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_waiting_at_a_removed_listener_are_served() {
    let goes = free_address().await;
    let mut chain = ProcessChain::begin(|config, _| {
        let mut listener = listener(config, "goes");
        listener.serving.address = goes;
        config.listeners.push(listener);
        config.limits.max_connections = 1;
        config.drain.window = "20s".parse().unwrap();
    })
    .await;
    // The listener's only connection is in use, so the next one waits in the kernel.
    let first = chain.client_at(goes).await;
    assert_eq!(first.get(API).await.status, 200);
    let stream = TcpStream::connect(goes).await.unwrap();
    let before = chain.state.read().pid;
    let mut config = chain.config.clone();
    config.listeners.pop();
    chain.write(&config);
    chain.upgrade().await;
    assert_eq!(over(chain.tls(), stream).await.get(API).await.status, 200);
    until_refused(goes).await;
    // The periodic check of files may find the new configuration before the upgrade.
    chain.gateway.says_one_of(&["the successor does not use this socket", "closing listener=goes"]).await;
    drop(first);
    until_gone(before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_file_stays_with_its_listener_when_names_change() {
    let chain = ProcessChain::begin(|config, directory| {
        for name in ["one", "two"] {
            let path = directory.join(name).into();
            let socket = SocketConfig { path, mode: "0660".to_owned() };
            config.listeners.push(ListenerConfig { socket: Some(socket), ..listener(config, name) });
        }
    })
    .await;
    let (one, two) = (chain.path("one"), chain.path("two"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // The listeners swap their names, because a socket is not identified by its listener's name.
    let mut config = chain.config.clone();
    config.listeners[1].name = "two".to_owned();
    config.listeners[2].name = "one".to_owned();
    let first = chain.state.read().pid;
    chain.write(&config);
    let second = chain.upgrade().await;
    until_gone(first).await;
    UnixStream::connect(&one).await.unwrap();
    // The permissions follow the settings, as if this process had created the file.
    config.listeners[1].socket.as_mut().unwrap().mode = "0600".to_owned();
    config.listeners.pop();
    chain.write(&config);
    chain.state.signal(Signal::HUP);
    eventually("the permissions change", async || mode(&one) == 0o600).await;
    eventually("the other file is gone", async || !two.exists()).await;
    config.listeners[1].name = "three".to_owned();
    chain.write(&config);
    let third = chain.upgrade().await;
    until_gone(second).await;
    UnixStream::connect(&one).await.unwrap();
    chain.state.signal(Signal::TERM);
    until_gone(third).await;
    assert!(!one.exists());
}
