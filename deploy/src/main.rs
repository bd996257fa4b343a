//! The `fairlead` program; everything is in its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    fairlead::main()
}
