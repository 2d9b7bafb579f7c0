//! Frames about the connection, and about streams without their messages.

use std::mem;

use super::connection::{Connection, DEFAULT_WINDOW, Event, LAST_PING, Role};
use super::frame::{self, ErrorCode, FrameHeader, MAX_WINDOW, number};
use super::stream::Reset;

impl Connection {
    pub(super) fn priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let id = header.stream;
        if id == 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let code = match number(payload) {
            _ if payload.len() != 5 => ErrorCode::FRAME_SIZE_ERROR,
            Some(parent) if parent == id => ErrorCode::PROTOCOL_ERROR,
            // Priorities of this kind are obsolete (RFC 9113, section 5.3.2).
            _ => return Ok(()),
        };
        match self.streams.find(id) {
            Some(key) => {
                self.fail_stream(key, code, events);
                Ok(())
            }
            None => Err(code),
        }
    }

    pub(super) fn rst_stream(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let id = header.stream;
        let code = payload.first_chunk().map(|code| u32::from_be_bytes(*code));
        let Some(code) = code.filter(|_| payload.len() == 4).map(ErrorCode) else {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        };
        if id == 0 || self.is_idle(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let Some(key) = self.streams.find(id) else {
            return Ok(());
        };
        self.count_given_up(key);
        let reset = match code {
            ErrorCode::REFUSED_STREAM if self.role == Role::Client => Reset::Refused,
            code => Reset::ByPeer(code),
        };
        self.close(key, reset);
        events.push(Event::Changed(key));
        Ok(())
    }

    pub(super) fn settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        if header.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                return Err(ErrorCode::FRAME_SIZE_ERROR);
            }
            self.confirmed();
            return Ok(());
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let before = self.peer.window;
        let mut most = before;
        for [n0, n1, v0, v1, v2, v3] in settings {
            let name = u16::from_be_bytes([*n0, *n1]);
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            self.setting(name, value)?;
            most = most.max(self.peer.window);
        }
        self.move_windows(before, most)?;
        frame::write(&mut self.out, frame::SETTINGS, frame::ACK, 0, &[]);
        if self.peer.window > before {
            events.push(Event::AllChanged);
        }
        Ok(())
    }

    /// Changes the windows of all streams as the first window was changed, which was `before` and `most` for a while. Once for a
    /// frame, which may hold thousands of settings.
    fn move_windows(&mut self, before: i64, most: i64) -> Result<(), ErrorCode> {
        let (grown, for_a_while) = (self.peer.window - before, most - before);
        if (grown, for_a_while) == (0, 0) {
            return Ok(());
        }
        if self.streams.len() > 0 {
            self.costs.add(COST_OF_WINDOWS);
        }
        for (_, stream) in self.streams.all_mut() {
            if !stream.is_closed() && stream.send_window + for_a_while > MAX_WINDOW {
                return Err(ErrorCode::FLOW_CONTROL_ERROR);
            }
            stream.send_window += grown;
        }
        Ok(())
    }

    /// The peer has put our settings in force: from now on its streams begin with our window, and those that it has opened were
    /// changed by the difference.
    pub(super) fn confirmed(&mut self) {
        if mem::replace(&mut self.is_confirmed, true) {
            return;
        }
        let less = DEFAULT_WINDOW - i64::from(self.config.window);
        let mut open = Vec::new();
        for (key, stream) in self.streams.all_mut() {
            stream.window -= less;
            open.push(key);
        }
        open.into_iter().for_each(|key| self.update_window(key));
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ErrorCode> {
        match name {
            frame::SETTINGS_HEADER_TABLE_SIZE => self.encoder.peer_set_table_size(),
            frame::SETTINGS_ENABLE_PUSH if value > 1 => return Err(ErrorCode::PROTOCOL_ERROR),
            frame::SETTINGS_MAX_CONCURRENT_STREAMS => self.peer.max_streams = value,
            frame::SETTINGS_INITIAL_WINDOW_SIZE => {
                let window = i64::from(value);
                if window > MAX_WINDOW {
                    return Err(ErrorCode::FLOW_CONTROL_ERROR);
                }
                self.peer.window = window;
            }
            frame::SETTINGS_MAX_FRAME_SIZE => match value {
                0x4000..=0xff_ffff => self.peer.max_payload = (value as usize).min(LONGEST_PAYLOAD),
                _ => return Err(ErrorCode::PROTOCOL_ERROR),
            },
            _ => {}
        }
        Ok(())
    }

    pub(super) fn pinged(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if header.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if payload.len() != 8 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        if !header.has(frame::ACK) {
            frame::write(&mut self.out, frame::PING, frame::ACK, 0, payload);
        } else if payload == LAST_PING {
            self.confirm_end();
        }
        Ok(())
    }

    pub(super) fn goaway(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        if header.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let last = number(payload).filter(|_| payload.len() >= 8);
        let last = last.ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
        if self.role == Role::Server {
            return Ok(());
        }
        self.peer_takes_up_to = Some(last);
        let refused: Vec<_> = self
            .streams
            .open()
            .filter(|key| {
                let stream = self.streams.get(*key);
                stream.is_some_and(|stream| stream.id > last)
            })
            .collect();
        for key in refused {
            self.close(key, Reset::Refused);
            events.push(Event::Changed(key));
        }
        Ok(())
    }

    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let id = header.stream;
        let more = number(payload).filter(|_| payload.len() == 4);
        let more = i64::from(more.ok_or(ErrorCode::FRAME_SIZE_ERROR)?);
        if id == 0 {
            let was_closed = self.send_window <= 0;
            self.send_window += more;
            return match (more, self.send_window) {
                (0, _) => Err(ErrorCode::PROTOCOL_ERROR),
                (_, window) if window > MAX_WINDOW => Err(ErrorCode::FLOW_CONTROL_ERROR),
                _ => {
                    if was_closed {
                        events.push(Event::AllChanged);
                    }
                    Ok(())
                }
            };
        }
        if self.is_idle(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let Some(key) = self.streams.find(id) else {
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        stream.send_window += more;
        match (more, stream.send_window) {
            (0, _) => self.fail_stream(key, ErrorCode::PROTOCOL_ERROR, events),
            (_, window) if window > MAX_WINDOW => {
                self.fail_stream(key, ErrorCode::FLOW_CONTROL_ERROR, events);
            }
            _ => events.push(Event::Changed(key)),
        }
        Ok(())
    }
}

/// Longer payloads than this are not sent even to a peer that accepts them: other streams get their turn in between.
const LONGEST_PAYLOAD: usize = 64 * 1024;
/// The windows of all streams change, and their tasks look at them.
const COST_OF_WINDOWS: u32 = 5;
