//! The program `fairlead-virtual-workspaces`; its code is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fairlead_virtual::main()
}
