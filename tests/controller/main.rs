//! `ballast-controller` without a real API server: what it decides, what it observes, and `run` from a folder of manifests.

mod decide;
mod observe;
mod run;
