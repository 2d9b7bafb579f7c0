//! `ballast-controller`: arguments and exit codes.

mod announce;

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
use ballast_controller::{VERSION, admin, cluster, plan, publish, run};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tikv_jemallocator::Jemalloc;

/// The system's allocator keeps the memory of past decisions.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Kubernetes in; a routing table, status and events out. `announce` and `addresses` need no Kubernetes.
#[derive(Debug, Parser)]
#[command(version = VERSION.as_str())]
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
    #[command(after_help = PLAN_HELP)]
    Plan(Box<Plan>),
    /// Ask the controller that writes a table's folder how it is; for the probes of a pod
    Probe(Probe),
    /// Hold addresses together with other nodes, and tell the network which of them has each
    #[command(after_help = announce::HELP)]
    Announce(announce::Announce),
    /// Say which node holds each address, as the announcer of this node sees it
    #[command(after_help = announce::ADDRESSES_HELP)]
    Addresses(announce::Addresses),
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
    /// Show the whole table, too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    table: bool,
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
    // There are keys and tokens in the memory.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        complain(
            &format!("core dumps cannot be turned off: {error}; turn them off by ulimit -c 0"),
            None,
        );
    }
    // Dropped last, so that the last lines are written.
    let mut log = None;
    let lines = match &cli.command {
        Command::Run(flags) => Some((flags.process.log_format, flags.process.log_level)),
        Command::Publish(flags) => Some((flags.process.log_format, flags.process.log_level)),
        Command::Announce(flags) => flags.lines(),
        _ => None,
    };
    if let Some((format, level)) = lines {
        log = match log::begin(format, level) {
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
        Command::Announce(flags) => announce::announce(&flags),
        Command::Addresses(flags) => announce::addresses(&flags),
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
        None => (
            run::look_once(None, &command.cluster, &settings)?,
            Vec::new(),
        ),
        Some(folder) => {
            let found = read_folder(folder);
            let (observed, bad) = found.with_context(|| {
                let folder = folder.display();
                format!("--manifests {folder}: cannot be read; name a folder that is there and has manifests")
            })?;
            let desired = decide(&observed, &settings);
            let desired = match desired.wanted.names.is_empty() {
                true => desired,
                false => run::look_once(Some(folder.clone()), &command.cluster, &settings)?,
            };
            (desired, bad)
        }
    };
    let text = match &command.against {
        None => plan::print(&desired, &bad, command.table)?,
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
const PLAN_HELP: &str = "\
Exit codes: 0 the plan was printed, whatever it says; 1 a fault: the cluster, the folder or the running table cannot be read; 64 wrong usage.";
const PUBLISH_HELP: &str = "\
Any number of these processes may run; the one that holds the Lease ballast-leader writes.
Signals: SIGTERM and SIGINT end in order; what is published stays published.
Exit codes: 0 an ordered end; 1 a fault; 64 wrong usage.";
/// EX_USAGE
const USAGE: u8 = 64;
