//! What a guest has written about its failure on stderr: the error with its type, and where in the guest it was.
//!
//! The runtime of each language writes this in a form of its own, and some write more behind it: the last line is
//! the runtime's. [`crate::delivery::signature`] makes a cause of the text.

use std::collections::VecDeque;

use crate::delivery::signature::{BELOW, PLACE};
use crate::delivery::text::{printable, truncate_utf8, truncated};

/// Bytes of the message.
const MESSAGE_MAX: usize = 256;

/// Functions of the guest that are named, innermost first.
const FRAMES_MAX: usize = 3;

/// Bytes of the name of one of them, and of its file and line.
const NAME_MAX: usize = 40;
const PLACE_MAX: usize = 40;

/// Rust ends the first panic of an instance with this line. It says nothing about the panic.
pub(super) const RUST_NOTE: &[u8] = b"note: run with `RUST_BACKTRACE";

/// Parts of the paths of what comes with Python.
const PYTHON_LIBRARIES: [&str; 4] = ["/python/", "/python3", "/site-packages/", "<frozen "];

/// So begin the names of the functions that carry out a panic in Go.
const GO_MACHINERY: [&str; 4] = ["runtime.", "internal/", "panic", "reflect."];

/// What is known of the text so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    /// No runtime has spoken: the last line is all there is.
    #[default]
    Nothing,
    /// Rust has named the place of a panic. Its message follows.
    RustPlace,
    /// Rust has given the message. Lines below it are indented: `left`, `right`.
    RustMessage,
    /// Go has given the message, or the whole of another runtime is known: nothing to add.
    GoMessage,
    /// The functions of the goroutine that failed.
    GoFrames,
    /// Python names functions, the innermost last.
    PythonFrames,
    /// The error is complete.
    Complete,
}

/// The failure that stderr names. Bounded.
#[derive(Debug, Default)]
pub(super) struct Told {
    state: State,
    message: String,
    /// Innermost first.
    frames: VecDeque<String>,
    /// The innermost function, if none is the guest's own.
    foreign: Option<String>,
}

impl Told {
    /// Read the next line, without its end.
    pub(super) fn read(&mut self, line: &[u8]) {
        if line.starts_with(RUST_NOTE) {
            return;
        }
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        let text = line.trim_start();
        let is_indented = text.len() < line.len();
        if self.state == State::RustPlace && !text.is_empty() {
            self.rust_message(text);
            return;
        }
        if !is_indented && self.begins(line) {
            return;
        }
        match self.state {
            State::RustMessage if is_indented => {
                self.message.push(' ');
                self.message.push_str(text);
                truncate_utf8(&mut self.message, MESSAGE_MAX);
            }
            State::GoMessage if text.starts_with("goroutine ") => self.state = State::GoFrames,
            State::GoFrames => self.go_frame(text, is_indented),
            State::PythonFrames if is_indented => self.python_frame(text),
            State::PythonFrames if !text.is_empty() => self.end(text),
            _ => {}
        }
    }

    /// The failure that it names; `None` if no runtime has written one.
    pub(super) fn text(&self) -> Option<String> {
        let message = printable(&self.message);
        if message.is_empty() {
            return None;
        }
        let mut text = truncated(&message, MESSAGE_MAX).to_owned();
        let foreign = self.foreign.iter().filter(|_| self.frames.is_empty());
        for (position, frame) in self.frames.iter().chain(foreign).enumerate() {
            text.push_str(if position == 0 { PLACE } else { BELOW });
            text.push_str(&printable(frame));
        }
        Some(text)
    }

    /// Whether it names functions of the guest.
    pub(super) fn has_functions(&self) -> bool {
        self.frames.iter().any(|frame| frame.ends_with(')'))
    }

    /// Whether a runtime begins to speak with this line.
    fn begins(&mut self, line: &str) -> bool {
        let begun = if let Some(place) = rust_place(line) {
            if matches!(self.state, State::Complete | State::PythonFrames) {
                // A runtime that is written in Rust panics behind the error of its guest.
                return true;
            }
            let mut begun = Self::at(State::RustPlace);
            begun.push(shown_frame("", place));
            begun
        } else if line == "Traceback (most recent call last):" {
            Self::at(State::PythonFrames)
        } else if let Some(message) = go_message(line) {
            let mut begun = Self::at(State::GoMessage);
            begun.say(message);
            begun
        } else if let Some(message) = zig_message(line) {
            let mut begun = Self::at(State::Complete);
            begun.say(message);
            begun
        } else {
            return false;
        };
        *self = begun;
        true
    }

