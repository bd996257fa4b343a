//! Attacks on the gateway: a campaign of generated requests ([`campaign`]), and one test for each class of vulnerability that
//! proxies have had. `b::` is the test program `behaviour`.
//!
//! | class | vulnerability | test |
//! |---|---|---|
//! | identity headers injected | kcp CVE-2026-61682 (GHSA-c8w2-fgvx-vhv4) | [`campaign`], `b::identity::forged_identity_headers_never_arrive_over_http1`, `…_http2` |
//! | stamped headers removed through `Connection` | kcp, by reading | `b::identity::forged_identity_headers_never_arrive_over_http1`, `b::contract::hop_by_hop_headers_are_not_forwarded` |
//! | identity in trailers | - | `b::identity::trailers_of_a_request_never_arrive` |
//! | rapid reset | CVE-2023-44487 | [`floods`]`::rapid_reset_cve_2023_44487` |
//! | made you reset, six primitives | CVE-2025-8671, GHSA-393w-9x6h-8gc7 | [`floods`]`::made_you_reset_cve_2025_8671` |
//! | CONTINUATION flood | 2024, many servers | [`floods`]`::continuation_flood_2024` |
//! | HTTP/2 bomb | CVE-2026-49975, CVE-2026-47774 | [`floods`]`::http2_bomb_cve_2026_49975` |
//! | ping flood, settings flood | CVE-2019-9512, -9515 | [`floods`]`::ping_and_settings_floods_cve_2019_9512_and_9515` |
//! | empty frames, priority churn, empty DATA frames | CVE-2019-9518, -9513, RUSTSEC-2026-0258 | [`floods`]`::floods_of_empty_and_useless_frames_cve_2019_9518_9513_and_rustsec_2026_0258` |
//! | headers without length | CVE-2019-9516, CVE-2023-25725 | [`floods`]`::empty_header_fields_cve_2019_9516_and_2023_25725` |
//! | data dribble, internal data buffering | CVE-2019-9511, -9517 | [`floods`]`::unread_responses_cve_2019_9511_and_9517` |
//! | reset flood | CVE-2019-9514 | [`floods`]`::rapid_reset_cve_2023_44487`, `…::made_you_reset_cve_2025_8671` |
//! | unread request bodies | windows of a connection | [`uploads`] |
//! | cost of each class for other clients | all of the above over HTTP/2 | [`goodput`] |
//! | default limits of the library | pingora, which builds `H2Options` | [`floods`]`::the_limits_of_http2_are_announced` |
//! | slow headers, silent clients | slowloris | `b::peers::silent_and_slow_peers_are_disconnected`, [`slow`] |
//! | slow bodies, slow reading, ranges | R-U-Dead-Yet, slow read, CVE-2011-3192 | [`slow`]`::slow_clients_delay_no_other_client_and_are_disconnected`, with slowhttptest at 4,000 connections `make slow` |
//! | CL.TE, TE.CL, TE.TE | many | [`smuggling`]`::cl_te_and_te_cl`, `…::te_te` |
//! | ambiguous lengths | CVE-2021-40346, CVE-2023-40225 | [`smuggling`]`::contradicting_and_odd_lengths_cve_2021_40346_and_2023_40225` |
//! | HTTP/1.0 with chunks | pingora CVE-2026-2835 | [`smuggling`]`::http_1_0_with_chunks_cve_2026_2835` |
//! | an unread body | pingora CVE-2025-4366, CL.0 | [`smuggling`]`::bodies_of_requests_that_are_not_forwarded_cve_2025_4366` |
//! | `Expect`, 0.CL | "HTTP/1.1 must die" | `b::peers::expect_100_continue_gets_a_100_or_a_refusal_at_once` |
//! | invalid lines, names, hosts | many | [`smuggling`]`::invalid_request_lines_and_header_names`, `b::peers::requests_need_exactly_one_valid_host` |
//! | pipelining | many | [`smuggling`]`::a_pipelined_request_is_authenticated_by_itself` |
//! | downgrade from HTTP/2 | nginx CVE-2026-42926 | [`smuggling`]`::downgrades_from_http2_cve_2026_42926` |
//! | tunnel before or without 101 | CVE-2018-1002105, pingora CVE-2026-2833 | [`kubernetes`]`::no_byte_passes_unless_the_shard_switches_cve_2018_1002105_and_2026_2833` |
//! | h2c smuggling | many | [`kubernetes`]`::an_upgrade_to_http_reaches_no_shard_h2c_smuggling` |
//! | redirects followed | CVE-2020-8559, CVE-2022-3172 | [`kubernetes`]`::redirects_of_a_shard_are_not_followed_cve_2020_8559_and_2022_3172` |
//! | the client selects the upstream | CVE-2022-3294, CVE-2020-8562 | [`kubernetes`]`::the_shard_is_never_the_clients_choice_cve_2022_3294` |
//! | scope confusion | CVE-2019-11247 | the same, `b::outcomes::routing_of_requests` |
//! | metrics grow with labels | CVE-2020-8552 | [`kubernetes`]`::clients_cannot_make_metrics_grow_cve_2020_8552` |
//! | privileged groups | kcp GO-2024-3325 | `b::identity::a_client_certificate_identifies_the_user_and_the_gateway_presents_its_own` (the shard authorizes impersonation) |
//! | a resumed session outlives its certificate authority | pingora | `b::rotation::a_removed_authority_is_no_longer_trusted_even_on_open_connections` |
//! | pools that confuse credentials | pingora | `b::rotation::a_connection_is_used_only_with_the_credential_and_authorities_it_was_opened_with` |
//! | one slow client stalls others | pingora's windows | `b::streaming::clients_that_stop_reading_do_not_stall_others_on_the_same_connection_to_the_shard` |
//! | simultaneous requests at a cold start | pingora's pool | `b::streaming::a_cold_start_does_not_open_a_connection_per_request` |
//! | certificates that do not parse | pingora's `expect` | `b::identity::a_certificate_that_cannot_be_parsed_completes_the_handshake` |
//! | a scanner fills the log | pingora | [`kubernetes`]`::failed_handshakes_and_garbage_are_not_logged_as_warnings` |
//! | SIGHUP kills | pingora | `b::process::the_program_serves_reloads_and_drains` |
//!
//! Not covered, because the gateway has no cache, resolves no names from requests and parses no documents:
//! cache keys (CVE-2026-2836), names that resolve differently the second time (CVE-2020-8562, beyond what is above),
//! YAML and JSON bombs (CVE-2019-11253).
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod attacks;
mod campaign;
mod conformance;
mod floods;
mod frames;
mod generate;
mod goodput;
mod kubernetes;
mod random;
mod scans;
mod slow;
mod smuggling;
mod target;
mod uploads;
mod wire;

// Shared with the behaviour tests; some parts are unused here.
#[path = "../behaviour/pki.rs"]
#[allow(dead_code, reason = "shared")]
mod pki;
#[path = "../behaviour/program.rs"]
#[allow(dead_code, reason = "shared")]
mod program;
#[path = "../behaviour/shard/mod.rs"]
#[allow(dead_code, reason = "shared")]
mod shard;
#[path = "../behaviour/world.rs"]
#[allow(dead_code, reason = "shared")]
mod world;
