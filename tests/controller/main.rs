//! `ballast-controller` without a real API server: what it decides, what it observes, `run` from a folder of manifests, and `announce`.

mod decide;
mod observe;
mod run;
