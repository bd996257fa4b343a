//! The `fairlead-issuer` program; everything is in its library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fairlead_issuer::main()
}