    fn at(state: State) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    fn say(&mut self, message: &str) {
        truncated(message, MESSAGE_MAX).clone_into(&mut self.message);
    }

    fn end(&mut self, message: &str) {
        self.say(message);
        self.state = State::Complete;
    }

    /// Add a function further out.
    fn push(&mut self, frame: String) {
        if self.frames.len() < FRAMES_MAX {
            self.frames.push_back(frame);
        }
    }

    fn rust_message(&mut self, text: &str) {
        self.state = State::RustMessage;
        let Some(error) = JavaScript::of(text) else {
            self.say(text);
            return;
        };
        self.end(&error.message);
        self.frames.clear();
        for frame in error.stack.lines() {
            let frame = frame.trim();
            let frame = frame.strip_prefix("at ").unwrap_or(frame);
            let named = frame
                .strip_suffix(')')
                .and_then(|frame| frame.rsplit_once(" ("));
            let (name, place) = named.unwrap_or(("", frame));
            // `Array (native)`, and the text that a parser reads, `<input>:1:2`.
            if place.contains(':') && !place.starts_with("<input>") {
                let file = place.rsplit('/').next().unwrap_or(place);
                self.push(shown_frame(name, file));
            }
        }
    }

    /// `main.price(0x0)`, and below it the indented `/src/main.go:20 +0x3`.
    fn go_frame(&mut self, text: &str, is_indented: bool) {
        if is_indented {
            let place = text.split(" +0x").next().unwrap_or_default();
            let file = place.rsplit('/').next().unwrap_or_default();
            if let Some(last) = self.frames.back_mut()
                && !last.ends_with(')')
            {
                *last = shown_frame(last, file);
            }
            return;
        }
        if text.is_empty() || text.starts_with("created by ") || text.starts_with("goroutine ") {
            self.state = State::Complete;
            return;
        }
        // Without the arguments, and without the path of the package.
        let name = text.rsplit_once('(').map_or(text, |(name, _)| name);
        let name = name.rsplit('/').next().unwrap_or(name);
        let is_own = !GO_MACHINERY.iter().any(|part| name.starts_with(part));
        if is_own && self.frames.back().is_none_or(|last| last.ends_with(')')) {
            self.push(name.to_owned());
        }
    }

    /// `File "/app/order.py", line 12, in price`.
    fn python_frame(&mut self, text: &str) {
        let parts = text.strip_prefix("File \"");
        let parts = parts.and_then(|rest| rest.split_once("\", line "));
        let Some((path, rest)) = parts else {
            return;
        };
        let (line, name) = rest.split_once(", in ").unwrap_or((rest, "<module>"));
        let file = path.rsplit('/').next().unwrap_or(path);
        let frame = shown_frame(name, &format!("{file}:{line}"));
        if PYTHON_LIBRARIES.iter().any(|part| path.contains(part)) {
            self.foreign = Some(frame);
            return;
        }
        self.frames.push_front(frame);
        self.frames.truncate(FRAMES_MAX);
    }
}

/// `price (order.py:12)`, bounded.
fn shown_frame(name: &str, place: &str) -> String {
    // The line is at the end of the place.
    let cut = place.ceil_char_boundary(place.len().saturating_sub(PLACE_MAX));
    let (name, place) = (truncated(name, NAME_MAX), &place[cut..]);
    match name.is_empty() {
        true => place.to_owned(),
        false => format!("{name} ({place})"),
    }
}

/// `thread 'main' panicked at src/lib.rs:10:5:`, also with the number of the thread.
fn rust_place(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("thread '")?;
    let (_, place) = rest.split_once(" panicked at ")?;
    place.strip_suffix(':')
}

fn go_message(line: &str) -> Option<&str> {
    let message = line.strip_prefix("panic: ");
    message.or_else(|| line.strip_prefix("fatal error: "))
}

/// `thread 1 panic: index out of bounds`.
fn zig_message(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("thread ")?;
    let (thread, message) = rest.split_once(" panic: ")?;
    thread
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(message)
}

