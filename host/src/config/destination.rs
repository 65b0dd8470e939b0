//! Where messages are published to.

use crate::config::Destination;
use crate::config::collect::Collected;
use crate::config::settings::queue;
use crate::wire::list::{Codec, Framing};

impl Collected {
    pub(super) fn check_destination(&mut self) -> Option<Destination> {
        self.only_with(&queue::RELIABLE, &queue::LIST);
        self.check_form();
        // What contradicts itself is told as `run` tells it; bodies are not looked at.
        self.check_codec();
        // As hosts with the same configuration read.
        let codec = match self.check_framing() {
            Framing::Raw => Codec::Raw,
            framing => framing.codec(),
        };
        match &self.queues_set()[..] {
            ["stream"] => Some(Destination::Stream {
                key: self.value(&queue::STREAM)?,
                body_field: self.or_default(&queue::BODY_FIELD),
            }),
            ["list"] => Some(Destination::List {
                key: self.value(&queue::LIST)?,
                reliable: self.or_default(&queue::RELIABLE),
                codec,
            }),
            ["channel"] => Some(Destination::Channel {
                name: self.value(&queue::CHANNEL)?,
                sharded: false,
                codec,
            }),
            ["sharded_channel"] => Some(Destination::Channel {
                name: self.value(&queue::SHARDED_CHANNEL)?,
                sharded: true,
                codec,
            }),
            set => {
                let what = if set.is_empty() {
                    "there is nowhere to publish to".to_owned()
                } else {
                    format!("cannot publish to `{}`", set.join("` and `"))
                };
                let hint = "give exactly one of `stream`, `list`, `channel` and `sharded_channel`";
                self.conflict(None, what, hint.to_owned());
                None
            }
        }
    }
}
