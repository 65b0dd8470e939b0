//! The host's merge of core modules, from its own source: what is measured is what the host runs.

pub(crate) mod compile;

pub(crate) mod limiter {
    //! What the merge needs of the host's limits.

    /// The most core instances of one component.
    pub(crate) const CORE_INSTANCES: u32 = 256;
}
