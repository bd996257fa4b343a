//! The `fairlead` program; its library has the implementation.

use std::process::ExitCode;

fn main() -> ExitCode {
    fairlead::main()
}
