//! `ballast-controller announce`: which node holds an address, and how the network learns it.
//!
//! It reads one file and writes one ack. It knows no Kubernetes: a file by hand on two plain hosts is as good as one that the
//! controller writes. What decides is pure: no socket, clock or random source; time is an argument, a [`Duration`] since the process
//! started.
//!
//! - [`file`](mod@file): the file, its mistakes and its schema; [`key`]: the file with the keys; [`ack`]: the answer.
//! - [`sealed`]: datagrams that only members can read and make; [`membership`]: who is alive, and what each says of itself.
//! - [`owner`](mod@owner): who holds an address; [`standing`]: what this node is worth as one.
//! - [`l2`]: an address on this node, step by step; [`frames`]: ARP and neighbour discovery; [`network`]: which interface carries it.
//! - [`bgp`]: what routers are told, by BIRD.
//! - [`node`]: all of it together, still without input and output; [`shell`]: sockets, files and clocks around it.
//!
//! [`Duration`]: std::time::Duration

#![deny(unsafe_code)]

pub mod bgp;
pub mod file;
pub mod frames;
pub mod key;
pub mod l2;
pub mod membership;
pub mod network;
pub mod node;
pub mod owner;
pub mod sealed;
pub mod shell;
pub mod standing;

pub use ballast_core::announce_ack as ack;
