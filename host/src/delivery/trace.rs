//! The trace that a message belongs to: W3C `traceparent`.

use super::message::{Headers, TRACEPARENT};

/// The ids of a valid `traceparent`: hexadecimal digits, so harmless wherever they are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trace {
    trace_id: [u8; 32],
    span_id: [u8; 16],
}

impl Trace {
    /// The trace of a message with these headers.
    pub fn of(headers: &Headers) -> Option<Self> {
        Self::parse(headers.find(TRACEPARENT)?)
    }

    /// `00-<32 hexadecimal digits>-<16>-<2>`. Later versions may be longer; the same parts count.
    /// Any other text is not a trace.
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        let version = traceparent.get(..2)?;
        let later = version != b"00";
        let whole = traceparent.len() == 55 || (later && traceparent.get(55) == Some(&b'-'));
        let dashes = [2, 35, 52]
            .iter()
            .all(|at| traceparent.get(*at) == Some(&b'-'));
        let flags = traceparent.get(53..55)?;
        let trace_id = digits(traceparent.get(3..35)?)?;
        let span_id = digits(traceparent.get(36..52)?)?;
        let is_hex = |part| digits::<2>(part).is_some();
        let is_null = |id: &[u8]| id.iter().all(|digit| *digit == b'0');
        let valid = whole && dashes && version != b"ff" && is_hex(version) && is_hex(flags);
        (valid && !is_null(&trace_id) && !is_null(&span_id)).then_some(Self { trace_id, span_id })
    }

    /// The trace's id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        std::str::from_utf8(&self.trace_id).unwrap_or_default()
    }

    /// The id of the span in which the message was sent: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        std::str::from_utf8(&self.span_id).unwrap_or_default()
    }
}

fn digits<const N: usize>(part: &[u8]) -> Option<[u8; N]> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    part.try_into()
        .ok()
        .filter(|part: &[u8; N]| part.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_has_two_ids() {
        let trace = Trace::parse(VALID.as_bytes()).unwrap();
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.span_id(), "00f067aa0ba902b7");
        let later = VALID.replacen("00", "cc", 1) + "-what-comes";
        assert_eq!(Trace::parse(later.as_bytes()), Some(trace));
        let mut headers = Headers::default();
        assert_eq!(Trace::of(&headers), None);
        headers.push("TraceParent", VALID);
        assert_eq!(Trace::of(&headers), Some(trace));
    }

    #[test]
    fn an_invalid_traceparent_has_no_trace() {
        let wrong = [
            String::new(),
            VALID.to_uppercase(),
            format!("{VALID}-more"),
            format!(" {VALID}"),
            VALID.replacen("00", "ff", 1),
            VALID.replacen('-', "_", 1),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            VALID.replace("01", "\n1"),
            VALID.replace("4bf", "\x1b[3"),
        ];
        for text in wrong {
            assert_eq!(Trace::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn ids_are_hexadecimal_digits(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            at in 0..55_usize,
            byte in any::<u8>(),
        ) {
            let mut changed = VALID.as_bytes().to_vec();
            changed[at] = byte;
            for text in [bytes, changed] {
                if let Some(trace) = Trace::parse(&text) {
                    let ids = format!("{}{}", trace.trace_id(), trace.span_id());
                    prop_assert_eq!(ids.len(), 48);
                    prop_assert!(ids.bytes().all(|b| b.is_ascii_hexdigit()));
                }
            }
        }
    }
}
