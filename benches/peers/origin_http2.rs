//! The origin of HTTP/2: whatever a stream asks, it is answered with one message of gRPC of 100 bytes, and trailers.

use std::io;

use crate::http2::{self, Block, Inbox};

/// One connection, without its socket.
pub(crate) struct Session {
    inbox: Inbox,
    /// Bytes of the preface that have not come yet.
    preface: usize,
    head: Block,
    trailers: Block,
    table: Table,
    /// Received bytes whose window is not given back yet.
    owed: usize,
    out: Vec<u8>,
}

/// How header blocks are encoded.
#[derive(Clone, Copy)]
enum Table {
    /// As the first ones of a connection.
    Empty,
    Filled,
    /// The peer wants none, and is to be told that there is none.
    Forbidden,
    Absent,
}

impl Default for Session {
    fn default() -> Self {
        let mut settings = vec![0, http2::MAX_CONCURRENT_STREAMS];
        settings.extend(STREAMS.to_be_bytes());
        let mut out = Vec::new();
        http2::put(&mut out, http2::SETTINGS, 0, 0, &settings);
        http2::put_window(&mut out, 0, WINDOW - http2::FIRST_WINDOW);
        Self {
            inbox: Inbox::new(),
            preface: http2::PREFACE.len(),
            head: Block::new(&[http2::STATUS_200], &HEAD, TRAILERS.len()),
            trailers: Block::new(&[], &TRAILERS, 0),
            table: Table::Empty,
            owed: 0,
            out,
        }
    }
}

impl Session {
    /// Takes in the client's bytes, and returns the bytes of the answers to them.
    pub(crate) fn answer(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (_, mut rest) = bytes.split_at(self.preface.min(bytes.len()));
        self.preface -= bytes.len() - rest.len();
        while !rest.is_empty() {
            let space = self.inbox.space();
            let (piece, later) = rest.split_at(rest.len().min(space.len()));
            space[..piece.len()].copy_from_slice(piece);
            self.inbox.fill(piece.len());
            rest = later;
            self.hear()?;
        }
        Ok(std::mem::take(&mut self.out))
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut asked = Vec::new();
        while let Some(frame) = self.inbox.frame() {
            http2::put_acknowledgement(&mut self.out, &frame);
            match frame.kind {
                http2::SETTINGS
                    if frame
                        .table_size()
                        .is_some_and(|size| size < http2::FIRST_TABLE) =>
                {
                    self.table = Table::Forbidden;
                }
                http2::DATA => self.owed += frame.payload.len(),
                http2::GOAWAY => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
            if frame.ends_stream() {
                asked.push(frame.stream);
            }
        }
        if self.owed >= WINDOW as usize / 2 {
            let owed = std::mem::take(&mut self.owed);
            http2::put_window(
                &mut self.out,
                0,
                u32::try_from(owed).map_err(io::Error::other)?,
            );
        }
        asked
            .into_iter()
            .for_each(|stream| self.answer_stream(stream));
        Ok(())
    }

    fn answer_stream(&mut self, stream: u32) {
        let Self {
            head,
            trailers,
            out,
            ..
        } = self;
        let told = [&[http2::NO_TABLE], head.plain.as_slice()].concat();
        let (head, trailers) = match self.table {
            Table::Empty => (&head.first, &trailers.first),
            Table::Filled => (&head.later, &trailers.later),
            Table::Forbidden => (&told, &trailers.plain),
            Table::Absent => (&head.plain, &trailers.plain),
        };
        self.table = match self.table {
            Table::Empty | Table::Filled => Table::Filled,
            Table::Forbidden | Table::Absent => Table::Absent,
        };
        let last = http2::END_HEADERS | http2::END_STREAM;
        http2::put(out, http2::HEADERS, http2::END_HEADERS, stream, head);
        http2::put(out, http2::DATA, 0, stream, &MESSAGE);
        http2::put(out, http2::HEADERS, last, stream, trailers);
    }
}

/// A message of gRPC, of the client's too: not compressed, its length, 100 bytes.
pub(crate) const MESSAGE: [u8; 105] = {
    let mut message = [b'E'; 105];
    (message[0], message[1], message[2], message[3], message[4]) = (0, 0, 0, 0, 100);
    message
};
const HEAD: [(&str, &str); 1] = [("content-type", "application/grpc")];
const TRAILERS: [(&str, &str); 2] = [("grpc-status", "0"), ("grpc-message", "")];
/// At once on one connection, as most servers of gRPC allow.
const STREAMS: u32 = 100;
const WINDOW: u32 = 1024 * 1024;
