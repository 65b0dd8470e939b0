//! The headers of a message, as guests see them.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use crate::delivery::message::Message;

/// The headers for the guest: names in lower case, UTF-8 (lossy), the first value of a repeated name.
/// Borrowed where nothing changes.
pub(super) struct Headers<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Up to this number of headers, a linear search is cheaper than a set.
const FEW: usize = 16;

impl<'a> Headers<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        let mut headers: Vec<(Cow<'a, str>, Cow<'a, str>)> =
            Vec::with_capacity(message.headers.len());
        let mut seen = FxHashSet::default();
        for (name, value) in message.headers.iter() {
            let mut name = String::from_utf8_lossy(name);
            if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                name.to_mut().make_ascii_lowercase();
            }
            let repeated = if message.headers.len() <= FEW {
                headers.iter().any(|(earlier, _)| *earlier == name)
            } else {
                !seen.insert(name.clone())
            };
            if !repeated {
                headers.push((name, String::from_utf8_lossy(value)));
            }
        }
        Self(headers)
    }

    pub(super) fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect()
    }
}
