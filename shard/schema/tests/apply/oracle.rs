//! A program that gives Kubernetes' answers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::answer::{Answer, from_oracle};
use super::sequence::Step;

pub(crate) struct Oracle {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    pub(crate) fn start(program: &str) -> Self {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn send(&mut self, line: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn ask(&mut self, step: &Step, live: Option<&Value>, now: &str) -> Answer {
        self.send(&json!({"step": step, "live": live}));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        from_oracle(&serde_json::from_str(&line).unwrap(), now)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
