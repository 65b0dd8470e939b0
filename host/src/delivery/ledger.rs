//! Every delivery this host holds, from claim to settlement.
