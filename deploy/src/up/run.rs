//! Runs a prepared installation: starts all processes at once, sends events, stops the processes in the order of their roles.

use std::time::Duration;

use fairlead_client::ClientError;
use futures_util::future::{Fuse, FutureExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::UpError;
use super::development_rights::{DevelopmentRights, GrantOutcome, NAME};
use super::etcd_process::EtcdProcess;
use super::log_file::{LogFile, last_lines};
use super::prepare::{DataState, PreparedInstallation};
use super::process_table::{Change, Event, ProcessEvent, ProcessTable};
use super::readiness::ReadinessProbe;
use super::supervisor::{DesiredState, SupervisedProcess};
use super::terminal::EventSink;
use super::topology::{Role, Topology};
use super::up_log::UpLog;
use crate::installation::{Installation, now_as_text};

/// A process that has ended this often before it was ever ready fails the start.
const MAX_FAILED_STARTS: u32 = 3;
/// Deadline until all processes are ready for the first time.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Runs until a signal, or until a process fails to start.
pub(crate) async fn run(
    installation: &Installation,
    prepared: PreparedInstallation,
    events: &mut dyn EventSink,
) -> Result<(), UpError> {
    // `_ports` and `_lock` must live until the last process has ended.
    let PreparedInstallation {
        topology,
        ports: _ports,
        programs,
        notes,
        started_at,
        data_state,
        lock: _lock,
    } = prepared;
    let mut signals = Signals::listen().map_err(UpError::Runtime)?;
    let (event_sender, mut process_events) = mpsc::channel(64);
    let (mut processes, mut desired_states) = (JoinSet::new(), Vec::new());
    for (index, process) in topology.processes.iter().enumerate() {
        let program = programs[process.role.program()].clone();
        let (program, arguments) = match process.role {
            Role::Etcd => EtcdProcess::command_line(&program).map_err(UpError::NoOwnPath)?,
            _ => (program, Vec::new()),
        };
        let supervised = SupervisedProcess {
            index,
            program,
            arguments,
            config: installation.config(&process.name),
            log: LogFile::at(installation.log(&process.name)),
            probe: ReadinessProbe::of(process, &installation.certificates())?,
        };
        let (sender, desired_state) = watch::channel(DesiredState::Run);
        processes.spawn(supervised.supervise(event_sender.clone(), desired_state));
        desired_states.push(sender);
    }
    drop(event_sender);
    let rights = DevelopmentRights::at(&topology.gateway().url(), &installation.certificates())?;
    let mut running = RunningInstallation {
        installation,
        topology: &topology,
        started: now_as_text(),
        table: ProcessTable::new(topology.processes.iter().map(|process| process.name.clone())),
        up_log: UpLog::of(installation),
        events,
        desired_states,
    };
    running.send(&Event::Starting(running.table.rows.iter().map(|row| row.name.clone()).collect()));
    for note in notes {
        running.send(&Event::Note(note));
    }

    let limit = tokio::time::sleep(START_LIMIT);
    tokio::pin!(limit);
    let grant = Fuse::terminated();
    tokio::pin!(grant);
    let (mut all_ready, mut complete) = (false, false);
    let outcome = loop {
        tokio::select! {
            Some(event) = process_events.recv() => {
                running.on_process_event(event);
                if !complete {
                    if let Some(error) = running.failed_start() {
                        break Err(error);
                    }
                    if !all_ready && running.table.all_ready() {
                        all_ready = true;
                        grant.set(rights.clone().grant().fuse());
                    }
                }
            }
            outcome = &mut grant => {
                complete = true;
                if let Some(note) = rights_note(&outcome, data_state) {
                    running.send(&Event::Note(note));
                }
                let after_ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
                running.send(&Event::Ready { after_ms, edge: topology.edge_url() });
            }
            () = &mut limit, if !complete => break Err(running.not_ready_in_time()),
            () = signals.next() => break Ok(()),
        }
    };
    if let Err(error) = &outcome {
        // The caller sends this event to the other sink.
        let (message, hint) = (error.to_string(), error.hint());
        running.up_log.send(&Event::Failed { message, hint });
    }
    running.stop(&mut process_events, &mut signals).await;
    while processes.join_next().await.is_some() {}
    outcome
}

/// The note about the rights of the development user, if any.
fn rights_note(outcome: &Result<GrantOutcome, ClientError>, data_state: DataState) -> Option<String> {
    match (outcome, data_state) {
        (Ok(GrantOutcome::Existing), _) | (Ok(GrantOutcome::Created), DataState::New) => None,
        (Ok(GrantOutcome::Created), DataState::Existing) => Some(format!(
            "the ClusterRoleBinding {NAME} in root was missing and has been created; a binding without subjects \
             would be left as it is"
        )),
        (Err(error), _) => Some(format!("the development user has no rights, because of an error: {error}")),
    }
}

/// A running installation.
struct RunningInstallation<'a> {
    installation: &'a Installation,
    topology: &'a Topology,
    started: String,
    table: ProcessTable,
    up_log: UpLog,
    events: &'a mut dyn EventSink,
    /// The desired state of each process.
    desired_states: Vec<watch::Sender<DesiredState>>,
}

