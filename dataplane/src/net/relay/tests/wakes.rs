//! The events that wake the task of a relay.

use std::pin::pin;

use tokio::task::{LocalSet, consume_budget, coop::has_budget_remaining};

use super::*;

/// The runtime's own sockets return `Pending` to a task that has used up its cooperative budget. A relay that took this for an
/// empty socket would wait for a wake-up that never comes. The sockets of the worker's poller do not use that budget.
#[tokio::test]
async fn a_relay_in_a_task_without_budget_is_woken_by_its_sockets() {
    let (mut client, ours_to_client) = pair().await;
    let (ours_to_server, mut server) = pair().await;
    let tools = tools(0);
    let poller = Rc::clone(&tools.poller);
    let relaying = async move {
        let mut client = watched(ours_to_client, &tools);
        let mut server = watched(ours_to_server, &tools);
        let first = Vec::new();
        relay(&mut client, &mut server, first, TIMEOUTS, &tools, |_, _| {}).await
    };
    let mut relaying = Box::pin(relaying);
    let mut polls = 0;
    let starved = poll_fn(move |cx| {
        polls += 1;
        assert!(polls < 1_000, "it spins");
        while has_budget_remaining() {
            assert!(pin!(consume_budget()).poll(cx).is_ready());
        }
        relaying.as_mut().poll(cx)
    });
    let conversation = async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
            client.write_all(b"?").await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'?');
            server.write_all(b"!").await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'!');
        }
        drop((client, server));
    };
    // These run in separate tasks, so that only the relay's own sockets wake the relay's task.
    let conversation = tokio::spawn(conversation);
    let local = LocalSet::new();
    local.spawn_local(poller.run());
    let closed = local.run_until(async {
        let closed = tokio::task::spawn_local(starved);
        tokio::time::timeout(Duration::from_secs(10), closed).await
    });
    let closed = closed.await.expect("nobody woke the relay").unwrap();
    assert_eq!(
        (closed.why, closed.up, closed.down),
        (Why::Finished, 10, 10)
    );
    conversation.await.unwrap();
}

/// The kernel reports the end once, and nothing reads afterwards: a following reset must wake the task by itself.
#[tokio::test]
async fn a_reset_behind_the_end_of_a_side_is_heard_while_the_other_side_is_silent() {
    for side in [Side::Client, Side::Server] {
        let (client, server, ended) = relayed(TIMEOUTS).await;
        let (mut ends, mut waits) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        ends.shutdown().await.unwrap();
        assert_eq!(waits.read(&mut [0]).await.unwrap(), 0);
        SockRef::from(&ends)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(ends);
        let ended = tokio::time::timeout(Duration::from_secs(10), ended);
        let (closed, _) = ended.await.expect("nobody woke the relay").unwrap();
        assert_eq!(
            (closed.why, closed.by, closed.fault),
            (Why::Aborted, Some(side), Some(side))
        );
        let told = waits.write_all(b"?").await.and(waits.read(&mut [0]).await);
        assert!(told.is_err(), "the other side is reset");
    }
}
