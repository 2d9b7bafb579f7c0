//! What README.md and docs/ say of both programs, compared with the programs and with their source.

mod commands;
mod flags;
mod lines;
mod metrics;
mod reasons;
mod recipes;
mod text;