impl RunningInstallation<'_> {
    fn send(&mut self, event: &Event) {
        self.up_log.send(event);
        self.events.send(event);
    }

    fn on_process_event(&mut self, event: ProcessEvent) {
        self.table.apply(&event, now_as_text());
        // Only `fairlead status` reads the file: an error must not end the servers.
        let _ = self.installation.write_state(&self.table.saved_state(&self.started, self.topology));
        self.send(&Event::ProcessEvent(event));
    }

    /// The error of a process that fails to start, if there is one.
    fn failed_start(&self) -> Option<UpError> {
        let row = self.table.rows.iter().find(|row| !row.was_ready && row.ends >= MAX_FAILED_STARTS)?;
        let log = self.installation.log(&row.name);
        Some(UpError::FailedToStart {
            name: row.name.clone(),
            exit: row.last_exit.clone().unwrap_or_default(),
            last_log_lines: last_lines(&log, 3),
            log,
        })
    }

    fn not_ready_in_time(&self) -> UpError {
        let waiting = self.table.rows.iter().filter(|row| !row.was_ready);
        let names: Vec<_> = waiting.map(|row| row.name.as_str()).collect();
        UpError::NotReadyInTime {
            names: names.join(", "),
            after: START_LIMIT,
            logs: self.installation.logs(),
        }
    }

    /// Ends all processes, servers after their clients. A second signal kills those that still run.
    async fn stop(&mut self, process_events: &mut mpsc::Receiver<ProcessEvent>, signals: &mut Signals) {
        self.send(&Event::Stopping);
        for role in Role::ALL {
            let members: Vec<_> = (0..self.desired_states.len())
                .filter(|index| self.topology.processes[*index].role == role)
                .collect();
            self.set_desired_state(&members, DesiredState::Stop);
            let mut remaining = members.len();
            while remaining > 0 {
                tokio::select! {
                    event = process_events.recv() => match event {
                        Some(event) => {
                            let ended = event.change == Change::Stopped && members.contains(&event.process);
                            remaining -= usize::from(ended);
                            self.on_process_event(event);
                        }
                        // All supervisors have ended.
                        None => return,
                    },
                    () = signals.next() => {
                        let all: Vec<_> = (0..self.desired_states.len()).collect();
                        self.set_desired_state(&all, DesiredState::Kill);
                    }
                }
            }
        }
    }

    fn set_desired_state(&self, processes: &[usize], state: DesiredState) {
        for index in processes {
            self.desired_states[*index].send_if_modified(|current| {
                let is_stronger = *current != DesiredState::Kill && *current != state;
                if is_stronger {
                    *current = state;
                }
                is_stronger
            });
        }
    }
}

/// The signals that end `up`.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
