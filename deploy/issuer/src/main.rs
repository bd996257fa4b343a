//! The `fairlead-issuer` program; its library has the implementation.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fairlead_issuer::main()
}