/// An error of JavaScript, as its runtime shows it in its own panic:
/// `Exception(Exception { message: Some("..."), stack: Some("...") })`.
struct JavaScript {
    message: String,
    stack: String,
}

impl JavaScript {
    fn of(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("Exception { message: ")?;
        let (message, rest) = shown(rest)?;
        let stack = rest.strip_prefix(", stack: ").and_then(shown);
        Some(Self {
            message: message.unwrap_or_else(|| "no message".to_owned()),
            stack: stack.and_then(|(stack, _)| stack).unwrap_or_default(),
        })
    }
}

/// A text that Rust shows, `Some("...")` or `None`, and what stands behind it. A text that is cut off ends with
/// the line.
fn shown(rest: &str) -> Option<(Option<String>, &str)> {
    if let Some(rest) = rest.strip_prefix("None") {
        return Some((None, rest));
    }
    let rest = rest.strip_prefix("Some(\"")?;
    let mut text = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let behind = chars.as_str();
                return Some((Some(text), behind.strip_prefix(')').unwrap_or(behind)));
            }
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => break,
            },
            other => text.push(other),
        }
    }
    Some((Some(text), ""))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::delivery::signature::signature;

    /// What runtimes wrote on stderr, as they wrote it, and what the host reports of it.
    const WRITTEN: [(&str, &str, &str); 25] = [
        (
            "rust: a panic",
            "thread '<unnamed>' (1) panicked at src/lib.rs:30:20:\nasked to panic\nnote: run with \
             `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
            "asked to panic, at src/lib.rs:30:20",
        ),
        (
            "rust: an assertion",
            "thread 'main' panicked at src/order.rs:7:5:\nassertion `left == right` failed: sum\n  left: 1\n \
             right: 2\n",
            "assertion `left == right` failed: sum left: 1 right: 2, at src/order.rs:7:5",
        ),
        (
            "rust: the same message at another place",
            "thread '<unnamed>' (1) panicked at src/lib.rs:44:9:\nasked to panic\n",
            "asked to panic, at src/lib.rs:44:9",
        ),
        (
            "js: a TypeError",
            r#"thread '<unnamed>' (1) panicked at crates/runtime/src/interpreter.rs:51:31:
Failed to call 'handle': Exception(Exception { message: Some("TypeError: cannot read property 'value' of undefined"), stack: Some("    at price (/build/handler.js:243:20)\n    at handle (/build/handler.js:253:9)\n    at <anonymous> (/build/handler.js:305:57)\n    at <anonymous> (/build/handler.js:25:36)\n") })
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"#,
            "TypeError: cannot read property 'value' of undefined, at price (handler.js:243:20) < handle \
             (handler.js:253:9) < <anonymous> (handler.js:305:57)",
        ),
        (
            "js: a TypeError in another function",
            r#"thread '<unnamed>' (1) panicked at crates/runtime/src/interpreter.rs:51:31:
Failed to call 'handle': Exception(Exception { message: Some("TypeError: cannot read property 'value' of undefined"), stack: Some("    at cost (/build/handler.js:244:19)\n    at handle (/build/handler.js:256:9)\n") })
"#,
            "TypeError: cannot read property 'value' of undefined, at cost (handler.js:244:19) < handle \
             (handler.js:256:9)",
        ),
        (
            "js: a RangeError",
            r#"thread '<unnamed>' (1) panicked at crates/runtime/src/interpreter.rs:51:31:
Failed to call 'handle': Exception(Exception { message: Some("invalid array length"), stack: Some("    at Array (native)\n    at look (/build/handler.js:246:20)\n    at handle (/build/handler.js:259:9)\n") })
"#,
            "invalid array length, at look (handler.js:246:20) < handle (handler.js:259:9)",
        ),
        (
            "js: a SyntaxError, with quotes",
            r#"thread '<unnamed>' (1) panicked at crates/runtime/src/interpreter.rs:51:31:
Failed to call 'handle': Exception(Exception { message: Some("handle returned {\"tag\":\"no\"}\nand more"), stack: Some("    at <input>:1:2\n    at parse (native)\n    at handle (/build/handler.js:275:14)\n") })
"#,
            "handle returned {\"tag\":\"no\"}\\nand more, at handle (handler.js:275:14)",
        ),
        (
            "python: a ValueError",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 25, in handle\n  File \"/0/app.py\", \
             line 11, in price\nValueError: invalid literal for int() with base 10: 'abc'\nthread '<unnamed>' (1) \
             panicked at runtime/src/lib.rs:1280:25:\nPython function threw an unexpected exception\nnote: run \
             with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
            "ValueError: invalid literal for int() with base 10: 'abc', at price (app.py:11) < handle (app.py:25)",
        ),
        (
            "python: a ValueError in another function",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 26, in handle\n  File \"/0/app.py\", \
             line 15, in weight\nValueError: invalid literal for int() with base 10: 'abc'\n",
            "ValueError: invalid literal for int() with base 10: 'abc', at weight (app.py:15) < handle (app.py:26)",
        ),
        (
            "python: a KeyError",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 27, in handle\n  File \"/0/app.py\", \
             line 19, in look\nKeyError: 'id'\nthread '<unnamed>' (1) panicked at \
             runtime/src/lib.rs:1280:25:\nPython function threw an unexpected exception\n",
            "KeyError: 'id', at look (app.py:19) < handle (app.py:27)",
        ),
        (
            "python: a TypeError",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 28, in handle\n  File \"/0/app.py\", \
             line 19, in look\nTypeError: 'NoneType' object is not subscriptable\n",
            "TypeError: 'NoneType' object is not subscriptable, at look (app.py:19) < handle (app.py:28)",
        ),
        (
            "python: a ZeroDivisionError",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 29, in handle\nZeroDivisionError: \
             division by zero\n",
            "ZeroDivisionError: division by zero, at handle (app.py:29)",
        ),
        (
            "python: an IndexError",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 30, in handle\n  File \"/0/app.py\", \
             line 19, in look\nIndexError: list index out of range\n",
            "IndexError: list index out of range, at look (app.py:19) < handle (app.py:30)",
        ),
        (
            "python: an error of the handler's own, of another error",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 37, in handle\n  File \"/0/app.py\", \
             line 19, in look\nKeyError: 'id'\n\nThe above exception was the direct cause of the following \
             exception:\n\nTraceback (most recent call last):\n  File \"/0/app.py\", line 39, in \
             handle\napp.OutOfStock: item\nsecond line\nthread '<unnamed>' (1) panicked at \
             runtime/src/lib.rs:1280:25:\nPython function threw an unexpected exception\n",
            "app.OutOfStock: item, at handle (app.py:39)",
        ),
        (
            "python: an error in a library, without its functions",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 40, in handle\n  File \
             \"/python/json/__init__.py\", line 346, in loads\n  File \"/python/json/decoder.py\", line 345, in \
             decode\njson.decoder.JSONDecodeError: Expecting property name\n",
            "json.decoder.JSONDecodeError: Expecting property name, at handle (app.py:40)",
        ),
        (
            "go: nil",
            "panic: runtime error: invalid memory address or nil pointer dereference\n[signal 0xb code=0x0 addr=0x0 \
             pc=0x0]\n\ngoroutine 1 [running]:\nmain.price(0x0)\n\texample.com/orders-handler/main.go:21 \
             +0x1\nmain.handle({{0x20e028, 0x3}, {0x20e030, 0x6}, \
             ...})\n\texample.com/orders-handler/main.go:45 \
             +0x7\nexample.com/orders-handler/bindings/export_hostler_handler_message_handler.Handle(...)\n\t\
             example.com/orders-handler/bindings/export_hostler_handler_message_handler/handler.go:12\nhostler:\
             handler/message-handler@1.2.0#handle()\n\t<autogenerated>:1 +0x1\n",
            "runtime error: invalid memory address or nil pointer dereference, at main.price (main.go:21) < \
             main.handle (main.go:45) < export_hostler_handler_message_handler.H (handler.go:12)",
        ),
        (
            "go: an index",
            "panic: runtime error: index out of range [65] with length 1\n\ngoroutine 1 \
             [running]:\nmain.pick({0x23ad80, 0x1, 0x1}, 0x41)\n\texample.com/orders-handler/main.go:27 \
             +0x4\nmain.handle(...)\n\texample.com/orders-handler/main.go:49 +0x22\n",
            "runtime error: index out of range [65] with length 1, at main.pick (main.go:27) < main.handle \
             (main.go:49)",
        ),
        (
            "go: an index in another function",
            "panic: runtime error: index out of range [65] with length 1\n\ngoroutine 1 \
             [running]:\nmain.pay({0x23ad80, 0x1, 0x1}, 0x41)\n\texample.com/orders-handler/main.go:30 \
             +0x4\nmain.handle(...)\n\texample.com/orders-handler/main.go:51 +0x22\n",
            "runtime error: index out of range [65] with length 1, at main.pay (main.go:30) < main.handle \
             (main.go:51)",
        ),
        (
            "go: a nil map",
            "panic: assignment to entry in nil map\n\ngoroutine 1 [running]:\nmain.stock(0x0, \
             0xffffffffffffffde)\n\texample.com/orders-handler/main.go:33 +0x2\n",
            "assignment to entry in nil map, at main.stock (main.go:33)",
        ),
        (
            "go: a panic, in a goroutine",
            "panic: charging order: declined\n\ngoroutine 7 \
             [running]:\nmain.handle.func1()\n\texample.com/orders-handler/main.go:66 +0x2\ncreated by main.handle \
             in goroutine 1\n\texample.com/orders-handler/main.go:66 +0x61\n",
            "charging order: declined, at main.handle.func1 (main.go:66)",
        ),
        (
            "go: a deadlock",
            "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan \
             receive]:\nmain.handle(...)\n\texample.com/orders-handler/main.go:59 +0x58\n\ngoroutine 2 \
             [select]:\nmain.other(...)\n",
            "all goroutines are asleep - deadlock!, at main.handle (main.go:59)",
        ),
        (
            "zig: a panic",
            "info: attempt 1\nthread 1 panic: index out of bounds: index 12, len 2\nUnable to dump stack trace: \
             debug info stripped\n",
            "index out of bounds: index 12, len 2",
        ),
        (
            "zig: another panic",
            "thread 1 panic: attempt to use null value\n",
            "attempt to use null value",
        ),
        (
            "c: an assertion",
            "Assertion failed: n == 7 (main.c: handle: 45)\n",
            "",
        ),
        ("c++: a line of the handler", "no stock of item 4\n", ""),
    ];

    fn told(text: &str) -> Told {
        let mut told = Told::default();
        for line in text.lines() {
            told.read(line.as_bytes());
        }
        told
    }

    #[test]
    fn an_error_is_told_with_its_type_its_message_and_the_functions_of_the_guest() {
        for (name, text, expected) in WRITTEN {
            let told = told(text).text().unwrap_or_default();
            assert_eq!(told, expected, "{name}");
        }
    }

    #[test]
    fn errors_of_other_types_or_places_are_other_causes_and_those_of_other_lines_are_not() {
        let mut causes = BTreeMap::new();
        let cause_of = |text: &str| {
            let text = told(text).text().unwrap_or_else(|| text.trim().to_owned());
            let trap = "wasm trap: wasm `unreachable` instruction executed, in handle";
            signature("max-deliveries", &format!("trap: stderr: {text}; {trap}"))
        };
        for (name, text, _) in WRITTEN {
            if let Some(other) = causes.insert(cause_of(text), name) {
                panic!("{name} is the same cause as {other}");
            }
        }
        // Another build, and another value.
        let (_, index, _) = WRITTEN[16];
        let later = index
            .replace("[65]", "[7]")
            .replace("main.go:27", "main.go:99");
        assert_eq!(cause_of(index), cause_of(&later));
        let (_, value, _) = WRITTEN[7];
        assert_eq!(
            cause_of(value),
            cause_of(&value.replace("line 11", "line 12"))
        );
    }

    #[test]
    fn what_is_told_is_bounded() {
        let endless = "y".repeat(10_000);
        let mut told = Told::default();
        told.read(b"Traceback (most recent call last):");
        for n in 0..100 {
            let frame = format!("  File \"/0/{endless}.py\", line {n}, in {endless}");
            told.read(frame.as_bytes());
        }
        told.read(endless.as_bytes());
        let text = told.text().unwrap();
        assert!(text.len() < 600, "{}", text.len());
        assert!(told.has_functions());
        let shown = told.frames.iter().map(String::len).sum::<usize>();
        assert!(told.message.len() + shown < 600);
    }
}
