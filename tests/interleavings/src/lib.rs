//! Scenes of the hand-over between the driver and the slots, for shuttle: it runs the threads of a scene in many
//! orders, and fails when an assertion does, or when all threads wait for each other.
//!
//! The modules below have the paths of the host's. The files themselves are the host's: tickets, their queue, the
//! events of the slots, and the value that is read for each message.

/// As `hostler::sync`, of shuttle.
pub mod sync {
    pub use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};
}

pub mod delivery {
    pub mod ledger {
        pub type Time = std::time::Duration;

        /// A delivery, by its number.
        #[derive(Clone, Copy, Debug)]
        pub struct Key(pub usize);
    }
}

/// What the queue of tickets reads of a claim: the length of its body.
pub mod queue {
    #[derive(Debug, Default)]
    pub struct Claim {
        pub message: Message,
    }

    #[derive(Debug, Default)]
    pub struct Message {
        pub body: Vec<u8>,
    }
}

pub mod rollout;

pub mod runtime {
    /// As the host's.
    pub mod handler {
        pub struct Batching {
            pub size: usize,
            pub wait: std::time::Duration,
            pub bytes: usize,
        }
    }

    #[path = "../../../../host/src/runtime/slot_events.rs"]
    mod slot_events;
    #[path = "../../../../host/src/runtime/ticket.rs"]
    mod ticket;
    #[path = "../../../../host/src/runtime/ticket_queue.rs"]
    mod ticket_queue;

    pub mod scenes;
}
