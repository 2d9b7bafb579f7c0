//! `ballast-controller`: arguments and exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use ballast_controller::decide::decide;
use ballast_controller::log::{self, Log};
use ballast_controller::observe::read_folder;
use ballast_controller::settings::{
    ClusterFlags, Flags, PublishFlags, RunFlags, Settings, WrongFlag,
};
use ballast_controller::{admin, cluster, plan, publish, run};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tikv_jemallocator::Jemalloc;

/// The system's allocator keeps the memory of past decisions.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Kubernetes in; a routing table, status and events out.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a cluster's Services, or those of a folder of manifests, on this node
    #[command(after_help = RUN_HELP)]
    Run(Box<RunFlags>),
    /// Publish a cluster's Services: their statuses and events
    #[command(after_help = PUBLISH_HELP)]
    Publish(Box<PublishFlags>),
    /// Say what would be served, and why, without serving it
    Plan(Box<Plan>),
    /// Ask the controller that writes a table's folder how it is; for the probes of a pod
    Probe(Probe),
    /// Take back what Ballast wrote to Services, when it is uninstalled
    Release(Box<cluster::ReleaseFlags>),
}

#[derive(Debug, Args)]
struct Plan {
    /// A folder of Services, EndpointSlices, Nodes and Secrets, as YAML or JSON [default: a cluster]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "use_kubernetes_cluster_service"])]
    manifests: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Show what changes in this running table: its file, or the folder of it
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Args)]
struct Probe {
    /// The folder of the table, as that controller was told
    #[arg(long, value_name = "DIR", env = "BALLAST_TABLE")]
    table_dir: PathBuf,
    /// Which question
    #[arg(value_enum, default_value_t)]
    question: Question,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Question {
    /// Whether it lives
    #[default]
    Live,
    /// Whether it has decided
    Ready,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            error.print().ok();
            return if error.use_stderr() {
                USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    // Dropped last, so that the last lines are written.
    let mut log = None;
    let process = match &cli.command {
        Command::Run(flags) => Some(&flags.process),
        Command::Publish(flags) => Some(&flags.process),
        _ => None,
    };
    if let Some(flags) = process {
        log = match log::begin(flags.log_format, flags.log_level) {
            Ok(log) => Some(log),
            Err(error) => {
                complain(
                    &format!("cannot start the thread that writes the log: {error}"),
                    None,
                );
                return ExitCode::FAILURE;
            }
        };
    }
    let done = match cli.command {
        Command::Plan(command) => plan(*command),
        Command::Probe(probe) => {
            let path = match probe.question {
                Question::Live => "/healthz",
                Question::Ready => "/readyz",
            };
            admin::probe(&probe.table_dir, path)
        }
        Command::Release(flags) => cluster::release(&flags),
        Command::Run(flags) => run::run(*flags),
        Command::Publish(flags) => publish::publish(*flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"), log.as_ref());
            match error.is::<WrongFlag>() {
                true => USAGE.into(),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Says why the process ends. Where there is a log, only its thread writes to standard error.
fn complain(why: &str, log: Option<&Log>) {
    let line = format!("ballast-controller: {why}");
    match log {
        Some(_) => log::plain(&line),
        None => {
            writeln!(std::io::stderr(), "{line}").ok();
        }
    }
}

fn plan(command: Plan) -> anyhow::Result<()> {
    let mut settings = Settings::new(command.flags)?;
    if command.manifests.is_none() {
        settings = settings.of(&command.cluster)?;
    }
    for remark in &settings.remarks {
        complain(remark, None);
    }
    let (desired, bad) = match &command.manifests {
        None => (run::look_once(&command.cluster, &settings)?, Vec::new()),
        Some(folder) => {
            let found = read_folder(folder);
            let (observed, bad) = found.with_context(|| {
                format!("--manifests {}, which must be a folder", folder.display())
            })?;
            (decide(&observed, &settings), bad)
        }
    };
    let text = match &command.against {
        None => plan::print(&desired, &bad)?,
        Some(path) => {
            let running = plan::running(path).context("--against")?;
            plan::print_changes(&desired, &bad, &running)?
        }
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")
}

const RUN_HELP: &str = "\
Signals: SIGTERM and SIGINT end in order; what the data plane serves stays served.
Exit codes: 0 an ordered end; 1 a fault; 64 wrong usage.";
const PUBLISH_HELP: &str = "\
Any number of these processes may run; the one that holds the Lease ballast-leader writes.
Signals: SIGTERM and SIGINT end in order; what is published stays published.
Exit codes: 0 an ordered end; 1 a fault; 64 wrong usage.";
/// EX_USAGE
const USAGE: u8 = 64;
