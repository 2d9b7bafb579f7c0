//! The admin address: the page, what is counted in all its forms, health. On a runtime of its own, so that no reader costs a
//! client anything.
//!
//! Apply says with each table where it should be; nobody else opens a listening socket that is not a client's.

mod action;
mod desk;
mod doors;
mod events;
mod gate;
mod lobby;
mod page;
mod patient;
mod query;
mod viewers;

pub(crate) use doors::{Doors, Places, Wish, admin_addresses};
pub(crate) use viewers::Viewers;

use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use self::desk::{Caller, Desk};
use self::lobby::Lobby;
use self::patient::Patient;
use crate::auth::Auth;
use crate::panics::vital;
use crate::stats;
use crate::worker::Shared;

/// Answers at `doors`, and follows `wishes`, for as long as the process lives. Until the first of them comes, `viewers`
/// may look.
pub(crate) async fn serve(
    mut doors: Doors,
    mut wishes: watch::Receiver<Option<Wish>>,
    shared: Arc<Shared>,
    auth: Option<Auth>,
    viewers: Viewers,
) {
    tokio::task::spawn_local(vital("counting", stats::watch(Arc::clone(&shared))));
    // Where nobody answers yet, nothing was said of who may look.
    let mut logged = (!doors.bound().is_empty()).then(|| viewers.clone());
    let desk = Rc::new(Desk::new(Arc::clone(&shared), auth, viewers));
    let lobby = Lobby::open(Rc::clone(&desk));
    loop {
        let now = wishes.borrow_and_update().clone();
        let whole = match &now {
            Some(Wish {
                doors: now,
                viewers,
            }) => {
                // First: no address may open to those whom this table does not let look.
                desk.show_to(viewers.clone());
                let made_way = doors.make_way(now).await;
                doors.follow(now, &made_way)
            }
            None => true,
        };
        let viewers = now.map(|now| now.viewers);
        if !doors.bound().is_empty() && viewers.is_some() && viewers != logged {
            viewers.iter().for_each(Viewers::log);
            logged = viewers;
        }
        for (purpose, address, listener) in doors.fresh() {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let accepting = Rc::clone(&lobby).accept(listener, purpose);
                    let accepting = vital(format!("answering at {address}"), accepting);
                    let task = tokio::task::spawn_local(accepting).abort_handle();
                    doors.accepts(purpose, address, task);
                }
                Err(error) => tracing::error!(%error, "cannot answer at an admin address"),
            }
        }
        shared.status.set_admin(doors.bound());
        let again = if whole { Duration::MAX } else { RETRY_EVERY };
        if let Ok(Err(_)) = timeout(again, wishes.changed()).await {
            // Nobody will want anything else any more.
            return std::future::pending().await;
        }
    }
}

async fn converse(stream: TcpStream, desk: Rc<Desk>, caller: Caller) {
    let until = Rc::clone(&caller.until);
    let answer = service_fn(move |request| {
        let (desk, caller) = (Rc::clone(&desk), caller.clone());
        async move { Ok::<_, Infallible>(desk.answer(request, caller).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MOST_BUFFERED)
            .serve_connection(TokioIo::new(Patient::new(stream, WRITE_TIMEOUT)), answer)
    );
    let mut is_last = false;
    loop {
        let end = until.get();
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "admin connection ended");
                }
                return;
            }
            // An answer may have made it later meanwhile.
            () = sleep_until(end) => if Instant::now() >= until.get() {
                if is_last {
                    return;
                }
                // What is being said may be finished.
                is_last = true;
                until.set(Instant::now() + CONVERSATION);
                connection.as_mut().graceful_shutdown();
            },
        }
    }
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A reader that takes nothing for so long has gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CONVERSATION: Duration = Duration::from_secs(60);
/// Of an answer that is not taken yet, beside a piece of a rendering.
const MOST_BUFFERED: usize = 64 * 1024;
const RETRY_EVERY: Duration = Duration::from_secs(5);
